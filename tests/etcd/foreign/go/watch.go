package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// One watch of all counters, which the client resumes at another node when its own is gone.
type watching struct {
	program *program
	cancel  context.CancelFunc
	failed  chan error
	// last has a place for the revision that the watch must still reach.
	last chan int64
	told chan report
}

func watchCounters(p *program) *watching {
	ctx, cancel := context.WithCancel(p.client.Ctx())
	w := &watching{p, cancel, make(chan error, 1), make(chan int64, 1), make(chan report, 1)}
	go func() {
		told, err := w.run(p.client.Watch(ctx, counterPrefix, clientv3.WithPrefix(), clientv3.WithRev(1)))
		if err != nil {
			w.failed <- err
			return
		}
		w.told <- told
	}()
	return w
}

// finish waits for all changes that there are: nobody makes more.
func (w *watching) finish(failed <-chan error) (report, error) {
	defer w.cancel()
	last := int64(0)
	if _, err := w.program.until("the last change", func(ctx context.Context) error {
		found, err := w.program.client.Get(ctx, counterPrefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, each := range found.Kvs {
			last = max(last, each.ModRevision)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	w.last <- last
	select {
	case told := <-w.told:
		return told, nil
	case err := <-failed:
		return nil, err
	case <-time.After(stepLimit):
		return nil, fmt.Errorf("watch: it did not reach the revision %d within %s", last, stepLimit)
	}
}

func (w *watching) run(responses clientv3.WatchChan) (report, error) {
	told := report{"events": 0, "moves": 0}
	values := map[string]int64{}
	node, seen, last := uint64(0), int64(0), int64(-1)
	for last < 0 || seen < last {
		select {
		case last = <-w.last:
		case response, isOpen := <-responses:
			if !isOpen {
				return nil, fmt.Errorf("it ended after the revision %d", seen)
			}
			if err := response.Err(); err != nil {
				return nil, err
			}
			if node != 0 && node != response.Header.MemberId {
				told["moves"]++
			}
			node = response.Header.MemberId
			for _, event := range response.Events {
				if err := follows(event, values, seen); err != nil {
					return nil, err
				}
				values[string(event.Kv.Key)]++
				seen = event.Kv.ModRevision
				told["events"]++
			}
			w.program.step("watch", strconv.FormatUint(node, 10))
		}
	}
	return told, nil
}

// follows: each change adds one, and is told once, in the order of revisions.
func follows(event *clientv3.Event, values map[string]int64, seen int64) error {
	next := values[string(event.Kv.Key)] + 1
	if event.Kv.ModRevision < seen || event.Kv.Version != next || string(event.Kv.Value) != strconv.FormatInt(next, 10) {
		return fmt.Errorf("%v was told after the revision %d, where the next value is %d", event.Kv, seen, next)
	}
	return nil
}
