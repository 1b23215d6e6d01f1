// etcd puts records through etcd's own Go client: `etcd ENDPOINT CONNECTIONS`. A batch is one transaction of puts.
package main

import (
	"context"
	"crypto/rand"
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
	values := make(map[int]string)
	var calls atomic.Uint64
	valueOf := func(size int) string {
		bytes := make([]byte, size)
		rand.Read(bytes)
		return string(bytes)
	}
	for _, size := range []int{128, 1024} {
		values[size] = valueOf(size)
	}
	load.Serve(func(batch, size int) error {
		number := calls.Add(1)
		client := clients[number%uint64(connections)]
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		if batch == 1 {
			_, err := client.Put(ctx, fmt.Sprintf("%016x", number), values[size])
			return err
		}
		puts := make([]clientv3.Op, batch)
		for i := range puts {
			puts[i] = clientv3.OpPut(fmt.Sprintf("%016x%04x", number, i), values[size])
		}
		_, err := client.Txn(ctx).Then(puts...).Commit()
		return err
	})
}
