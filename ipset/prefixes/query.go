package prefixes

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// listPart is the number of records that a loop over many reads at a time.
const listPart = 1000

// Fits returns the prefix that Allocate would allocate now. It fails with ErrFull if
// there is none, and with the other errors of Allocate. It changes nothing.
func (a *Allocator) Fits(ctx context.Context, pool netip.Prefix, bits int) (netip.Prefix, error) {
	call := ipalloc.Error{Op: "fits", Pool: pool, Bits: bits}
	bad := cmp.Or(checkPrefix("pool", pool), checkBits("bits", pool, bits))
	return answer(ctx, a, call, bad, func(t *txn) (at netip.Prefix, err error) {
		_, sizes, err := t.sizes(pool)
		if err == nil {
			err = sizes.refuse(bits)
		}
		ended := false
		if err == nil {
			ended, err = t.hasEnded()
		}
		if ended { // as if their ends were written
			defer t.Rollback()
			if part, bad := t.releaseEnded(); bad != nil || part.more {
				return at, cmp.Or(bad, errDue)
			}
		}
		if err != nil {
			return at, err
		}
		tr := t.tree(pool)
		at, ok, err := tr.find(bits - pool.Bits())
		if err == nil && !ok {
			err = full(tr)
		}
		return at, err
	})
}

// Get returns the holding of exactly this prefix. It fails with ErrNotFound if the prefix
// is not held. Path also finds a holding that contains it.
func (a *Allocator) Get(ctx context.Context, at netip.Prefix) (Holding, error) {
	call := ipalloc.Error{Op: "get", Prefix: at}
	return answer(ctx, a, call, checkPrefix("at", at), func(t *txn) (Holding, error) {
		got, ok, err := t.holding(at)
		if err == nil && !ok {
			err = fail(ipalloc.ErrNotFound, "not held")
		}
		return got.Holding, err
	})
}

// Path returns the holdings that contain a prefix, the holding of the prefix included,
// the largest first: region, cluster, node. The result is empty if no holding contains
// it. The last one is the longest match. For an address use netip.PrefixFrom(ip,
// ip.BitLen()). Path makes two round trips for any number of levels; the result is a
// consistent view.
func (a *Allocator) Path(ctx context.Context, at netip.Prefix) (path []Holding, err error) {
	call := ipalloc.Error{Op: "path", Prefix: at}
	if err := checkPrefix("at", at); err != nil {
		return nil, explain(err, call)
	}
	if err := a.run.Current(ctx); err != nil {
		return nil, explain(err, call)
	}
	key := holdingKey(at)
	// The last holding that does not sort after the prefix is inside every holding that
	// contains the prefix.
	before := store.Range{From: key[:3], To: key + "\x00", Limit: 1, Reverse: true}
	for {
		recs, _, err := a.store.List(ctx, before)
		if err != nil || len(recs) == 0 {
			return nil, explain(err, call)
		}
		last, err := decodeRecord(recs[0])
		if err != nil {
			return nil, explain(err, call)
		}
		keys := []string{recs[0].Key}
		for level := 1; level < last.Level; level++ {
			keys = append(keys, holdingKey(last.poolAt(level)))
		}
		rev := recs[0].Rev
		if recs, err = a.store.Get(ctx, nil, keys...); err != nil {
			return nil, explain(err, call)
		}
		if recs[0].Rev != rev {
			continue
		}
		for _, rec := range append(recs[1:], recs[0]) {
			r, live, err := a.liveRecord(rec)
			if err != nil {
				return nil, explain(err, call)
			}
			if live && r.Prefix.Bits() <= at.Bits() && r.Prefix.Contains(at.Addr()) {
				path = append(path, r.Holding)
			}
		}
		return path, nil
	}
}

// Owned returns the holdings of an owner in address order, IPv4 first. It reads the index
// in one consistent view, then the holdings 100 at a time, and skips a holding that has
// changed its owner meanwhile.
func (a *Allocator) Owned(ctx context.Context, owner string) ([]Holding, error) {
	call := ipalloc.Error{Op: "owned", Owner: owner}
	if err := checkOwner("owner", owner); err != nil {
		return nil, explain(err, call)
	}
	if err := a.run.Current(ctx); err != nil {
		return nil, explain(err, call)
	}
	recs, _, err := a.store.List(ctx, ownerRange(owner, netip.Prefix{}))
	var held []Holding
	for part := range slices.Chunk(recs, 100) {
		keys := make([]string, len(part))
		for i, rec := range part {
			at, _, err := parseEntry(rec)
			if err != nil {
				return held, explain(err, call)
			}
			keys[i] = holdingKey(at)
		}
		found, err := a.store.Get(ctx, nil, keys...)
		if err != nil {
			return held, explain(err, call)
		}
		for _, rec := range found {
			if rec.Rev == 0 {
				continue
			}
			r, live, err := a.liveRecord(rec)
			if err != nil {
				return held, explain(err, call)
			}
			if live && r.Owner == owner {
				held = append(held, r.Holding)
			}
		}
	}
	return held, explain(err, call)
}

