package dev.dledger.bench;

import io.openmessaging.storage.dledger.client.DLedgerClient;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Appends through DLedger's own client: {@code DLedgerLoad PEERS}. The client blocks, so each append in flight has a
 * thread; they share a few clients, as each has one connection.
 */
public final class DLedgerLoad {
    private static final int CLIENTS = 4;

    private DLedgerLoad() {
    }

    public static void main(String[] arguments) throws Exception {
        var clients = new DLedgerClient[CLIENTS];
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = new DLedgerClient("bench", arguments[0]);
            clients[i].startup();
        }
        ExecutorService threads = Executors.newCachedThreadPool();
        var next = new AtomicInteger();
        Load.serveSingles((record, done) -> threads.execute(() -> {
            var client = clients[Math.floorMod(next.getAndIncrement(), CLIENTS)];
            Throwable failure;
            try {
                failure = DLedgerNode.refusal(client.append(record));
            } catch (RuntimeException thrown) {
                failure = thrown;
            }
            done.tell(failure);
        }));
        System.exit(0);
    }
}
