package dev.dledger.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Random;
import java.util.Scanner;
import java.util.concurrent.Semaphore;

/**
 * The closed loop of the load generators that are written in Java; bench/driver.py says how they are spoken to.
 */
public final class Load {
    /** Begins an append and tells {@code done} of its end: null, or why it failed. */
    public interface Append {
        void begin(byte[][] records, Done done) throws Exception;
    }

    /** The same of a client that takes one record a call. */
    public interface AppendOne {
        void begin(byte[] record, Done done) throws Exception;
    }

    /** Told once of each append. */
    public interface Done {
        void tell(Throwable failure);
    }

    private static final int MOST_FAILURES_TOLD = 20;

    private final Append append;
    private long[] latenciesNs = new long[1 << 16];
    private int count;
    private int errors;

    private Load(Append append) {
        this.append = append;
    }

    /** Does what each line of stdin asks, until stdin ends. */
    public static void serve(Append append) throws IOException, InterruptedException {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            measure(append, line);
        }
    }

    /** Refuses batches: they would be counted, and not be sent. */
    public static void serveSingles(AppendOne append) throws IOException, InterruptedException {
        serve((records, done) -> {
            if (records.length != 1) {
                throw new IllegalArgumentException("one record a call, not " + records.length);
            }
            append.begin(records[0], done);
        });
    }

    /** Does what one line asks. */
    public static void measure(Append append, String line) throws InterruptedException {
        try (var words = new Scanner(line)) {
            int inflight = words.nextInt();
            byte[][] records = records(words.nextInt(), words.nextInt());
            long warmupMs = words.nextLong();
            long durationMs = words.nextLong();
            if (warmupMs > 0) {
                new Load(append).keepGoing(records, inflight, warmupMs);
            }
            System.out.println("{\"event\": \"measuring\"}");
            var load = new Load(append);
            long began = System.nanoTime();
            load.keepGoing(records, inflight, durationMs);
            load.say(records.length, (System.nanoTime() - began) / 1e9);
        }
    }

    private static byte[][] records(int batch, int size) {
        var record = new byte[size];
        new Random().nextBytes(record);
        var records = new byte[batch][];
        Arrays.fill(records, record);
        return records;
    }

    private void keepGoing(byte[][] records, int inflight, long durationMs) throws InterruptedException {
        var free = new Semaphore(inflight);
        long end = System.nanoTime() + durationMs * 1_000_000;
        while (System.nanoTime() < end) {
            free.acquire();
            long began = System.nanoTime();
            Done done = failure -> {
                note(System.nanoTime() - began, failure);
                free.release();
            };
            try {
                append.begin(records, done);
            } catch (Exception failure) {
                done.tell(failure);
            }
        }
        free.acquire(inflight);
    }

    private synchronized void note(long latencyNs, Throwable failure) {
        if (failure != null) {
            if (errors++ < MOST_FAILURES_TOLD) {
                System.err.println(failure);
            }
            return;
        }
        if (count == latenciesNs.length) {
            latenciesNs = Arrays.copyOf(latenciesNs, 2 * count);
        }
        latenciesNs[count++] = latencyNs;
    }

    private synchronized void say(int batch, double durationS) {
        Arrays.sort(latenciesNs, 0, count);
        System.out.printf(
            "{\"event\": \"measured\", \"records\": %d, \"errors\": %d, \"duration_s\": %f, \"p50_ms\": %f, \"p99_ms\": %f}%n",
            (long) count * batch, errors, durationS, at(0.5), at(0.99));
    }

    private double at(double share) {
        return count == 0 ? 0 : latenciesNs[(int) (share * (count - 1))] / 1e6;
    }
}
