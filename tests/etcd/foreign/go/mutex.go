package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	contenders = 3
	guard      = "guard/mutex"
)

// Where only one may be at a time: here, and in the store.
type section struct {
	inside atomic.Int64
	// The create revision of the holder's key, which grows from holder to holder.
	fence atomic.Int64
}

// lock has contenders for a mutex, each with a session of its own.
func lock(p *program) (report, error) {
	if _, err := p.until("the guard", func(ctx context.Context) error {
		_, err := p.client.Put(ctx, guard, "")
		return err
	}); err != nil {
		return nil, err
	}
	room := &section{}
	return runAll(contenders, func(number int) (report, error) { return lockAs(p, room, number) })
}

func lockAs(p *program, room *section, number int) (report, error) {
	session, err := newSession(p)
	if err != nil {
		return nil, err
	}
	told := report{"sections": 0, "doubts": 0}
	mutex := concurrency.NewMutex(session, "mutex")
	for p.goesOn() {
		me := fmt.Sprintf("%d/%d", number, told["sections"])
		for _, act := range []struct {
			what string
			work func(context.Context) error
		}{
			{"to lock", mutex.Lock},
			{"to enter", func(ctx context.Context) error { return room.enter(ctx, p.client, mutex, me) }},
			{"to leave", func(ctx context.Context) error { return room.leave(ctx, p.client, mutex, me) }},
			{"to unlock", mutex.Unlock},
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
		told["sections"]++
		p.step("mutex", me)
	}
	return told, closeSession(p, session)
}

// enter writes the holder down, by a transaction that only the owner of the lock's key can do.
func (room *section) enter(ctx context.Context, client *clientv3.Client, mutex *concurrency.Mutex, me string) error {
	answer, err := client.Txn(ctx).
		If(mutex.IsOwner(), clientv3.Compare(clientv3.Value(guard), "=", "")).
		Then(clientv3.OpPut(guard, me), clientv3.OpGet(mutex.Key())).
		Else(clientv3.OpGet(guard), clientv3.OpGet(mutex.Key())).
		Commit()
	if err != nil {
		return err
	}
	own := answer.Responses[1].GetResponseRange().Kvs
	if !answer.Succeeded {
		holder := string(answer.Responses[0].GetResponseRange().Kvs[0].Value)
		if holder != me { // else it was written before, without an answer
			return fmt.Errorf("%s has the lock while %q is inside; its own keys: %v", me, holder, own)
		}
	}
	if len(own) != 1 {
		return fmt.Errorf("%s has no key of the lock", me)
	}
	if before := room.fence.Swap(own[0].CreateRevision); before >= own[0].CreateRevision {
		return fmt.Errorf("%s has the create revision %d after %d", me, own[0].CreateRevision, before)
	}
	if others := room.inside.Add(1) - 1; others != 0 {
		return fmt.Errorf("%s is inside with %d others", me, others)
	}
	return nil
}

func (room *section) leave(ctx context.Context, client *clientv3.Client, mutex *concurrency.Mutex, me string) error {
	answer, err := client.Txn(ctx).
		If(mutex.IsOwner(), clientv3.Compare(clientv3.Value(guard), "=", me)).
		Then(clientv3.OpPut(guard, "")).
		Else(clientv3.OpGet(guard)).
		Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		holder := string(answer.Responses[0].GetResponseRange().Kvs[0].Value)
		if holder != "" { // else it was emptied before, without an answer
			return fmt.Errorf("%s leaves, and %q is inside", me, holder)
		}
	}
	room.inside.Add(-1)
	return nil
}

func newSession(p *program) (session *concurrency.Session, err error) {
	_, err = p.until("a session", func(context.Context) error {
		session, err = concurrency.NewSession(p.client, concurrency.WithTTL(sessionTTLSeconds))
		return err
	})
	return session, err
}

func closeSession(p *program, session *concurrency.Session) error {
	if err := alive(session); err != nil {
		return err
	}
	session.Orphan()
	_, err := p.until("to revoke", func(ctx context.Context) error {
		_, err := p.client.Revoke(ctx, session.Lease())
		return err
	})
	return err
}

// alive: a session that is kept alive outlives every leader.
func alive(session *concurrency.Session) error {
	select {
	case <-session.Done():
		return fmt.Errorf("the session %s ended by itself", strconv.FormatInt(int64(session.Lease()), 16))
	default:
		return nil
	}
}
