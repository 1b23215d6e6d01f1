// Appends records exactly once and reads them back, over plain gRPC: go run . ENDPOINTS COUNT NAME
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dledgerv1 "example/dledger/v1"
)

const (
	attempt  = 5 * time.Second
	patience = 30 * time.Second
)

// passes says whether the same request may succeed in a moment, at this node or another.
func passes(err error, trailer metadata.MD) bool {
	if len(trailer.Get("dledger-leader-id")) > 0 {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted, codes.Internal:
		return true
	}
	return errors.Is(err, io.EOF) // a stream that follows has no end
}

// cluster asks any node: each takes any call. After a failure it asks the next one.
type cluster struct {
	nodes []dledgerv1.LogServiceClient
	at    int
}

func connect(endpoints string) (*cluster, error) {
	c := &cluster{}
	for _, endpoint := range strings.Split(endpoints, ",") {
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, dledgerv1.NewLogServiceClient(conn))
	}
	return c, nil
}

func (c *cluster) node() dledgerv1.LogServiceClient { return c.nodes[c.at] }

// again returns what will not pass, or has lasted for too long.
func (c *cluster) again(err error, trailer metadata.MD, deadline time.Time) error {
	if !passes(err, trailer) || time.Now().After(deadline) {
		return err
	}
	c.at = (c.at + 1) % len(c.nodes)
	time.Sleep(100 * time.Millisecond)
	return nil
}

// call repeats a request that may be sent twice.
func (c *cluster) call(ask func(context.Context, ...grpc.CallOption) error) error {
	deadline := time.Now().Add(patience)
	for {
		var trailer metadata.MD
		ctx, cancel := context.WithTimeout(context.Background(), attempt)
		err := ask(ctx, grpc.Trailer(&trailer))
		cancel()
		if err == nil {
			return nil
		}
		if err := c.again(err, trailer, deadline); err != nil {
			return err
		}
	}
}

// producer numbers its records: one that is sent twice under one sequence number is appended once.
type producer struct {
	cluster  *cluster
	id       uint64
	sequence uint64
}

func newProducer(c *cluster) (*producer, error) {
	p := &producer{cluster: c}
	return p, c.call(func(ctx context.Context, opts ...grpc.CallOption) error {
		answer, err := c.node().InitProducer(ctx, &dledgerv1.InitProducerRequest{}, opts...)
		p.id = answer.GetProducerId()
		return err
	})
}

// append returns the record's index, once it is on a majority's disks.
func (p *producer) append(record []byte) (index int64, err error) {
	request := &dledgerv1.AppendRequest{Records: [][]byte{record}, ProducerId: p.id, BaseSequence: p.sequence}
	err = p.cluster.call(func(ctx context.Context, opts ...grpc.CallOption) error {
		answer, err := p.cluster.node().Append(ctx, request, opts...)
		index = answer.GetBaseIndex()
		return err
	})
	p.sequence++
	return index, err
}

// follow hands over every record from index on, and every new one, until `take` returns false. It goes on at another
// node where a stream broke.
func (c *cluster) follow(index int64, take func(*dledgerv1.Entry) bool) error {
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithCancel(context.Background())
		request := &dledgerv1.ReadRecordsRequest{StartIndex: index, Follow: true}
		stream, err := c.node().ReadRecords(ctx, request)
		for err == nil {
			var answer *dledgerv1.ReadRecordsResponse
			if answer, err = stream.Recv(); err != nil {
				break
			}
			if !take(answer.Entry) {
				cancel()
				return nil
			}
			index = answer.Entry.Index + 1
			deadline = time.Now().Add(patience)
		}
		var trailer metadata.MD
		if stream != nil {
			trailer = stream.Trailer()
		}
		cancel()
		if err := c.again(err, trailer, deadline); err != nil {
			return err
		}
	}
}

func run(endpoints string, count int, name string) error {
	c, err := connect(endpoints)
	if err != nil {
		return err
	}
	p, err := newProducer(c)
	if err != nil {
		return err
	}
	indexes := make([]int64, count)
	for number := range indexes {
		if indexes[number], err = p.append([]byte(fmt.Sprintf("%s %d", name, number))); err != nil {
			return err
		}
	}
	return c.follow(indexes[0], func(entry *dledgerv1.Entry) bool {
		if strings.HasPrefix(string(entry.Value), name+" ") {
			fmt.Println(entry.Index, string(entry.Value))
		}
		return entry.Index != indexes[count-1]
	})
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(os.Args[1], count, os.Args[3])
	}
	if err != nil {
		log.Fatal(err)
	}
}
