import io.etcd.jetcd.Client;
import java.io.IOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/**
 * Works with jetcd until its standard input ends, and then says what happened: java Main ENDPOINTS
 *
 * <p>Each part prints a line "step PART WORD" whenever it has done a piece of its work. The last line is a JSON object. A
 * part that finds something wrong ends the program with the exit code 1.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String[] endpoints = Arrays.stream(arguments[0].split(",")).map(each -> "http://" + each).toArray(String[]::new);
        try (Client client = Client.builder().endpoints(endpoints).build()) {
            Work work = new Work(client);
            Map<String, CompletableFuture<Map<String, Long>>> parts = new LinkedHashMap<>();
            Watched watched = new Watched(work);
            parts.put("counters", begin(() -> new Counters(work).run()));
            parts.put("mutex", begin(() -> new Locks(work).run()));
            parts.put("election", begin(() -> new Elections(work).run()));
            parts.put("lease", begin(() -> new Leases(work).run()));
            new Thread(() -> awaitEnd(work)).start();
            Map<String, Map<String, Long>> told = new LinkedHashMap<>();
            parts.forEach((name, part) -> told.put(name, part.join()));
            told.put("watch", watched.finish());
            System.out.println(json(told));
        }
        System.exit(0); // jetcd has threads that do not end
    }

    /** In a thread of its own. What it throws ends the program. */
    static <T> CompletableFuture<T> begin(Callable<T> part) {
        CompletableFuture<T> future = new CompletableFuture<>();
        new Thread(() -> {
            try {
                future.complete(part.call());
            } catch (Throwable failure) {
                fail(failure);
            }
        }).start();
        return future;
    }

    static void fail(Throwable failure) {
        failure.printStackTrace();
        System.err.flush();
        Runtime.getRuntime().halt(1);
    }

    private static void awaitEnd(Work work) {
        try {
            System.in.readAllBytes();
        } catch (IOException failure) {
            fail(failure);
        }
        work.stop();
    }

    private static String json(Map<String, Map<String, Long>> told) {
        return told.entrySet().stream()
                .map(part -> quoted(part.getKey()) + ": " + part.getValue().entrySet().stream()
                        .map(each -> quoted(each.getKey()) + ": " + each.getValue())
                        .collect(Collectors.joining(", ", "{", "}")))
                .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String quoted(String text) {
        return '"' + text + '"';
    }
}
