package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	candidates = 3
	prefix     = "election"
	elected    = "elected"
)

type office struct {
	holders atomic.Int64
	// The create revision of the leader's key, which grows from leader to leader.
	term atomic.Int64
}

// elect has candidates that lead in turn, and one who observes them.
func elect(p *program) (report, error) {
	ctx, cancel := context.WithCancel(p.client.Ctx())
	defer cancel()
	type outcome struct {
		told report
		err  error
	}
	observed, led := make(chan outcome, 1), make(chan outcome, 1)
	go func() {
		told, err := observe(ctx, p)
		observed <- outcome{told, err}
	}()
	go func() {
		seat := &office{}
		told, err := runAll(candidates, func(number int) (report, error) { return campaignAs(p, seat, number) })
		led <- outcome{told, err}
	}()
	select {
	case early := <-observed:
		return nil, early.err
	case told := <-led:
		cancel()
		seen := <-observed
		if told.err != nil {
			return nil, told.err
		}
		for name, value := range seen.told {
			told.told[name] = value
		}
		return told.told, seen.err
	}
}

func campaignAs(p *program, seat *office, number int) (report, error) {
	session, err := newSession(p)
	if err != nil {
		return nil, err
	}
	told := report{"terms": 0, "doubts": 0}
	for p.goesOn() {
		election := concurrency.NewElection(session, prefix)
		me := fmt.Sprintf("%d/%d", number, told["terms"])
		for _, act := range []struct {
			what string
			work func(context.Context) error
		}{
			{"to campaign", func(ctx context.Context) error { return election.Campaign(ctx, me) }},
			{"to take the seat", func(ctx context.Context) error { return seat.take(ctx, p.client, election, me) }},
			{"to proclaim", func(ctx context.Context) error { return election.Proclaim(ctx, me+"/again") }},
			{"to resign", seat.resignation(session, election)},
		} {
			doubts, err := p.until(act.what, act.work)
			if err != nil {
				return nil, err
			}
			told["doubts"] += doubts
		}
		if err := alive(session); err != nil {
			return nil, err
		}
		told["terms"]++
		p.step("election", me)
	}
	return told, closeSession(p, session)
}

// take writes the leader down, by a transaction that only the owner of the leader's key can do.
func (seat *office) take(ctx context.Context, client *clientv3.Client, election *concurrency.Election, me string) error {
	answer, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())).
		Then(clientv3.OpPut(elected, me)).
		Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return fmt.Errorf("%s is elected, and its key %s is not of the revision %d", me, election.Key(), election.Rev())
	}
	if before := seat.term.Swap(election.Rev()); before >= election.Rev() {
		return fmt.Errorf("%s is elected with the revision %d after %d", me, election.Rev(), before)
	}
	if others := seat.holders.Add(1) - 1; others != 0 {
		return fmt.Errorf("%s leads beside %d others", me, others)
	}
	return nil
}

// resignation: an Election forgets its key by a resignation without an answer, so the next one is told it anew.
func (seat *office) resignation(session *concurrency.Session, election *concurrency.Election) func(context.Context) error {
	key, revision, hasLeft := "", int64(0), false
	return func(ctx context.Context) error {
		if !hasLeft {
			hasLeft, key, revision = true, election.Key(), election.Rev()
			seat.holders.Add(-1)
		}
		return concurrency.ResumeElection(session, prefix+"/", key, revision).Resign(ctx)
	}
}

// observe sees to it that one candidate follows the other. The channel ends when a node does; then there is a new one.
func observe(ctx context.Context, p *program) (report, error) {
	session, err := newSession(p)
	if err != nil {
		return nil, err
	}
	told := report{"observed": 0, "observations": 0}
	created, modified, leader := int64(0), int64(0), ""
	for ctx.Err() == nil {
		told["observations"]++
		for answer := range concurrency.NewElection(session, prefix).Observe(ctx) {
			seen := answer.Kvs[0]
			candidate, _, _ := strings.Cut(string(seen.Value), "/")
			if seen.CreateRevision < created || seen.CreateRevision == created && seen.ModRevision < modified {
				return nil, fmt.Errorf("%v is observed after the revisions %d and %d", seen, created, modified)
			}
			if seen.CreateRevision == created && candidate != leader {
				return nil, fmt.Errorf("%v is observed in the term of %s", seen, leader)
			}
			created, modified, leader = seen.CreateRevision, seen.ModRevision, candidate
			told["observed"]++
			p.step("observe", strconv.FormatInt(created, 10))
		}
	}
	return told, closeSession(p, session)
}
