package main

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	leaseTTLSeconds = 6
	leased          = "leased"
)

// keepAlive keeps one lease, with a key, through all kills.
func keepAlive(p *program) (report, error) {
	var lease *clientv3.LeaseGrantResponse
	created := int64(0)
	if _, err := p.until("a lease", func(ctx context.Context) (err error) {
		lease, err = p.client.Grant(ctx, leaseTTLSeconds)
		return err
	}); err != nil {
		return nil, err
	}
	if _, err := p.until("the lease's key", func(ctx context.Context) error {
		_, err := p.client.Put(ctx, leased, "1", clientv3.WithLease(lease.ID))
		return err
	}); err != nil {
		return nil, err
	}
	look := func(ctx context.Context) error {
		found, err := p.client.Get(ctx, leased)
		if err != nil {
			return err
		}
		if len(found.Kvs) == 0 {
			return fmt.Errorf("the key of the lease is gone")
		}
		if created != 0 && found.Kvs[0].CreateRevision != created {
			return fmt.Errorf("the key of the lease is another: %v", found.Kvs[0])
		}
		created = found.Kvs[0].CreateRevision
		return nil
	}
	told := report{"kept": 0}
	ctx, cancel := context.WithCancel(p.client.Ctx())
	defer cancel()
	answers, err := p.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-p.stop:
			return told, nil
		case answer, isOpen := <-answers:
			if !isOpen {
				return nil, fmt.Errorf("the lease was lost after %d answers", told["kept"])
			}
			if _, err := p.until("the leased key", look); err != nil {
				return nil, err
			}
			told["kept"]++
			p.step("lease", strconv.FormatInt(answer.TTL, 10))
		}
	}
}
