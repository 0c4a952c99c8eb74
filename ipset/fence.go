package ipset

import (
	"context"
	"fmt"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// A commit whose outcome is unknown may be made later: a goroutine still waits for its disk, a packet is still on its way. What
// an engine answers afterwards must not be overtaken by it. All expectations of a commit must hold for it to be made, so it
// is enough to make one of them false: the engine writes the same value again to one record on the expected revision. If that
// meets a conflict, the commit has been made or cannot be made any more.

// fence is a lost commit by one of its expectations.
type fence struct {
	key   string
	rev   uint64
	value string // written if the record does not exist
}

// fenceOf returns the expectation to make false for a commit; ok is false for one that writes nothing. A record that the
// commit writes is the best one, because engines that do other things do not rest on it; the catalog is the last resort. Of
// records that should not exist only those serve that are never deleted.
func fenceOf(ops []store.Op) (f fence, ok bool) {
	rank := 0
	for _, op := range ops {
		ok = ok || op.Kind != store.Guard
		next := 0
		switch kind := op.Key[:1]; {
		case op.Expect == store.AnyRevision:
		case op.Key == catalogKey:
			next = 1
		case op.Expect != 0 && op.Kind == store.Guard:
			next = 2
		case op.Expect == 0 && kind == kindPage && op.Kind == store.Put:
			next = 3
		case op.Expect != 0:
			next = 4
		}
		if next <= rank {
			continue
		}
		rank, f = next, fence{key: op.Key, rev: op.Expect}
		if op.Expect == 0 && next == 3 {
			f.value = page{}.encode()
		} else if op.Expect == 0 {
			f.value, _ = (&catalog{}).encode()
		}
	}
	return f, ok && rank > 0
}

// lose notes that a commit has an unknown outcome.
func (e *Engine) lose(ops []store.Op) {
	if f, ok := fenceOf(ops); ok {
		e.lost = append(e.lost, f)
		e.doubtful.Store(true)
	}
}

// settle fences the commits of unknown outcome before anything else is planned. It costs nothing if there are none, else a
// read and perhaps a commit each.
func (e *Engine) settle(ctx context.Context) error {
	for tries := 1; len(e.lost) > 0; tries++ {
		f := e.lost[0]
		recs, err := e.store.Get(ctx, nil, f.key)
		if err != nil {
			return err
		}
		e.cache.forget(f.key)
		if rec := recs[0]; rec.Rev == f.rev {
			if rec.Rev != 0 {
				f.value = rec.Value
			}
			_, err := e.store.Commit(ctx, []store.Op{{Kind: store.Put, Key: f.key, Value: f.value, Expect: f.rev}})
			if isConflict(err) && tries < e.retry.Attempts {
				continue
			}
			if err != nil {
				return fmt.Errorf("fence an earlier commit of unknown outcome: %w", err)
			}
		}
		e.lost, tries = e.lost[1:], 0
	}
	e.lost = nil
	e.doubtful.Store(false)
	return nil
}

// current returns when no commit of unknown outcome of this engine can be made any more: what is read next shows what became of
// it. It costs nothing while there is none.
func (e *Engine) current(ctx context.Context) error {
	if !e.doubtful.Load() {
		return nil
	}
	return e.do(ctx, passPlan{})
}

// passPlan does nothing but wait for its turn.
type passPlan struct{}

// plan implements plan.
func (passPlan) plan(*txn) error { return nil }
