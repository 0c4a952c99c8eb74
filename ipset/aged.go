package ipset

import (
	"context"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/ipset/block"
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
	now := block.Stamp(e.now())
	before := agedKey(max(now-int64(age)+1, 0), kind)
	r := store.Range{From: kindAged + kind, To: before[:agedTimeEnd], Limit: e.agedPerCommit()}
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil || len(recs) == 0 {
			return forgotten, err
		}
		r.From = recs[len(recs)-1].Key + "\x00"
		last := len(recs) < r.Limit
		n, err := e.forgetAged(ctx, recs, now)
		for tries := 1; isConflict(err) && tries < e.tries; tries++ {
			n, err = e.forgetAged(ctx, recs, now)
		}
		forgotten += n
		if err != nil || last {
			return forgotten, err
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

// forgetAged forgets the records that some entries name, as far as they still are of that age. Sticky handles that hold an
// address grow young again.
func (e *Engine) forgetAged(ctx context.Context, entries []store.Record, now int64) (forgotten int, err error) {
	var keys []string
	entries = slices.DeleteFunc(entries, func(r store.Record) bool { return !isAgedKey(r.Key) }) // Check reports them
	for _, entry := range entries {
		keys = append(keys, entry.Key[agedTimeEnd:])
	}
	recs, err := e.store.Get(ctx, nil, keys...)
	if err != nil {
		return 0, err
	}
	var ops []store.Op
	for i, rec := range recs {
		entry := entries[i].Key
		ops = append(ops, store.Op{Kind: store.Delete, Key: entry, Expect: store.AnyRevision})
		at, err := ageOf(rec)
		if err != nil {
			return 0, err
		}
		if agedKey(at, rec.Key) != entry {
			continue // gone, or written again since: it has another entry
		}
		young, err := e.renewed(ctx, rec, now)
		switch {
		case err != nil:
			return 0, err
		case young != "":
			ops = append(ops, store.Op{Kind: store.Put, Key: rec.Key, Value: young, Expect: rec.Rev}, store.Op{Kind: store.Put, Key: agedKey(now, rec.Key), Expect: store.AnyRevision})
		default:
			ops = append(ops, store.Op{Kind: store.Delete, Key: rec.Key, Expect: rec.Rev})
			forgotten++
		}
	}
	if _, err = e.store.Commit(ctx, ops); err != nil {
		return 0, err
	}
	return forgotten, nil
}

// ageOf returns when a request was answered, or a sticky handle given an address; 0 if the record does not exist.
func ageOf(rec store.Record) (int64, error) {
	switch {
	case rec.Rev == 0:
		return 0, nil
	case rec.Key[:1] == kindRequest:
		a, err := decodeAnswer(rec.Value)
		if err != nil {
			return 0, err
		}
		return a.at, nil
	default:
		l, err := decodeLastHeld(stickyFamily(rec.Key), rec.Value)
		return l.at, err
	}
}

// renewed returns the record of a sticky handle with the present time, if the handle holds an address; else "".
func (e *Engine) renewed(ctx context.Context, rec store.Record, now int64) (string, error) {
	if rec.Key[:1] != kindSticky {
		return "", nil
	}
	r := handleRange(rec.Key[2:])
	r.Limit = 1
	recs, _, err := e.store.List(ctx, r)
	if err != nil || len(recs) == 0 {
		return "", err
	}
	l, err := decodeLastHeld(stickyFamily(rec.Key), rec.Value)
	if err != nil {
		return "", err
	}
	l.at = now
	return l.encode(), nil
}
