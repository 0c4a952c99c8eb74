package query

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A follower wants events of addresses, the store has revisions of records. The decoder compares each record with its former
// content, by the same derivation as the writer. So it neither repeats nor misses an event between two records of one commit.

// presentPart is how many changes a part of the state at the beginning has at most.
const presentPart = 1000

// Changes carries out the call of that name.
func (e *Reader) Changes(ctx context.Context, after uint64) iter.Seq2[alloc.Commit, error] {
	return func(yield func(alloc.Commit, error) bool) {
		fail := func(err error) {
			if err != nil {
				yield(alloc.Commit{}, cause.Wrap(ipalloc.Error{Op: "follow changes", Err: err}))
			}
		}
		recs, rev, err := e.Store.List(ctx, store.Range{From: record.KindAddress, To: record.PoolsKey + "\x00"})
		if err != nil {
			fail(err)
			return
		}
		d := decoder{known: make(map[string]string, len(recs))}
		if after == 0 {
			if more, err := d.present(recs, rev, yield); !more {
				fail(err)
				return
			}
		} else {
			d.begin(recs, after, rev)
			rev = after
		}
		recs = nil // the loop may run long
		for ev, err := range e.Store.Watch(ctx, rev, record.KindAddress, record.KindBlock, record.KindCatalog) {
			c := alloc.Commit{Rev: ev.Rev}
			if err == nil {
				c.Changes, err = d.commit(ev)
			}
			if err != nil {
				fail(err)
				return
			}
			if len(c.Changes) > 0 && !yield(c, nil) {
				return
			}
		}
	}
}

// decoder turns records into changes. It knows the records as they were before.
type decoder struct {
	known map[string]string
	// Up to the revision complete, a record that is not in known may have been there before, unless it is in seen.
	complete uint64
	seen     map[string]bool
}

// begin derives the known records at a revision from the records at a later revision.
func (d *decoder) begin(recs []store.Record, at, later uint64) {
	d.complete, d.seen = later, make(map[string]bool)
	for _, r := range recs {
		if r.Rev <= at {
			d.known[r.Key] = r.Value
		}
	}
}

// present yields records, which are in key order, as a commit that made them all, and reports whether the loop goes on.
func (d *decoder) present(recs []store.Record, rev uint64, yield func(alloc.Commit, error) bool) (more bool, err error) {
	from := func(kind string) int {
		i, _ := slices.BinarySearchFunc(recs, kind, func(r store.Record, kind string) int { return strings.Compare(r.Key[:1], kind) })
		return i
	}
	b, c := from(record.KindBlock), from(record.KindCatalog)
	left := len(recs)
	for _, recs := range [][]store.Record{recs[c:], recs[b:c], recs[:b]} {
		for part := range slices.Chunk(recs, presentPart) {
			changes, err := d.commit(store.Event{Rev: rev, Changes: part})
			if err != nil {
				return false, err
			}
			if left -= len(part); !yield(alloc.Commit{Rev: rev, Present: true, More: left > 0, Changes: changes}, nil) {
				return false, nil
			}
		}
	}
	return len(recs) > 0 || yield(alloc.Commit{Rev: rev, Present: true}, nil), nil
}

// commit returns the changes of a commit.
func (d *decoder) commit(ev store.Event) ([]alloc.Change, error) {
	var settings, claimed, addresses, gone []alloc.Change
	for _, r := range ev.Changes {
		was, known := d.known[r.Key]
		unknown := !known && ev.Rev <= d.complete && !d.seen[r.Key]
		var err error
		switch r.Key[:1] {
		case record.KindAddress:
			addresses, err = addressChanges(addresses, r.Key, was, r.Value, unknown)
		case record.KindBlock:
			var c alloc.Change
			switch c, err = blockChange(r.Key, was, r.Value, unknown); {
			case c.Kind == alloc.BlockClaimed && c.Owner != c.Former:
				claimed = append(claimed, c)
			case c.Kind != alloc.BlockClaimed:
				gone = append(gone, c)
			}
		case record.KindCatalog:
			if r.Key != record.PoolsKey {
				continue // the root says nothing else
			}
			settings, err = catalogChanges(was, r.Value, unknown)
		}
		if err != nil {
			return nil, fmt.Errorf("revision %d: %w", ev.Rev, err)
		}
		d.learn(r, ev.Rev)
	}
	return slices.Concat(settings, claimed, addresses, gone), nil
}

// learn remembers a record as a commit left it.
func (d *decoder) learn(r store.Record, rev uint64) {
	if r.Rev == 0 {
		delete(d.known, r.Key)
	} else {
		d.known[r.Key] = r.Value
	}
	if rev > d.complete {
		d.seen = nil
	} else if d.seen != nil {
		d.seen[r.Key] = true
	}
}

