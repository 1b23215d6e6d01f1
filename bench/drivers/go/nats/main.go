// nats publishes records to a JetStream stream of three replicas on files: `nats URL STREAM`.
package main

import (
	"crypto/rand"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"dledger.dev/bench/drivers/internal/load"
)

const maxPending = 1 << 16

func main() {
	connection, err := nats.Connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	stream := os.Args[2]
	context, err := connection.JetStream(nats.PublishAsyncMaxPending(maxPending))
	if err != nil {
		log.Fatal(err)
	}
	config := nats.StreamConfig{Name: stream, Subjects: []string{stream}, Replicas: 3, Storage: nats.FileStorage}
	if _, err = context.AddStream(&config); err != nil {
		log.Fatal(err)
	}
	payloads := make(map[int][]byte)
	for _, size := range []int{128, 1024} {
		payloads[size] = make([]byte, size)
		rand.Read(payloads[size])
	}
	load.Serve(func(_, size int) error {
		future, err := context.PublishAsync(stream, payloads[size])
		if err != nil {
			return err
		}
		select {
		case <-future.Ok():
			return nil
		case err := <-future.Err():
			return err
		}
	})
}
