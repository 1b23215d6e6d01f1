// nats publishes records to a JetStream stream of three replicas on files: `nats STREAM NAME=URL …`, the servers.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"dledger.dev/bench/drivers/internal/load"
)

const (
	maxPending   = 1 << 16
	leaderWithin = 10 * time.Second
	pollInterval = 20 * time.Millisecond
)

func main() {
	stream := os.Args[1]
	urls := make(map[string]string)
	var asked string // any of them
	for _, server := range os.Args[2:] {
		name, url, _ := strings.Cut(server, "=")
		urls[name], asked = url, url
	}
	connection, err := connect(asked)
	if err != nil {
		log.Fatal(err)
	}
	config := nats.StreamConfig{Name: stream, Subjects: []string{stream}, Replicas: 3, Storage: nats.FileStorage}
	if _, err = connection.jetStream.AddStream(&config); err != nil {
		log.Fatal(err)
	}
	load.Serve(func(batch, size int) (load.Call, error) {
		if batch != 1 {
			return nil, errors.New("a publish has one record")
		}
		if connection, err = connection.atLeader(stream, urls); err != nil {
			return nil, err
		}
		jetStream, record := connection.jetStream, load.Random(size)
		return func() error {
			future, err := jetStream.PublishAsync(stream, record)
			if err != nil {
				return err
			}
			select {
			case <-future.Ok():
				return nil
			case err := <-future.Err():
				return err
			}
		}, nil
	})
}

type connected struct {
	*nats.Conn
	jetStream nats.JetStreamContext
}

func connect(url string) (connected, error) {
	// Reconnecting would bring it to any server.
	connection, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return connected{}, err
	}
	jetStream, err := connection.JetStream(nats.PublishAsyncMaxPending(maxPending))
	return connected{connection, jetStream}, err
}

// atLeader is a connection to the server that leads the stream now: through any other, each record takes one hop more.
func (c connected) atLeader(stream string, urls map[string]string) (connected, error) {
	var info *nats.StreamInfo
	var err error
	for end := time.Now().Add(leaderWithin); time.Now().Before(end); time.Sleep(pollInterval) {
		info, err = c.jetStream.StreamInfo(stream)
		if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
			continue
		}
		leader := info.Cluster.Leader
		if leader == c.ConnectedServerName() {
			return c, nil
		}
		c.Close()
		if c, err = connect(urls[leader]); err != nil {
			return c, fmt.Errorf("%s leads: %w", leader, err)
		}
		log.Printf("%s leads, connected to %s", leader, c.ConnectedServerName())
	}
	return c, fmt.Errorf("nobody led %s within %s: %v", stream, leaderWithin, err)
}
