import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.options.PutOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** One lease that is kept alive, with a key, through all kills. */
final class Leases {
    private static final long TTL_SECONDS = 6;
    private static final ByteSequence KEY = Work.bytes("leased");

    private final Work work;

    Leases(Work work) {
        this.work = work;
    }

    Map<String, Long> run() throws Exception {
        AtomicLong kept = new AtomicLong();
        long lease = work.until("a lease", new AtomicLong(), () -> work.client.getLeaseClient().grant(TTL_SECONDS)).getID();
        PutOption leased = PutOption.builder().withLeaseId(lease).build();
        work.until("the lease's key", new AtomicLong(), () -> work.client.getKVClient().put(KEY, Work.bytes("1"), leased));
        long created = createRevision();
        KeptAlive alive = new KeptAlive(work, lease, "the lease", answer -> {
            kept.incrementAndGet();
            Work.step("lease", Long.toString(answer.getTTL()));
        });
        work.awaitStop();
        alive.close();
        Work.check(createRevision() == created, "the key of the lease is another one");
        return Map.of("kept", kept.get());
    }

    private long createRevision() throws Exception {
        List<KeyValue> found = work.until("the leased key", new AtomicLong(), () -> work.client.getKVClient().get(KEY)).getKvs();
        Work.check(found.size() == 1, "the key of the lease is gone");
        return found.get(0).getCreateRevision();
    }
}