// addressChanges appends the changes of an address by a commit; an empty value is no record.
func addressChanges(dst []alloc.Change, key, was, is string, unknown bool) ([]alloc.Change, error) {
	at, ok := record.ParseAddressKey(key)
	if !ok {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	c := alloc.Change{Address: at, Unknown: unknown}
	for _, v := range []struct {
		to    *alloc.Allocation
		value string
	}{{&c.Was, was}, {&c.Is, is}} {
		if v.value == "" {
			continue
		}
		al, _, err := readAllocation(nil, key, v.value, math.MinInt64)
		if err != nil {
			return nil, err
		}
		*v.to = al
	}
	add := func(kind alloc.ChangeKind, was, is alloc.Allocation) {
		c.Kind, c.Was, c.Is = kind, was, is
		dst = append(dst, c)
	}
	before, now := c.Was, c.Is
	had, has := holdersOf(before), holdersOf(now)
	for _, h := range had {
		switch is, ok := find(has, h.Seq); {
		case ok:
			if !h.Until.Equal(is.Until) {
				add(alloc.LeaseChanged, h, is)
			}
			if h.Attributes != is.Attributes || h.Alternate != is.Alternate {
				add(alloc.AttributesChanged, h, is)
			}
			if h.Host != is.Host || h.Handle != is.Handle {
				add(alloc.HostChanged, h, is)
			}
		case !now.Cooling || now.Seq != h.Seq:
			add(alloc.AddressReleased, h, alloc.Allocation{})
		}
	}
	for i, h := range has {
		if _, ok := find(had, h.Seq); ok {
			continue
		}
		if i > 0 || len(had) > 0 {
			before = alloc.Allocation{}
		}
		add(alloc.AddressAssigned, before, h)
	}
	switch {
	case len(had) == 0 && now.Cooling && before != now:
		add(alloc.AddressCooling, before, now)
	case now.Cooling && before != now:
		last, _ := find(had, now.Seq)
		add(alloc.AddressCooling, last, now)
	case len(had)+len(has) == 0 && before.Cooling && !now.Cooling:
		add(alloc.AddressCooled, before, now)
	case is == "" && len(had) == 0 && !before.Cooling:
		add(alloc.AddressReleased, before, now) // it is not known what was before
	}
	return dst, nil
}

// holdersOf returns the holders of an address that is held.
func holdersOf(a alloc.Allocation) []alloc.Allocation {
	if !a.Address.IsValid() || a.Cooling {
		return nil
	}
	return slices.Collect(a.Holders())
}

// find returns the holder with a sequence number.
func find(holders []alloc.Allocation, seq uint64) (alloc.Allocation, bool) {
	i := slices.IndexFunc(holders, func(h alloc.Allocation) bool { return h.Seq == seq })
	if i < 0 {
		return alloc.Allocation{}, false
	}
	return holders[i], true
}

// blockChange returns the change of a block's owner by a commit. A block that was claimed by its owner has not
// changed.
func blockChange(key, was, is string, unknown bool) (alloc.Change, error) {
	p, ok := record.ParseBlockID(key[1:])
	c := alloc.Change{Kind: alloc.BlockClaimed, Block: p, Unknown: unknown}
	if !ok {
		return c, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	for _, v := range []struct {
		to    *alloc.Owner
		value string
	}{{&c.Former, was}, {&c.Owner, is}} {
		if v.value == "" {
			continue
		}
		b, err := block.Decode(p, v.value)
		if err != nil {
			return c, cause.Wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
		*v.to = b.Owner()
	}
	switch {
	case is == "":
		c.Kind = alloc.BlockReturned
	case c.Owner.Kind == alloc.Nobody && (was == "" || c.Former.Kind != alloc.Nobody):
		c.Kind = alloc.BlockOrphaned
	}
	return c, nil
}

// catalogChanges returns the changes of pools and settings by a commit.
func catalogChanges(was, is string, unknown bool) (cs []alloc.Change, err error) {
	before, err := pool.DecodeCatalog(was)
	if err != nil {
		return nil, err
	}
	now, err := pool.DecodeCatalog(is)
	if err != nil {
		return nil, err
	}
	for i := range before.Pools {
		p := before.Pools[i].Clone()
		switch j := now.ByName(p.Name); {
		case j < 0:
			cs = append(cs, alloc.Change{Kind: alloc.PoolRemoved, FormerPool: &p.Pool})
		case !samePool(&p, &now.Pools[j]):
			q := now.Pools[j].Clone()
			cs = append(cs, alloc.Change{Kind: alloc.PoolChanged, Pool: &q.Pool, FormerPool: &p.Pool})
		}
	}
	for i := range now.Pools {
		if p := now.Pools[i].Clone(); before.ByName(p.Name) < 0 {
			cs = append(cs, alloc.Change{Kind: alloc.PoolAdded, Pool: &p.Pool, Unknown: unknown})
		}
	}
	if unknown || !pool.SameReservations(before.Reserved, now.Reserved) {
		cs = append(cs, alloc.Change{Kind: alloc.ReservationsChanged, Reserved: now.Reserved, FormerReserved: before.Reserved, Unknown: unknown})
	}
	if unknown || before.Config != now.Config {
		cs = append(cs, alloc.Change{Kind: alloc.ConfigChanged, Config: &now.Config, FormerConfig: &before.Config, Unknown: unknown})
	}
	return cs, nil
}

// samePool reports whether two pools are the same in every field.
func samePool(a, b *pool.Pool) bool {
	x, err := (&pool.Catalog{Pools: []pool.Pool{*a}}).Encode()
	y, err2 := (&pool.Catalog{Pools: []pool.Pool{*b}}).Encode()
	return err == nil && err2 == nil && x == y
}
