package release

import (
	"context"
	"errors"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Memos have no end of their own, because the last repetition of a request does not say that it is the last. An index of their age finds
// the old ones, so deleting them costs what there is to delete. Sweep deletes them all. A call that writes a memo deletes a few, now and
// then, so without a Sweep no more are left than the calls of one age write.

// Ages are the ages at which memos are deleted, none if they are negative.
type Ages struct{ Requests, Sticky time.Duration }

// Calls between two that delete memos, and how many memos such a call deletes: more than the calls before it have written.
const (
	passing = 32
	perPass = 2 * passing
)

// Pass counts a call that may have written memos of some kinds, unless it failed. Every so often it deletes a few old ones of a kind. Its
// errors are not those of the call, which is complete; a later call deletes what is left.
func (e *Releaser) Pass(ctx context.Context, failed error, request, sticky bool) {
	if failed != nil || e.Limits.Deferred { // a commit of Together is its caller's
		return
	}
	if request && e.passed[0].Add(1)%passing == 0 {
		_, _ = e.sweepAged(ctx, record.KindRequest, e.Ages.Requests, perPass)
	}
	if sticky && e.passed[1].Add(1)%passing == 0 {
		_, _ = e.sweepAged(ctx, record.KindSticky, e.Ages.Sticky, perPass)
	}
}

// sweepAged deletes the memos of a kind that are older than age, at most so many, all if most is 0. It deletes none if age is negative.
func (e *Releaser) sweepAged(ctx context.Context, kind string, age time.Duration, most int) (forgotten int, err error) {
	if age < 0 {
		return 0, nil
	}
	past, err := e.Past()
	if err != nil {
		return 0, err
	}
	before := record.AgedKey(max(past-int64(age)+1, 0), kind)
	step := e.agedPerCommit()
	r := store.Range{From: record.KindAged + kind[1:], To: before[:record.AgedTimeEnd], Limit: step}
	if most > 0 {
		r.Limit = most
	}
	for recs, err := range e.Pages(ctx, r) {
		for err == nil && len(recs) > 0 {
			n := min(step, len(recs))
			p := agedPlan{entries: recs[:n]}
			if err = e.Run.Do(ctx, &p); n > 1 && errors.Is(err, ipalloc.ErrLimit) {
				step, err = n/2, nil // a full file takes small commits, which make room for larger ones
				continue
			}
			if forgotten += p.forgotten; err == nil {
				recs, step = recs[n:], min(2*step, e.agedPerCommit())
			}
		}
		if err != nil || most > 0 {
			return forgotten, err
		}
	}
	return forgotten, nil
}

// agedPerCommit is how many memos go in one commit: each is two records.
func (e *Releaser) agedPerCommit() int {
	if limit := e.Limits.Ops; limit > 0 {
		return max(1, limit/3)
	}
	return 256
}

// agedPlan forgets the memos that some entries name, as far as they still are of that age. Sticky handles that hold an address
// grow young again.
type agedPlan struct {
	entries   []store.Record
	forgotten int
}

// Plan implements [occ.Plan]. An earlier plan of the transaction may have replaced one of the entries.
func (p *agedPlan) Plan(t *txn.Txn) error {
	if t.Pending() {
		return occ.ErrFirst
	}
	p.forgotten = 0
	keys := make([]string, 0, len(p.entries))
	for _, r := range p.entries {
		if record.IsAgedKey(r.Key) { // Check reports others
			keys = append(keys, r.Key[record.AgedTimeEnd:])
		}
	}
	if err := t.Load(keys...); err != nil {
		return err
	}
	for _, r := range p.entries {
		if !record.IsAgedKey(r.Key) {
			continue
		}
		t.Add(store.Op{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision})
		key := r.Key[record.AgedTimeEnd:]
		m, err := t.Memo(key)
		if err != nil {
			return err
		}
		if m.At != record.AgedAt(r.Key) {
			continue // gone, or written again since: it has another entry
		}
		holds, err := sticks(t, key)
		switch {
		case err != nil:
			return err
		case holds:
			m.At = 0 // its entry goes already
			t.Remember(&m)
		default:
			t.Delete(key)
			p.forgotten++
		}
	}
	return nil
}

// sticks reports whether a memo is one of a sticky handle that holds an address.
func sticks(t *txn.Txn, key string) (bool, error) {
	if key[:2] != record.KindSticky {
		return false, nil
	}
	r := record.HandleRange(key[2:])
	r.Limit = 1
	recs, err := t.List(r)
	return len(recs) > 0, err
}
