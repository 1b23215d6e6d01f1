import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Workers that add one to two counters in one transaction. A worker's own key tells it whether a transaction without an
 * answer was done.
 */
final class Counters {
    static final String PREFIX = "counters/";
    private static final int COUNTERS = 3;
    private static final int WORKERS = 3;

    /** A key as it was read: version 0 if there is none. */
    private record Read(ByteSequence key, long value, long modRevision) {
        Cmp isUnchanged() {
            return new Cmp(key, Cmp.Op.EQUAL, CmpTarget.modRevision(modRevision));
        }

        Op addOne() {
            return Op.put(key, Work.bytes(Long.toString(value + 1)), PutOption.DEFAULT);
        }
    }

    private final Work work;

    Counters(Work work) {
        this.work = work;
    }

    Map<String, Long> run() throws Exception {
        Map<String, Long> told = Work.runAll(WORKERS, this::count);
        GetOption all = GetOption.builder().isPrefix(true).build();
        List<KeyValue> found = work.until("the sum", new AtomicLong(),
                () -> work.client.getKVClient().get(Work.bytes(PREFIX), all)).getKvs();
        long sum = 0;
        for (KeyValue each : found) {
            long value = Long.parseLong(each.getValue().toString());
            Work.check(value == each.getVersion(), each.getKey() + " is " + value + " after " + each.getVersion() + " changes");
            sum += value;
        }
        Work.check(sum == 2 * told.get("counted"), "the sum is " + sum + "; " + told + " transactions added two each");
        return told;
    }

    private Map<String, Long> count(int number) throws Exception {
        ByteSequence own = Work.bytes("counted/" + number);
        AtomicLong doubts = new AtomicLong();
        long counted = 0;
        while (work.goesOn()) {
            int one = ThreadLocalRandom.current().nextInt(COUNTERS);
            int other = (one + 1 + ThreadLocalRandom.current().nextInt(COUNTERS - 1)) % COUNTERS;
            while (!add(own, counted, one, other, doubts)) {
                continue; // another worker was faster
            }
            counted++;
            Work.step("counters", Long.toString(counted));
        }
        return Map.of("counted", counted, "doubts", doubts.get());
    }

    /** Whether it is done, by this attempt or by the one before. */
    private boolean add(ByteSequence own, long counted, int one, int other, AtomicLong doubts) throws Exception {
        Read mine = read(own, doubts);
        if (mine.value == counted + 1) {
            return true;
        }
        Work.check(mine.value == counted, own + " is " + mine.value + " instead of " + counted);
        Read first = read(Work.bytes(PREFIX + one), doubts);
        Read second = read(Work.bytes(PREFIX + other), doubts);
        return work.until("a transaction", doubts, () -> work.client.getKVClient().txn()
                .If(mine.isUnchanged(), first.isUnchanged(), second.isUnchanged())
                .Then(mine.addOne(), first.addOne(), second.addOne())
                .commit()).isSucceeded();
    }

    private Read read(ByteSequence key, AtomicLong doubts) throws Exception {
        List<KeyValue> found = work.until("a read", doubts, () -> work.client.getKVClient().get(key)).getKvs();
        if (found.isEmpty()) {
            return new Read(key, 0, 0);
        }
        return new Read(key, Long.parseLong(found.get(0).getValue().toString()), found.get(0).getModRevision());
    }
}
