import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.etcd.jetcd.watch.WatchResponse;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One watch of all counters. jetcd resumes it at another node when its own is gone: that is an error, and another stream
 * after it.
 */
final class Watched implements Watch.Listener {
    private final Work work;
    private final Map<String, Long> values = new HashMap<>();
    private long node;
    private long seen;
    private long events;
    private long moves;
    private boolean isFinished;

    Watched(Work work) {
        this.work = work;
        WatchOption all = WatchOption.builder().isPrefix(true).withRevision(1).build();
        work.client.getWatchClient().watch(Work.bytes(Counters.PREFIX), all, this);
    }

    /** Waits for all changes that there are: nobody makes more. */
    synchronized Map<String, Long> finish() throws Exception {
        GetOption all = GetOption.builder().isPrefix(true).build();
        long last = work.until("the last change", new AtomicLong(),
                        () -> work.client.getKVClient().get(Work.bytes(Counters.PREFIX), all)).getKvs().stream()
                .mapToLong(KeyValue::getModRevision).max().orElse(0);
        long deadline = System.nanoTime() + Work.STEP_LIMIT.toNanos();
        while (seen < last) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                throw new TimeoutException("the watch did not reach the revision " + last + ", but " + seen);
            }
            wait(left);
        }
        isFinished = true;
        return Map.of("events", events, "moves", moves);
    }

    @Override
    public synchronized void onNext(WatchResponse response) {
        long now = response.getHeader().getMemberId();
        if (node != 0 && node != now) {
            moves++;
        }
        node = now;
        for (WatchEvent event : response.getEvents()) {
            follow(event.getKeyValue());
        }
        Work.step("watch", Long.toUnsignedString(node));
        notifyAll();
    }

    /** Each change adds one, and is told once, in the order of revisions. */
    private void follow(KeyValue change) {
        long next = values.merge(change.getKey().toString(), 1L, Long::sum);
        boolean isNext = change.getVersion() == next && change.getValue().toString().equals(Long.toString(next));
        if (change.getModRevision() < seen || !isNext) {
            Main.fail(new IllegalStateException(change.getKey() + "=" + change.getValue() + " of the revision "
                    + change.getModRevision() + " was told after the revision " + seen + ", where the next is " + next));
        }
        seen = change.getModRevision();
        events++;
    }

    @Override
    public void onError(Throwable failure) {
        if (String.valueOf(failure.getMessage()).contains("compacted")) {
            Main.fail(failure);
        }
    }

    @Override
    public synchronized void onCompleted() {
        if (!isFinished) {
            Main.fail(new IllegalStateException("the watch has ended"));
        }
    }
}
