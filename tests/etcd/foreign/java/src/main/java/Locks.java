import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Contenders for a lock, each with a lease of its own, and a section where only one may be at a time. */
final class Locks {
    private static final int CONTENDERS = 3;
    private static final ByteSequence NAME = Work.bytes("mutex");
    private static final ByteSequence GUARD = Work.bytes("guard/mutex");
    private static final ByteSequence NOBODY = Work.bytes("");

    private final Work work;
    private final AtomicInteger inside = new AtomicInteger();
    /** The create revision of the holder's key, which grows from holder to holder. */
    private final AtomicLong fence = new AtomicLong();

    Locks(Work work) {
        this.work = work;
    }

    Map<String, Long> run() throws Exception {
        work.until("the guard", new AtomicLong(), () -> work.client.getKVClient().put(GUARD, NOBODY));
        return Work.runAll(CONTENDERS, this::contend);
    }

    private Map<String, Long> contend(int number) throws Exception {
        AtomicLong doubts = new AtomicLong();
        long sections = 0;
        long lease = work.newLease("a contender");
        while (work.goesOn()) {
            ByteSequence me = Work.bytes(number + "/" + sections);
            ByteSequence key = work.until("to lock", doubts, () -> work.client.getLockClient().lock(NAME, lease)).getKey();
            long created = createRevision(key, doubts);
            long before = fence.getAndSet(created);
            Work.check(before < created, me + " has the create revision " + created + " after " + before);
            move("to enter", key, created, NOBODY, me, doubts);
            Work.check(inside.incrementAndGet() == 1, me + " is not alone inside");
            inside.decrementAndGet();
            move("to leave", key, created, me, NOBODY, doubts);
            work.until("to unlock", doubts, () -> work.client.getLockClient().unlock(key));
            sections++;
            Work.step("mutex", me.toString());
        }
        return Map.of("sections", sections, "doubts", doubts.get());
    }

    private long createRevision(ByteSequence key, AtomicLong doubts) throws Exception {
        List<KeyValue> found = work.until("the lock's key", doubts, () -> work.client.getKVClient().get(key)).getKvs();
        Work.check(found.size() == 1, "there is no " + key);
        return found.get(0).getCreateRevision();
    }

    /** A transaction that only the owner of the lock's key can do. An attempt without an answer may have done it. */
    private void move(String what, ByteSequence key, long created, ByteSequence from, ByteSequence to, AtomicLong doubts)
            throws Exception {
        TxnResponse answer = work.until(what, doubts, () -> work.client.getKVClient().txn()
                .If(new Cmp(key, Cmp.Op.EQUAL, CmpTarget.createRevision(created)),
                        new Cmp(GUARD, Cmp.Op.EQUAL, CmpTarget.value(from)))
                .Then(Op.put(GUARD, to, PutOption.DEFAULT))
                .Else(Op.get(GUARD, GetOption.DEFAULT))
                .commit());
        if (!answer.isSucceeded()) {
            ByteSequence holder = answer.getGetResponses().get(0).getKvs().get(0).getValue();
            Work.check(holder.equals(to), what + ": " + holder + " is inside instead of " + from);
        }
    }
}
