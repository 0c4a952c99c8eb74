package ipset

import (
	"context"
	"time"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Requests and sticky handles have no end of their own. A record t<kind><time><key> beside each, written in the same commit, lists
// them by their age, so that forgetting the old ones costs what there is to forget.

// sweepAged forgets the records of a kind that are older than age, normal if that is 0 and none if it is below.
func (e *Engine) sweepAged(ctx context.Context, kind string, age, normal time.Duration) (forgotten int, err error) {
	if age == 0 {
		age = normal
	}
	if age < 0 {
		return 0, nil
	}
	before := agedKey(max(block.Stamp(e.now())-int64(age)+1, 0), kind)
	r := store.Range{From: kindAged + kind, To: before[:agedTimeEnd], Limit: e.agedPerCommit()}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil || len(recs) == 0 {
			return forgotten, err
		}
		r.From = recs[len(recs)-1].Key + "\x00"
		last := len(recs) < r.Limit
		p := agedPlan{entries: recs}
		if err := e.run.Do(ctx, &p); err != nil {
			return forgotten, err
		}
		if forgotten += p.forgotten; last {
			return forgotten, nil
		}
	}
}

// agedPerCommit is how many records go in one commit: each is two.
func (e *Engine) agedPerCommit() int {
	if limit := e.limits.Ops; limit > 0 {
		return max(1, limit/3)
	}
	return 256
}

// agedPlan forgets the records that some entries name, as far as they still are of that age. Sticky handles that hold an address
// grow young again.
type agedPlan struct {
	entries   []store.Record
	forgotten int
}

// Plan implements [occ.Plan]. An earlier plan of the transaction may have replaced one of the entries.
func (p *agedPlan) Plan(t *txn) error {
	if t.Pending() {
		return occ.ErrFirst
	}
	p.forgotten = 0
	var keys []string
	for _, r := range p.entries {
		if isAgedKey(r.Key) { // Check reports others
			keys = append(keys, r.Key[agedTimeEnd:])
		}
	}
	if err := t.Load(keys...); err != nil {
		return err
	}
	n := 0
	for _, r := range p.entries {
		if !isAgedKey(r.Key) {
			continue
		}
		t.Add(store.Op{Kind: store.Delete, Key: r.Key, Expect: store.AnyRevision})
		n++
		key := r.Key[agedTimeEnd:]
		value, ok, err := t.Get(key)
		if err != nil {
			return err
		}
		at, err := ageOf(key, value, ok)
		if err != nil {
			return err
		}
		if agedKey(at, key) != r.Key {
			continue // gone, or written again since: it has another entry
		}
		young, err := t.renewed(key, value)
		switch {
		case err != nil:
			return err
		case young != "":
			t.Put(key, young)
			t.setAge(key, 0)
			n++
		default:
			t.Delete(key)
			p.forgotten++
		}
	}
	return t.Room(n)
}

// ageOf returns when a request was answered, or a sticky handle given an address; 0 if there is no record.
func ageOf(key, value string, ok bool) (int64, error) {
	switch {
	case !ok:
		return 0, nil
	case key[:1] == kindRequest:
		a, err := decodeAnswer(value)
		if err != nil {
			return 0, err
		}
		return a.at, nil
	default:
		l, err := decodeLastHeld(stickyFamily(key), value)
		return l.at, err
	}
}

// renewed returns the record of a sticky handle with the present time, if the handle holds an address; else "".
func (t *txn) renewed(key, value string) (string, error) {
	if key[:1] != kindSticky {
		return "", nil
	}
	r := handleRange(key[2:])
	r.Limit = 1
	recs, err := t.List(r)
	if err != nil || len(recs) == 0 {
		return "", err
	}
	l, err := decodeLastHeld(stickyFamily(key), value)
	if err != nil {
		return "", err
	}
	l.at = t.now
	return l.encode(), nil
}
