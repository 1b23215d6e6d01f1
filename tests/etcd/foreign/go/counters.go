package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	counterPrefix = "counters/"
	counters      = 3
	workers       = 4
)

// count has workers that add one to two counters in one transaction. A worker's own key tells it whether a transaction
// without an answer was done.
func count(p *program) (report, error) {
	told, err := runAll(workers, func(number int) (report, error) { return countAs(p, fmt.Sprintf("counted/%d", number)) })
	if err != nil {
		return nil, err
	}
	return told, checkSum(p, told["counted"])
}

func countAs(p *program, own string) (report, error) {
	told := report{"counted": 0, "doubts": 0}
	for p.goesOn() {
		mine := strconv.FormatInt(told["counted"]+1, 10)
		one := rand.IntN(counters)
		other := (one + 1 + rand.IntN(counters-1)) % counters
		add := func(stm concurrency.STM) error {
			if stm.Get(own) == mine {
				return nil
			}
			for _, counter := range []int{one, other} {
				if err := addOne(stm, counterPrefix+strconv.Itoa(counter)); err != nil {
					return err
				}
			}
			stm.Put(own, mine)
			return nil
		}
		doubts, err := p.until("a transaction", func(ctx context.Context) error {
			_, err := concurrency.NewSTM(p.client, add,
				concurrency.WithAbortContext(ctx), concurrency.WithIsolation(concurrency.SerializableSnapshot))
			return err
		})
		if err != nil {
			return nil, err
		}
		told["doubts"] += doubts
		told["counted"]++
		p.step("counters", mine)
	}
	return told, nil
}

func addOne(stm concurrency.STM, key string) error {
	value := 0
	if text := stm.Get(key); text != "" {
		var err error
		if value, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	stm.Put(key, strconv.Itoa(value+1))
	return nil
}

func checkSum(p *program, counted int64) error {
	sum := int64(0)
	_, err := p.until("the sum", func(ctx context.Context) error {
		found, err := p.client.Get(ctx, counterPrefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		sum = 0
		for _, each := range found.Kvs {
			value, err := strconv.ParseInt(string(each.Value), 10, 64)
			if err != nil {
				return err
			}
			if value != each.Version {
				return fmt.Errorf("%s is %d after %d changes", each.Key, value, each.Version)
			}
			sum += value
		}
		return nil
	})
	if err == nil && sum != 2*counted {
		err = fmt.Errorf("the counters' sum is %d; %d transactions added two each", sum, counted)
	}
	return err
}
