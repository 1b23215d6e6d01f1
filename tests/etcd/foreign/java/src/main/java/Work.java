import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.common.exception.ErrorCode;
import io.etcd.jetcd.common.exception.EtcdException;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** What all parts share: the client, how long they go on, and how they try again. */
final class Work {
    /** A step that takes longer is stuck. */
    static final Duration STEP_LIMIT = Duration.ofSeconds(20);
    /** Nobody tells when a node leads again. */
    private static final long RETRY_AFTER_MS = 20;
    /** Between two steps: the nodes have the same processors, and the one that comes back needs some of them. */
    private static final long PAUSE_MS = 50;
    /** Of leases: no kill of a leader may take longer. */
    static final long TTL_SECONDS = 10;

    /** One of several that do the same. */
    interface Worker {
        Map<String, Long> run(int number) throws Exception;
    }

    final Client client;
    private final CountDownLatch stopped = new CountDownLatch(1);

    Work(Client client) {
        this.client = client;
    }

    void stop() {
        stopped.countDown();
    }

    /** False when no step shall begin any more. */
    boolean goesOn() throws InterruptedException {
        return !stopped.await(PAUSE_MS, TimeUnit.MILLISECONDS);
    }

    void awaitStop() throws InterruptedException {
        stopped.await();
    }

    static synchronized void step(String part, String word) {
        System.out.println("step " + part + " " + word);
        System.out.flush();
    }

    /**
     * Asks until the cluster has said yes or no. Each time there was no answer counts as a doubt: what was asked for may
     * have been done.
     */
    <T> T until(String what, AtomicLong doubts, Supplier<CompletableFuture<T>> call) throws Exception {
        Instant deadline = Instant.now().plus(STEP_LIMIT);
        while (true) {
            try {
                return call.get().get(STEP_LIMIT.toSeconds(), TimeUnit.SECONDS);
            } catch (ExecutionException failure) {
                if (!isTransient(failure) || Instant.now().isAfter(deadline)) {
                    throw new IllegalStateException(what + ", after " + doubts + " doubts", failure);
                }
                doubts.incrementAndGet();
                Thread.sleep(RETRY_AFTER_MS);
            }
        }
    }

    /** A node is gone, or there is no leader. */
    private static boolean isTransient(Throwable failure) {
        for (Throwable each = failure; each != null; each = each.getCause()) {
            if (each instanceof EtcdException known && known.getErrorCode() == ErrorCode.UNAVAILABLE) {
                return true;
            }
        }
        return Status.fromThrowable(failure).getCode() == Status.Code.UNAVAILABLE;
    }

    /** A lease that is kept alive: its end while it is needed ends the program. */
    long newLease(String what) throws Exception {
        long lease = until(what, new AtomicLong(), () -> client.getLeaseClient().grant(TTL_SECONDS)).getID();
        new KeptAlive(this, lease, what, answer -> {});
        return lease;
    }

    /** Runs so many of the same, and adds their reports up. */
    static Map<String, Long> runAll(int count, Worker worker) {
        List<CompletableFuture<Map<String, Long>>> all =
                IntStream.range(0, count).mapToObj(number -> Main.begin(() -> worker.run(number))).toList();
        return all.stream().flatMap(each -> each.join().entrySet().stream())
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue, Long::sum));
    }

    static void check(boolean isSo, String complaint) {
        if (!isSo) {
            throw new IllegalStateException(complaint);
        }
    }

    static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }
}
