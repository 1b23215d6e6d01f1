// The node's API through grpc-java: `java ApiCheck HOST:PORT` writes a line for each check.

import com.google.protobuf.ByteString;
import com.google.rpc.ErrorInfo;
import dledger.v1.LogServiceGrpc;
import dledger.v1.AppendRequest;
import dledger.v1.AppendResponse;
import dledger.v1.Batch;
import dledger.v1.GetMetadataRequest;
import dledger.v1.GetRequest;
import dledger.v1.ReadRequest;
import dledger.v1.ReadResponse;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

public final class ApiCheck {
  private static final int LARGE_BYTES = 1 << 20;
  private static final int TIMEOUT_S = 10;

  private interface Check {
    void run() throws Exception;
  }

  private final LogServiceGrpc.LogServiceBlockingStub stub;

  private ApiCheck(LogServiceGrpc.LogServiceBlockingStub stub) {
    this.stub = stub;
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    ApiCheck checks = new ApiCheck(LogServiceGrpc.newBlockingStub(channel));
    say("append", checks::append);
    say("get", checks::get);
    say("read_follow", checks::readFollow);
    say("large", checks::large);
    say("metadata", checks::metadata);
    say("deadline", checks::deadline);
    say("cancel", checks::cancel);
    say("refusal", checks::refusal);
    channel.shutdownNow().awaitTermination(TIMEOUT_S, TimeUnit.SECONDS);
  }

  private static void say(String name, Check check) {
    try {
      check.run();
      System.out.println("ok " + name);
    } catch (Exception failure) {
      System.out.println("failed " + name + ": " + failure);
    }
  }

  private static void must(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException(what);
    }
  }

  private LogServiceGrpc.LogServiceBlockingStub timed() {
    return stub.withDeadlineAfter(TIMEOUT_S, TimeUnit.SECONDS);
  }

  private AppendResponse appended(String... records) {
    AppendRequest.Builder request = AppendRequest.newBuilder();
    for (String record : records) {
      request.addRecords(ByteString.copyFromUtf8(record));
    }
    return timed().append(request.build());
  }

  private void append() {
    must(appended("a", "b", "c").getCount() == 3, "not three records were appended");
  }

  private void get() {
    long index = appended("java").getBaseIndex();
    ByteString value = timed().get(GetRequest.newBuilder().setIndex(index).build()).getEntry().getValue();
    must(value.toStringUtf8().equals("java"), "another record was read: " + value);
  }

  private void readFollow() {
    long first = appended("one").getBaseIndex();
    Context.CancellableContext context = Context.current().withCancellation();
    Context before = context.attach();
    try {
      ReadRequest request = ReadRequest.newBuilder().setStartIndex(first).setFollow(true).build();
      Iterator<ReadResponse> answers = timed().read(request);
      must(last(answers.next()).endsWith("one"), "the first record is another");
      appended("two");
      must(last(answers.next()).endsWith("two"), "the followed record is another");
    } finally {
      context.detach(before);
      context.cancel(null);
    }
  }

  private static String last(ReadResponse answer) {
    Batch batch = answer.getBatches(answer.getBatchesCount() - 1);
    return batch.getBody().toStringUtf8();
  }

  private void large() {
    ByteString record = ByteString.copyFrom(new byte[LARGE_BYTES]);
    long index = timed().append(AppendRequest.newBuilder().addRecords(record).build()).getBaseIndex();
    ByteString value = timed().get(GetRequest.newBuilder().setIndex(index).build()).getEntry().getValue();
    must(value.equals(record), "another record was read");
  }

  private void metadata() {
    Metadata metadata = new Metadata();
    metadata.put(Metadata.Key.of("x-text", Metadata.ASCII_STRING_MARSHALLER), "some text");
    metadata.put(Metadata.Key.of("x-raw-bin", Metadata.BINARY_BYTE_MARSHALLER), new byte[] {0, 1, (byte) 255});
    LogServiceGrpc.LogServiceBlockingStub with =
        timed().withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata));
    String leader = with.getMetadata(GetMetadataRequest.getDefaultInstance()).getLeaderId();
    must(!leader.isEmpty(), "no leader is named");
  }

  private void deadline() {
    long end = appended("end").getBaseIndex() + 1;
    ReadRequest request = ReadRequest.newBuilder().setStartIndex(end).setFollow(true).build();
    try {
      stub.withDeadlineAfter(300, TimeUnit.MILLISECONDS).read(request).hasNext();
      throw new IllegalStateException("it did not end");
    } catch (StatusRuntimeException failure) {
      must(failure.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED, "it ended with " + failure);
    }
  }

  private void cancel() throws Exception {
    long end = appended("end").getBaseIndex() + 1;
    ReadRequest request = ReadRequest.newBuilder().setStartIndex(end).setFollow(true).build();
    Context.CancellableContext context = Context.current().withCancellation();
    var executor = Executors.newSingleThreadScheduledExecutor();
    try {
      executor.schedule(() -> context.cancel(null), 300, TimeUnit.MILLISECONDS);
      context.call(() -> timed().read(request).hasNext());
      throw new IllegalStateException("it did not end");
    } catch (StatusRuntimeException failure) {
      must(failure.getStatus().getCode() == Status.Code.CANCELLED, "it ended with " + failure);
    } finally {
      executor.shutdownNow();
    }
  }

  private void refusal() throws Exception {
    try {
      timed().get(GetRequest.newBuilder().setIndex(1_000_000_000L).build());
      throw new IllegalStateException("it was answered");
    } catch (StatusRuntimeException failure) {
      must(failure.getStatus().getCode() == Status.Code.OUT_OF_RANGE, "it ended with " + failure);
      ErrorInfo info = StatusProto.fromThrowable(failure).getDetails(0).unpack(ErrorInfo.class);
      must(info.getDomain().equals("dledger"), "the domain is " + info.getDomain());
      must(info.getReason().equals("INDEX_OUT_OF_RANGE"), "the reason is " + info.getReason());
      must(info.getMetadataMap().keySet().containsAll(Set.of("first_index", "commit_index")), "there is no range");
    }
  }
}
