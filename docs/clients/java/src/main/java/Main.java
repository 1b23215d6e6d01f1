import com.google.protobuf.ByteString;
import dledger.v1.AppendRequest;
import dledger.v1.Entry;
import dledger.v1.InitProducerRequest;
import dledger.v1.LogServiceGrpc;
import dledger.v1.LogServiceGrpc.LogServiceBlockingStub;
import dledger.v1.ReadRecordsRequest;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Predicate;

/** Appends records exactly once and reads them back, over plain gRPC: Main ENDPOINTS COUNT NAME. */
public final class Main {
  private static final int ATTEMPT_SECONDS = 5;
  private static final Duration PATIENCE = Duration.ofSeconds(30);
  private static final Metadata.Key<String> LEADER_ID =
      Metadata.Key.of("dledger-leader-id", Metadata.ASCII_STRING_MARSHALLER);
  private static final Set<Status.Code> PASSING =
      Set.of(
          Status.Code.UNAVAILABLE,
          Status.Code.DEADLINE_EXCEEDED,
          Status.Code.ABORTED,
          Status.Code.RESOURCE_EXHAUSTED,
          Status.Code.INTERNAL);

  /** Whether the same request may succeed in a moment, at this node or another. */
  private static boolean passes(StatusRuntimeException failure) {
    Metadata trailers = failure.getTrailers();
    return (trailers != null && trailers.containsKey(LEADER_ID)) || PASSING.contains(failure.getStatus().getCode());
  }

  /** Any node takes any call. After a failure the next node is asked. */
  private static final class Cluster implements AutoCloseable {
    private final List<ManagedChannel> channels = new ArrayList<>();
    private int at = 0;

    Cluster(String endpoints) {
      for (String endpoint : endpoints.split(",")) {
        channels.add(ManagedChannelBuilder.forTarget(endpoint).usePlaintext().build());
      }
    }

    LogServiceBlockingStub node() {
      return LogServiceGrpc.newBlockingStub(channels.get(at));
    }

    /** Throws what will not pass, or has lasted for too long. */
    void again(StatusRuntimeException failure, Instant deadline) throws InterruptedException {
      if (!passes(failure) || Instant.now().isAfter(deadline)) {
        throw failure;
      }
      at = (at + 1) % channels.size();
      Thread.sleep(100);
    }

    /** The answer to a request that may be sent twice. */
    <T> T call(Function<LogServiceBlockingStub, T> ask) throws InterruptedException {
      Instant deadline = Instant.now().plus(PATIENCE);
      while (true) {
        try {
          return ask.apply(node().withDeadlineAfter(ATTEMPT_SECONDS, TimeUnit.SECONDS));
        } catch (StatusRuntimeException failure) {
          again(failure, deadline);
        }
      }
    }

    /**
     * Hands over every record from index on, and every new one, until take returns false. Goes on at another node
     * where a stream broke.
     */
    void follow(long index, Predicate<Entry> take) throws InterruptedException {
      Instant deadline = Instant.now().plus(PATIENCE);
      while (true) {
        try (Context.CancellableContext stream = Context.current().withCancellation()) {
          var request = ReadRecordsRequest.newBuilder().setStartIndex(index).setFollow(true).build();
          var before = stream.attach();
          try {
            var answers = node().readRecords(request);
            while (answers.hasNext()) {
              Entry entry = answers.next().getEntry();
              if (!take.test(entry)) {
                return;
              }
              index = entry.getIndex() + 1;
              deadline = Instant.now().plus(PATIENCE);
            }
          } finally {
            stream.detach(before);
          }
        } catch (StatusRuntimeException failure) {
          again(failure, deadline);
        }
      }
    }

    @Override
    public void close() {
      channels.forEach(ManagedChannel::shutdownNow);
    }
  }

  /** A record that is sent twice under one sequence number is appended once. */
  private static final class Producer {
    private final Cluster cluster;
    private final long id;
    private long sequence = 0;

    Producer(Cluster cluster) throws InterruptedException {
      this.cluster = cluster;
      InitProducerRequest request = InitProducerRequest.getDefaultInstance();
      id = cluster.call(node -> node.initProducer(request)).getProducerId();
    }

    /** The record's index, once it is on a majority's disks. */
    long append(String record) throws InterruptedException {
      AppendRequest request =
          AppendRequest.newBuilder()
              .addRecords(ByteString.copyFromUtf8(record))
              .setProducerId(id)
              .setBaseSequence(sequence)
              .build();
      long index = cluster.call(node -> node.append(request)).getBaseIndex();
      sequence++;
      return index;
    }
  }

  public static void main(String[] args) throws InterruptedException {
    String name = args[2];
    try (Cluster cluster = new Cluster(args[0])) {
      Producer producer = new Producer(cluster);
      List<Long> indexes = new ArrayList<>();
      for (int number = 0; number < Integer.parseInt(args[1]); number++) {
        indexes.add(producer.append(name + " " + number));
      }
      long last = indexes.get(indexes.size() - 1);
      cluster.follow(
          indexes.get(0),
          entry -> {
            if (entry.getValue().toStringUtf8().startsWith(name + " ")) {
              System.out.println(entry.getIndex() + " " + entry.getValue().toStringUtf8());
            }
            return entry.getIndex() != last;
          });
    }
  }
}
