package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// audit follows the blocks and the handles of the store by a watch, and so must know them in the end.
type audit struct {
	commits  atomic.Int64
	relists  int
	records  map[string]store.Record
	finished chan error
}

// watched is what it follows, and the key at which it stops.
var watched = []string{"b", "h"}

const lastKey = "h: the last one"

func startAudit(ctx context.Context, endpoints []string) *audit {
	a := &audit{records: make(map[string]store.Record), finished: make(chan error, 1)}
	go func() { a.finished <- a.run(ctx, endpoints) }()
	return a
}

// count returns the number of commits seen.
func (a *audit) count() int64 { return a.commits.Load() }

func (a *audit) run(ctx context.Context, endpoints []string) error {
	client, err := connect(endpoints)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	_, s, err := openEngine(ctx, client)
	if err != nil {
		return err
	}
	for {
		rev, err := a.list(ctx, s)
		if err != nil {
			return err
		}
		for ev, err := range s.Watch(ctx, rev, watched...) {
			if errors.Is(err, ipalloc.ErrOutOfRange) {
				break // as anybody would who missed something
			}
			if err != nil {
				return err
			}
			if ev.Rev <= rev {
				return fmt.Errorf("the watch yielded revision %d after %d", ev.Rev, rev)
			}
			rev = ev.Rev
			a.commits.Add(1)
			for _, r := range ev.Changes {
				if a.records[r.Key] = r; r.Rev == 0 {
					delete(a.records, r.Key)
				}
				if r.Key == lastKey {
					return nil
				}
			}
		}
		a.relists++
	}
}

// list reads what the watch goes on from.
func (a *audit) list(ctx context.Context, s *etcdstore.Store) (uint64, error) {
	for {
		clear(a.records)
		recs, rev, err := s.List(ctx, store.Range{})
		if err == nil {
			for _, r := range recs {
				if r.Key[:1] == watched[0] || r.Key[:1] == watched[1] {
					a.records[r.Key] = r
				}
			}
			return rev, nil
		}
		if !store.Retryable(err) {
			return 0, err
		}
	}
}

// finish ends the watch, and compares what it has told with what is there.
func (a *audit) finish(ctx context.Context, s *etcdstore.Store, say func(string, ...any)) error {
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: lastKey, Expect: store.AnyRevision}}); err != nil {
		return err
	}
	if err := <-a.finished; err != nil {
		return fmt.Errorf("the watch: %w", err)
	}
	n := 0
	for _, kind := range watched {
		recs, _, err := s.List(ctx, store.Range{From: kind, To: kind + "\xff"})
		if err != nil {
			return err
		}
		for _, r := range recs {
			if n++; a.records[r.Key] != r {
				return fmt.Errorf("the watch told of %q: revision %d, it is %d", r.Key, a.records[r.Key].Rev, r.Rev)
			}
		}
	}
	if n != len(a.records) {
		return fmt.Errorf("the watch told of %d records, there are %d", len(a.records), n)
	}
	say("the watch saw %d commits and began anew %d times after a compaction; it knows all %d records", a.count(), a.relists, n)
	return nil
}
