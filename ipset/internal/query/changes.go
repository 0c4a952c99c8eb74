package query

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A follower wants events of addresses, the store has revisions of records. The decoder compares each record with what it was
// before, by the same derivation as the writer, so that no event is told twice or missed between two records of one commit.

// ChangeKind says what a [Change] is.
type ChangeKind uint8

const (
	// AddressAssigned: the address is held; Is has the holder. Was is cooling if the address was. Of an address with several
	// holders each has an AddressAssigned when it joins and an AddressReleased when it leaves; Seq tells them apart.
	AddressAssigned ChangeKind = iota
	// AddressReleased: the holder in Was does not hold the address any more. If no AddressAssigned of the same commit follows, and
	// there is no other holder, the address is free.
	AddressReleased
	// AddressCooling: the address was released, or declined, and is free at Is.Until. Was has the holder before.
	AddressCooling
	// AddressCooled: the address is free. Was has the holder before.
	AddressCooled
	// LeaseChanged: the holder is the same, and the lease ends at another time: it was renewed.
	LeaseChanged
	// AttributesChanged: the holder is the same, and its attributes are others.
	AttributesChanged
	// HostChanged: the holder is the same, on another host.
	HostChanged
	// BlockClaimed: Owner has the block. Former had it before, or is nobody.
	BlockClaimed
	// BlockOrphaned: the block has no owner. Former had it before.
	BlockOrphaned
	// BlockReturned: the block does not exist any more. Former had it before.
	BlockReturned
	// PoolAdded, PoolChanged and PoolRemoved: Pool is the pool after the commit, FormerPool before it.
	PoolAdded
	PoolChanged
	PoolRemoved
	// ReservationsChanged: Reserved are the reservations after the commit, FormerReserved before it.
	ReservationsChanged
	// ConfigChanged: Config is the configuration after the commit, FormerConfig before it.
	ConfigChanged
)

// String returns a few words.
func (k ChangeKind) String() string {
	return [...]string{
		"assigned", "released", "cooling", "cooled", "lease changed", "attributes changed", "host changed", "block claimed",
		"block orphaned", "block returned", "pool added", "pool changed", "pool removed", "reservations changed", "configuration changed",
	}[min(k, ConfigChanged)]
}

// Change is the type of that name of the engine, which documents it.
type Change struct {
	Kind                     ChangeKind
	Address                  netip.Addr
	Was, Is                  alloc.Allocation
	Block                    netip.Prefix
	Owner, Former            alloc.Owner
	Pool, FormerPool         *pool.Pool
	Reserved, FormerReserved *netipx.IPSet
	Config, FormerConfig     *pool.Config
	Unknown                  bool
}

// Commit is the type of that name of the engine, which documents it.
type Commit struct {
	Rev           uint64
	Present, More bool
	Changes       []Change
}

// presentPart is how many changes a part of the state at the beginning has at most.
const presentPart = 1000

// Changes carries out the call of that name.
func (e *Reader) Changes(ctx context.Context, after uint64) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		fail := func(err error) {
			if err != nil {
				yield(Commit{}, cause.Wrap(ipalloc.Error{Op: "follow changes", Err: err}))
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
			c := Commit{Rev: ev.Rev}
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

// begin takes what is known of the records at a revision from what they are at a later one.
func (d *decoder) begin(recs []store.Record, at, later uint64) {
	d.complete, d.seen = later, make(map[string]bool)
	for _, r := range recs {
		if r.Rev <= at {
			d.known[r.Key] = r.Value
		}
	}
}

// present yields records, which are in key order, as a commit that made them all, and reports whether the loop goes on.
func (d *decoder) present(recs []store.Record, rev uint64, yield func(Commit, error) bool) (more bool, err error) {
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
			if left -= len(part); !yield(Commit{Rev: rev, Present: true, More: left > 0, Changes: changes}, nil) {
				return false, nil
			}
		}
	}
	return len(recs) > 0 || yield(Commit{Rev: rev, Present: true}, nil), nil
}

