// The node's API through grpc-go: `check HOST:PORT` writes a line for each check.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"conformance/pb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const timeout = 10 * time.Second

type api struct{ pb.LogServiceClient }

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println("failed to connect:", err)
		os.Exit(1)
	}
	defer connection.Close()
	node := api{pb.NewLogServiceClient(connection)}
	for _, check := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"append", node.checkAppend},
		{"get", node.checkGet},
		{"read_follow", node.checkReadFollow},
		{"large", node.checkLarge},
		{"metadata", node.checkMetadata},
		{"deadline", node.checkDeadline},
		{"cancel", node.checkCancel},
		{"refusal", node.checkRefusal},
	} {
		ctx, end := context.WithTimeout(context.Background(), timeout)
		if err := check.run(ctx); err != nil {
			fmt.Printf("failed %s: %v\n", check.name, err)
		} else {
			fmt.Println("ok", check.name)
		}
		end()
	}
}

func (node api) append(ctx context.Context, records ...string) (*pb.AppendResponse, error) {
	request := &pb.AppendRequest{}
	for _, each := range records {
		request.Records = append(request.Records, []byte(each))
	}
	return node.Append(ctx, request)
}

func (node api) checkAppend(ctx context.Context) error {
	answer, err := node.append(ctx, "a", "b", "c")
	if err == nil && answer.Count != 3 {
		err = fmt.Errorf("%d records were appended, not 3", answer.Count)
	}
	return err
}

func (node api) checkSame(ctx context.Context, record string) error {
	appended, err := node.append(ctx, record)
	if err != nil {
		return err
	}
	answer, err := node.Get(ctx, &pb.GetRequest{Index: appended.BaseIndex})
	if err == nil && string(answer.Entry.Value) != record {
		err = errors.New("another record was read")
	}
	return err
}

func (node api) checkGet(ctx context.Context) error { return node.checkSame(ctx, "go") }

func (node api) checkLarge(ctx context.Context) error { return node.checkSame(ctx, string(make([]byte, 1<<20))) }

func (node api) checkReadFollow(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	appended, err := node.append(ctx, "one")
	if err != nil {
		return err
	}
	stream, err := node.Read(ctx, &pb.ReadRequest{StartIndex: appended.BaseIndex, Follow: true})
	if err != nil {
		return err
	}
	if err := expect(stream, "one"); err != nil {
		return err
	}
	if _, err := node.append(ctx, "two"); err != nil {
		return err
	}
	return expect(stream, "two")
}

func expect(stream grpc.ServerStreamingClient[pb.ReadResponse], record string) error {
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	if body := answer.Batches[len(answer.Batches)-1].Body; !bytes.HasSuffix(body, []byte(record)) {
		return fmt.Errorf("the last record is not %q: %q", record, body)
	}
	return nil
}

func (node api) checkMetadata(ctx context.Context) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "x-text", "some text", "x-raw-bin", "\x00\x01\xff")
	answer, err := node.GetMetadata(ctx, &pb.GetMetadataRequest{})
	if err == nil && answer.LeaderId == "" {
		err = errors.New("no leader is named")
	}
	return err
}

// followed is how a read ends that follows the log from its end.
func (node api) followed(ctx, streamCtx context.Context) error {
	appended, err := node.append(ctx, "end")
	if err != nil {
		return err
	}
	stream, err := node.Read(streamCtx, &pb.ReadRequest{StartIndex: appended.BaseIndex + 1, Follow: true})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func (node api) checkDeadline(ctx context.Context) error {
	short, end := context.WithTimeout(ctx, 300*time.Millisecond)
	defer end()
	return isCode(node.followed(ctx, short), codes.DeadlineExceeded)
}

func (node api) checkCancel(ctx context.Context) error {
	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(300*time.Millisecond, cancel)
	return isCode(node.followed(ctx, cancelled), codes.Canceled)
}

func isCode(err error, code codes.Code) error {
	if status.Code(err) != code {
		return fmt.Errorf("it ended with %v, not %v", err, code)
	}
	return nil
}

func (node api) checkRefusal(ctx context.Context) error {
	_, err := node.Get(ctx, &pb.GetRequest{Index: 1_000_000_000})
	if wrong := isCode(err, codes.OutOfRange); wrong != nil {
		return wrong
	}
	for _, detail := range status.Convert(err).Details() {
		info, is := detail.(*errdetails.ErrorInfo)
		if is && info.Domain == "dledger" && info.Reason == "INDEX_OUT_OF_RANGE" && info.Metadata["commit_index"] != "" {
			return nil
		}
	}
	return fmt.Errorf("there is no ErrorInfo in %v", err)
}
