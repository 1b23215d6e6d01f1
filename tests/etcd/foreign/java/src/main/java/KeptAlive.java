import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.support.CloseableClient;
import io.grpc.stub.StreamObserver;
import java.util.function.Consumer;

/**
 * A lease that jetcd keeps alive. It tells of a lost connection as an error, and goes on; a lease that it gave up is
 * completed.
 */
final class KeptAlive implements StreamObserver<LeaseKeepAliveResponse> {
    private final String what;
    private final Consumer<LeaseKeepAliveResponse> onAnswer;
    private final CloseableClient kept;
    private volatile boolean isClosed;

    KeptAlive(Work work, long lease, String what, Consumer<LeaseKeepAliveResponse> onAnswer) {
        this.what = what;
        this.onAnswer = onAnswer;
        kept = work.client.getLeaseClient().keepAlive(lease, this);
    }

    void close() {
        isClosed = true;
        kept.close();
    }

    @Override
    public void onNext(LeaseKeepAliveResponse answer) {
        onAnswer.accept(answer);
    }

    @Override
    public void onError(Throwable failure) {
        if (!isClosed && String.valueOf(failure.getMessage()).contains("lease not found")) {
            Main.fail(new IllegalStateException(what + ": the lease has ended", failure));
        }
    }

    @Override
    public void onCompleted() {
        if (!isClosed) {
            Main.fail(new IllegalStateException(what + ": the lease was not kept alive in time"));
        }
    }
}