// All yields the holdings in a prefix, the holding of the prefix included, in address
// order. If two begin at the same address, the larger one comes first. The zero Prefix
// yields all. It reads 1,000 holdings at a time, each time in one consistent view. An
// error ends the loop. It holds no lock while the body of the loop runs.
func (a *Allocator) All(ctx context.Context, within netip.Prefix) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		call := ipalloc.Error{Op: "all", Prefix: within}
		var err error
		if within != (netip.Prefix{}) {
			err = checkPrefix("within", within)
		}
		if err == nil {
			err = a.run.Current(ctx)
		}
		if err != nil {
			yield(Holding{}, explain(err, call))
			return
		}
		for rec, err := range a.list(ctx, insideRange(within), listPart) {
			var r record
			live := false
			if err == nil {
				r, live, err = a.liveRecord(rec)
			}
			if (live || err != nil) && !yield(r.Holding, explain(err, call)) || err != nil {
				return
			}
		}
	}
}

// State returns the holdings in a prefix, the holding of the prefix included, in address
// order. The result is one consistent view, at the returned revision of the store. Pass
// the revision to Changes to continue from there. The zero Prefix selects all holdings.
// State reads everything into memory, some 500 bytes a holding.
func (a *Allocator) State(ctx context.Context, within netip.Prefix) (held []Holding, rev uint64, err error) {
	call := ipalloc.Error{Op: "state", Prefix: within}
	if within != (netip.Prefix{}) {
		err = checkPrefix("within", within)
	}
	if err == nil {
		err = a.run.Current(ctx)
	}
	if err != nil {
		return nil, 0, explain(err, call)
	}
	recs, rev, err := a.store.List(ctx, insideRange(within))
	for _, rec := range recs {
		r, live, err := a.liveRecord(rec)
		if err != nil {
			return nil, 0, explain(err, call)
		}
		if live {
			held = append(held, r.Holding)
		}
	}
	return held, rev, explain(err, call)
}

// list yields the records of a range; it reads part records at a time.
func (a *Allocator) list(ctx context.Context, r store.Range, part int) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		r.Limit = part
		for {
			recs, _, err := a.store.List(ctx, r)
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, rec := range recs {
				if !yield(rec, nil) {
					return
				}
			}
			if len(recs) < part {
				return
			}
			if last := recs[len(recs)-1].Key; r.Reverse {
				r.To = last
			} else {
				r.From = last + "\x00"
			}
		}
	}
}

// decodeRecord returns the holding in a record.
func decodeRecord(rec store.Record) (record, error) {
	at, ok := parseHoldingKey(rec.Key)
	if !ok {
		return record{}, corrupt(netip.Prefix{}, "key of a holding")
	}
	return decodeHolding(at, rec.Value)
}

// Change is one change of the holding of a prefix.
type Change struct {
	// Rev is the revision of the commit. The changes that deliver the present state have Rev 0, except the last one, which has the
	// revision of the state.
	Rev    uint64
	Prefix netip.Prefix
	// Holding is the holding after the commit. The zero Holding means that the prefix was released.
	Holding Holding
}

// Changes yields the changes of holdings after a revision of the store, in order, until
// ctx ends or the caller breaks the loop. A change has a Holding if the prefix was
// allocated, or its owner, attributes, children or expiry changed. The expiry of a lease
// is reported as a release when it is recorded, by Sweep at the latest. With after 0,
// Changes yields the present state first, as State returns it. An error ends the loop.
// ipalloc.ErrOutOfRange means that the store no longer has all commits after that
// revision. Begin again with 0 then, and drop your holdings that are not in the state.
func (a *Allocator) Changes(ctx context.Context, after uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		call := ipalloc.Error{Op: "changes"}
		err := a.run.Current(ctx)
		if err == nil && after == 0 {
			var held []Holding
			held, after, err = a.State(ctx, netip.Prefix{})
			for i, h := range held {
				c := Change{Prefix: h.Prefix, Holding: h}
				if i == len(held)-1 {
					c.Rev = after
				}
				if !yield(c, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Change{}, explain(err, call))
			return
		}
		for ev, err := range a.store.Watch(ctx, after, kindHolding) {
			if err != nil {
				yield(Change{}, explain(err, call))
				return
			}
			for _, rec := range ev.Changes {
				c := Change{Rev: ev.Rev}
				var r record
				if rec.Rev == 0 {
					c.Prefix, _ = parseHoldingKey(rec.Key)
				} else if r, err = decodeRecord(rec); err == nil {
					c.Prefix, c.Holding = r.Prefix, r.Holding
				}
				if !yield(c, explain(err, call)) || err != nil {
					return
				}
			}
		}
	}
}
