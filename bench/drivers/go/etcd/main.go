// etcd puts records through etcd's own Go client: `etcd ENDPOINT CONNECTIONS`. A batch is one transaction of puts.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dledger.dev/bench/drivers/internal/load"
)

const callTimeout = 10 * time.Second

func main() {
	connections, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	clients := make([]*clientv3.Client, connections)
	for i := range clients {
		if clients[i], err = clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: callTimeout}); err != nil {
			log.Fatal(err)
		}
	}
	var calls atomic.Uint64
	load.Serve(func(batch, size int) (load.Call, error) {
		value := string(load.Random(size))
		return func() error {
			number := calls.Add(1)
			client := clients[number%uint64(connections)]
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			if batch == 1 {
				_, err := client.Put(ctx, fmt.Sprintf("%016x", number), value)
				return err
			}
			puts := make([]clientv3.Op, batch)
			for i := range puts {
				puts[i] = clientv3.OpPut(fmt.Sprintf("%016x%04x", number, i), value)
			}
			_, err := client.Txn(ctx).Then(puts...).Commit()
			return err
		}, nil
	})
}