// commit returns the changes of a commit.
func (d *decoder) commit(ev store.Event) ([]Change, error) {
	var settings, claimed, addresses, gone []Change
	for _, r := range ev.Changes {
		was, known := d.known[r.Key]
		unknown := !known && ev.Rev <= d.complete && !d.seen[r.Key]
		var err error
		switch r.Key[:1] {
		case record.KindAddress:
			addresses, err = addressChanges(addresses, r.Key, was, r.Value, unknown)
		case record.KindBlock:
			var c Change
			switch c, err = blockChange(r.Key, was, r.Value, unknown); {
			case c.Kind == BlockClaimed && c.Owner != c.Former:
				claimed = append(claimed, c)
			case c.Kind != BlockClaimed:
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

// addressChanges appends what a commit did to an address; an empty value is no record.
func addressChanges(dst []Change, key, was, is string, unknown bool) ([]Change, error) {
	at, ok := record.ParseAddressKey(key)
	if !ok {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	c := Change{Address: at, Unknown: unknown}
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
	add := func(kind ChangeKind, was, is alloc.Allocation) {
		c.Kind, c.Was, c.Is = kind, was, is
		dst = append(dst, c)
	}
	before, now := c.Was, c.Is
	had, has := holdersOf(before), holdersOf(now)
	for _, h := range had {
		switch is, ok := find(has, h.Seq); {
		case ok:
			if !h.Until.Equal(is.Until) {
				add(LeaseChanged, h, is)
			}
			if h.Attributes != is.Attributes || h.Alternate != is.Alternate {
				add(AttributesChanged, h, is)
			}
			if h.Host != is.Host || h.Handle != is.Handle {
				add(HostChanged, h, is)
			}
		case !now.Cooling || now.Seq != h.Seq:
			add(AddressReleased, h, alloc.Allocation{})
		}
	}
	for i, h := range has {
		if _, ok := find(had, h.Seq); ok {
			continue
		}
		if i > 0 || len(had) > 0 {
			before = alloc.Allocation{}
		}
		add(AddressAssigned, before, h)
	}
	switch {
	case len(had) == 0 && now.Cooling && before != now:
		add(AddressCooling, before, now)
	case now.Cooling && before != now:
		last, _ := find(had, now.Seq)
		add(AddressCooling, last, now)
	case len(had)+len(has) == 0 && before.Cooling && !now.Cooling:
		add(AddressCooled, before, now)
	case is == "" && len(had) == 0 && !before.Cooling:
		add(AddressReleased, before, now) // it is not known what was before
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

// blockChange returns what a commit did to the owner of a block; one that was claimed by its owner has not changed.
func blockChange(key, was, is string, unknown bool) (Change, error) {
	p, ok := record.ParseBlockID(key[1:])
	c := Change{Kind: BlockClaimed, Block: p, Unknown: unknown}
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
		c.Kind = BlockReturned
	case c.Owner.Kind == alloc.Nobody && (was == "" || c.Former.Kind != alloc.Nobody):
		c.Kind = BlockOrphaned
	}
	return c, nil
}

// catalogChanges returns what a commit did to pools and settings.
func catalogChanges(was, is string, unknown bool) (cs []Change, err error) {
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
			cs = append(cs, Change{Kind: PoolRemoved, FormerPool: &p})
		case !samePool(&p, &now.Pools[j]):
			q := now.Pools[j].Clone()
			cs = append(cs, Change{Kind: PoolChanged, Pool: &q, FormerPool: &p})
		}
	}
	for i := range now.Pools {
		if p := now.Pools[i].Clone(); before.ByName(p.Name) < 0 {
			cs = append(cs, Change{Kind: PoolAdded, Pool: &p, Unknown: unknown})
		}
	}
	if unknown || !slices.Equal(before.Reserved, now.Reserved) {
		c := Change{Kind: ReservationsChanged, Unknown: unknown}
		if c.FormerReserved, err = pool.SetOf(before.Reserved); err != nil {
			return nil, err
		}
		if c.Reserved, err = pool.SetOf(now.Reserved); err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	if unknown || before.Config != now.Config {
		cs = append(cs, Change{Kind: ConfigChanged, Config: &now.Config, FormerConfig: &before.Config, Unknown: unknown})
	}
	return cs, nil
}

// samePool reports whether two pools are the same in every field.
func samePool(a, b *pool.Pool) bool {
	x, err := (&pool.Catalog{Pools: []pool.Pool{*a}}).Encode()
	y, err2 := (&pool.Catalog{Pools: []pool.Pool{*b}}).Encode()
	return err == nil && err2 == nil && x == y
}
