import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.election.LeaderKey;
import io.etcd.jetcd.election.LeaderResponse;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.PutOption;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Candidates that lead in turn, and one who observes them. */
final class Elections implements Election.Listener {
    private static final int CANDIDATES = 3;
    private static final ByteSequence NAME = Work.bytes("election");
    private static final ByteSequence ELECTED = Work.bytes("elected");

    private final Work work;
    private final AtomicInteger leaders = new AtomicInteger();
    /** The create revision of the leader's key, which grows from leader to leader. */
    private final AtomicLong term = new AtomicLong();
    private final AtomicLong observed = new AtomicLong();
    private final AtomicLong observations = new AtomicLong();
    private long created;
    private long modified;
    private String leader = "";
    private volatile boolean isOver;

    Elections(Work work) {
        this.work = work;
    }

    Map<String, Long> run() {
        observe();
        Map<String, Long> told = new HashMap<>(Work.runAll(CANDIDATES, this::campaign));
        isOver = true;
        told.put("observed", observed.get());
        told.put("observations", observations.get());
        return told;
    }

    private Map<String, Long> campaign(int number) throws Exception {
        Election election = work.client.getElectionClient();
        AtomicLong doubts = new AtomicLong();
        long terms = 0;
        long lease = work.newLease("a candidate");
        while (work.goesOn()) {
            String me = number + "/" + terms;
            LeaderKey key = work.until("to campaign", doubts, () -> election.campaign(NAME, lease, Work.bytes(me))).getLeader();
            long before = term.getAndSet(key.getRevision());
            Work.check(before < key.getRevision(), me + " is elected with the revision " + key.getRevision() + " after " + before);
            Work.check(leaders.incrementAndGet() == 1, me + " does not lead alone");
            TxnResponse answer = work.until("to take the seat", doubts, () -> work.client.getKVClient().txn()
                    .If(new Cmp(key.getKey(), Cmp.Op.EQUAL, CmpTarget.createRevision(key.getRevision())))
                    .Then(Op.put(ELECTED, Work.bytes(me), PutOption.DEFAULT))
                    .commit());
            Work.check(answer.isSucceeded(), me + " is elected, and its key is another one");
            work.until("to proclaim", doubts, () -> election.proclaim(key, Work.bytes(me + "/again")));
            leaders.decrementAndGet();
            work.until("to resign", doubts, () -> election.resign(key));
            terms++;
            Work.step("election", me);
        }
        return Map.of("terms", terms, "doubts", doubts.get());
    }

    /** jetcd ends an observation when its node is gone. Then there is a new one. */
    private void observe() {
        if (isOver) {
            return;
        }
        observations.incrementAndGet();
        work.client.getElectionClient().observe(NAME, this);
    }

    @Override
    public synchronized void onNext(LeaderResponse response) {
        try {
            follow(response.getKv());
        } catch (IllegalStateException failure) {
            Main.fail(failure);
        }
        observed.incrementAndGet();
        Work.step("observe", Long.toString(created));
    }

    /** One candidate follows the other. */
    private void follow(KeyValue seen) {
        String value = seen.getValue().toString();
        String candidate = value.substring(0, value.indexOf('/'));
        boolean isSameTerm = seen.getCreateRevision() == created;
        Work.check(seen.getCreateRevision() >= created, value + " is observed after a later leader");
        Work.check(!isSameTerm || seen.getModRevision() >= modified, value + " is observed after what was proclaimed later");
        Work.check(!isSameTerm || candidate.equals(leader), value + " is observed in the term of " + leader);
        created = seen.getCreateRevision();
        modified = seen.getModRevision();
        leader = candidate;
    }

    @Override
    public void onError(Throwable failure) {
        observe();
    }

    @Override
    public void onCompleted() {
        observe();
    }
}
