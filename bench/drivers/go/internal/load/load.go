// Package load is the closed loop of the load generators that are written in Go; bench/driver.py says how they are
// spoken to.
package load

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// CallOf makes, of (batch, size in bytes), one call that appends so much and returns when it is acknowledged.
type CallOf func(batch, size int) (Call, error)

type Call func() error

type measured struct {
	Event     string  `json:"event"`
	Records   int     `json:"records"`
	Errors    int     `json:"errors"`
	DurationS float64 `json:"duration_s"`
	P50Ms     float64 `json:"p50_ms"`
	P99Ms     float64 `json:"p99_ms"`
}

// Serve does what each line of stdin asks, until stdin ends.
func Serve(callOf CallOf) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var inflight, batch, size, warmupMs, durationMs int
		if _, err := fmt.Sscan(lines.Text(), &inflight, &batch, &size, &warmupMs, &durationMs); err != nil {
			refuse(lines.Text(), err)
		}
		call, err := callOf(batch, size)
		if err != nil {
			refuse(lines.Text(), err)
		}
		keepGoing(call, inflight, time.Duration(warmupMs)*time.Millisecond)
		say(map[string]string{"event": "measuring"})
		began := time.Now()
		latencies, errors := keepGoing(call, inflight, time.Duration(durationMs)*time.Millisecond)
		duration := time.Since(began)
		slices.Sort(latencies)
		say(measured{"measured", len(latencies) * batch, errors, duration.Seconds(), at(latencies, 0.5), at(latencies, 0.99)})
	}
}

// Random makes a record.
func Random(size int) []byte {
	record := make([]byte, size)
	rand.Read(record)
	return record
}

func refuse(line string, err error) {
	fmt.Fprintf(os.Stderr, "%q cannot be done: %v\n", line, err)
	os.Exit(2)
}

// keepGoing keeps `inflight` calls going; it returns the latencies of those that succeeded, and how many failed.
func keepGoing(call Call, inflight int, duration time.Duration) ([]time.Duration, int) {
	var lock sync.Mutex
	var all []time.Duration
	var failed int
	var workers sync.WaitGroup
	end := time.Now().Add(duration)
	for range inflight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			var mine []time.Duration
			errors := 0
			for now := time.Now(); now.Before(end); {
				began := now
				err := call()
				now = time.Now()
				if err != nil {
					errors++
					fmt.Fprintln(os.Stderr, err)
				} else {
					mine = append(mine, now.Sub(began))
				}
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, mine...)
			failed += errors
		}()
	}
	workers.Wait()
	return all, failed
}

func at(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(share*float64(len(sorted)-1))].Nanoseconds()) / 1e6
}

func say(event any) {
	if err := json.NewEncoder(os.Stdout).Encode(event); err != nil {
		os.Exit(1)
	}
}
