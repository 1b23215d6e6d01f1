// Works with etcd's own Go client until its standard input ends, and then says what happened: ./foreign ENDPOINTS
//
// Each part prints a line "step PART WORD" whenever it has done a piece of its work. The last line is a JSON object.
// A part that finds something wrong ends the program with the exit code 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// A step that takes longer is stuck.
	stepLimit = 20 * time.Second
	// Nobody tells when a node leads again.
	retryAfter = 20 * time.Millisecond
	// Between two steps: the nodes have the same processors, and the one that comes back needs some of them.
	pause = 50 * time.Millisecond
	// Of the sessions: no kill of a leader may take longer.
	sessionTTLSeconds = 10
)

// What a part has to say in the end.
type report map[string]int64

type part struct {
	name string
	run  func(*program) (report, error)
}

type program struct {
	client *clientv3.Client
	// stop is closed when no part shall begin another step.
	stop     chan struct{}
	printing sync.Mutex
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: foreign ENDPOINTS")
		os.Exit(2)
	}
	if err := run(strings.Split(os.Args[1], ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(endpoints []string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	p := &program{client: client, stop: make(chan struct{})}
	parts := []part{{"counters", count}, {"mutex", lock}, {"election", elect}, {"lease", keepAlive}}
	watching := watchCounters(p)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(p.stop)
	}()
	reports := map[string]report{}
	failed := make(chan error, len(parts)+1)
	done := make(chan func(), len(parts))
	for _, each := range parts {
		go func() {
			told, err := each.run(p)
			if err != nil {
				failed <- fmt.Errorf("%s: %w", each.name, err)
				return
			}
			done <- func() { reports[each.name] = told }
		}()
	}
	go func() {
		if err := <-watching.failed; err != nil {
			failed <- fmt.Errorf("watch: %w", err)
		}
	}()
	for range parts {
		select {
		case err := <-failed:
			return err
		case note := <-done:
			note()
		}
	}
	if reports["watch"], err = watching.finish(failed); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(reports)
}

func (p *program) step(part string, word string) {
	p.printing.Lock()
	defer p.printing.Unlock()
	fmt.Println("step", part, word)
}

// goesOn is false when no step shall begin any more.
func (p *program) goesOn() bool {
	select {
	case <-p.stop:
		return false
	case <-time.After(pause):
		return true
	}
}

// until calls work until the cluster has said yes or no, and says how often it had no answer: each time the work may
// have been done all the same.
func (p *program) until(what string, work func(context.Context) error) (doubts int64, err error) {
	ctx, cancel := context.WithTimeout(p.client.Ctx(), stepLimit)
	defer cancel()
	for {
		if err = work(ctx); err == nil {
			return doubts, nil
		}
		if !isTransient(err) {
			return doubts, fmt.Errorf("%s, after %d doubts: %w", what, doubts, err)
		}
		doubts++
		select {
		case <-ctx.Done():
			return doubts, fmt.Errorf("%s did not succeed within %s: %w", what, stepLimit, err)
		case <-time.After(retryAfter):
		}
	}
}

// A node is gone, or there is no leader: etcd's client has its own errors of both, with the same code.
func isTransient(err error) bool {
	var coded interface{ Code() codes.Code }
	if errors.As(err, &coded) {
		return coded.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// runAll runs so many of the same, and adds their reports up.
func runAll(count int, worker func(number int) (report, error)) (report, error) {
	type outcome struct {
		told report
		err  error
	}
	outcomes := make(chan outcome, count)
	for number := range count {
		go func() {
			told, err := worker(number)
			outcomes <- outcome{told, err}
		}()
	}
	sum := report{}
	for range count {
		each := <-outcomes
		if each.err != nil {
			return nil, each.err
		}
		for name, value := range each.told {
			sum[name] += value
		}
	}
	return sum, nil
}
