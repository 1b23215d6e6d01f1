package dev.dledger.bench;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * One server of DLedger on the loopback: {@code DLedgerNode ID PEERS DIRECTORY}. To the line "role" it answers whether
 * it leads; other lines are appended in process, the only place where DLedger has batches.
 */
public final class DLedgerNode {
    private static final int MAX_BATCH_BYTES = 64 * 1024;

    private DLedgerNode() {
    }

    public static void main(String[] arguments) throws Exception {
        var config = new DLedgerConfig().group("bench").selfId(arguments[0]).peers(arguments[1]).storeBaseDir(arguments[2]);
        // By default each entry is a message of its own to each follower; a batch waits for nothing that is not there yet.
        config.setEnableBatchAppend(true);
        config.setMaxBatchAppendSize(MAX_BATCH_BYTES);
        var network = new NettyServerConfig();
        network.setBindAddress("127.0.0.1");
        var server = new DLedgerServer(config, network);
        server.startup();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            if (line.equals("role")) {
                System.out.printf("{\"event\": \"role\", \"leads\": %b}%n", server.getMemberState().isLeader());
            } else {
                Load.measure((records, done) -> begin(server, records, done), line);
            }
        }
        System.exit(0);
    }

    private static void begin(DLedgerServer server, byte[][] records, Load.Done done) throws Exception {
        CompletableFuture<AppendEntryResponse> appended = server.appendAsLeader(Arrays.asList(records));
        appended.whenComplete((answer, failure) -> done.tell(failure != null ? failure : refusal(answer)));
    }

    static Throwable refusal(AppendEntryResponse answer) {
        boolean fine = answer.getCode() == DLedgerResponseCode.SUCCESS.getCode();
        return fine ? null : new IllegalStateException(DLedgerResponseCode.valueOf(answer.getCode()).toString());
    }
}
