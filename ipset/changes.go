package ipset

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
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

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

// Change is one thing that a commit changed. The fields that its Kind does not name are zero.
type Change struct {
	Kind ChangeKind
	// Address is the address of the kinds that are about one. Was and Is are its record before and after the commit, zero for none.
	Address netip.Addr
	Was, Is Allocation
	// Block is the block of the kinds that are about one, Owner its owner after the commit and Former its owner before.
	Block         netip.Prefix
	Owner, Former Owner

	Pool, FormerPool         *Pool
	Reserved, FormerReserved *netipx.IPSet
	Config, FormerConfig     *Config

	// Unknown is set if the state before is not known, which happens only to the first change of a record after a start at a
	// revision. The change is then reported as if nothing had been before, such as AddressAssigned for a renewed lease. Pools and
	// settings are one record: all of them are reported then, as they are.
	Unknown bool
}

// Commit is what one commit changed.
type Commit struct {
	// Rev is the revision of the commit. Changes continues after it.
	Rev uint64
	// Present is set for the state at the beginning, as if one commit had made it. More is set if a further part of it follows.
	Present, More bool
	Changes       []Change
}

// presentPart is how many changes a part of the state at the beginning has at most.
const presentPart = 1000

// Changes yields what every commit after revision after changed, in commit order, until ctx ends or the caller breaks the loop. With
// after 0 it yields the present state first, in parts, and then the commits after that state: nothing is missed between the two.
// An error is the last thing it yields.
//
// Commits come from all engines on the store. Those that change no address, block, pool or setting of this engine's space are passed
// over. In a commit, changes of pools and settings come first, then claimed blocks, then addresses in address order, then blocks
// given up.
//
// A change is reported when a commit writes it. A lease that has ended, and an address that has cooled, are reported when some call
// next changes the block, at the latest by [Engine.Sweep].
//
// Changes says what was before from the records that it has seen. It begins with one list of all addresses and blocks and keeps
// their records in memory, so it costs O(n) at the start and some 170 bytes an address with a handle of 40 bytes. With after above 0,
// a record that was changed between that revision and the start may be Unknown once: keep the holders beside the revision if you
// need them.
//
// Errors: [store.ErrCompacted] if the store no longer has the commits after that revision, or if the loop body is so slow that
// the store forgets commits before they are delivered: begin again with 0, and take the state that comes as the outcome of all
// that was missed. [ipalloc.ErrCorrupt] for a record that cannot be read. Else the error of the store or of ctx.
//
// No lock is held while the loop body runs, and no goroutine outlives the loop.
func (e *Engine) Changes(ctx context.Context, after uint64) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		fail := func(err error) {
			if err != nil {
				yield(Commit{}, wrap(ipalloc.Error{Op: "follow changes", Err: err}))
			}
		}
		recs, rev, err := e.store.List(ctx, store.Range{From: kindAddress, To: poolsKey + "\x00"})
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
		for ev, err := range e.store.Watch(ctx, rev, kindAddress, kindBlock, kindCatalog) {
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
	b, c := from(kindBlock), from(kindCatalog)
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
		case kindAddress:
			addresses, err = addressChanges(addresses, r.Key, was, r.Value, unknown)
		case kindBlock:
			var c Change
			switch c, err = blockChange(r.Key, was, r.Value, unknown); {
			case c.Kind == BlockClaimed && c.Owner != c.Former:
				claimed = append(claimed, c)
			case c.Kind != BlockClaimed:
				gone = append(gone, c)
			}
		case kindCatalog:
			if r.Key != poolsKey {
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
	at, ok := parseAddressKey(key)
	if !ok {
		return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	c := Change{Address: at, Unknown: unknown}
	for _, v := range []struct {
		to    *Allocation
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
	add := func(kind ChangeKind, was, is Allocation) {
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
			add(AddressReleased, h, Allocation{})
		}
	}
	for i, h := range has {
		if _, ok := find(had, h.Seq); ok {
			continue
		}
		if i > 0 || len(had) > 0 {
			before = Allocation{}
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
func holdersOf(a Allocation) []Allocation {
	if !a.Address.IsValid() || a.Cooling {
		return nil
	}
	return slices.Collect(a.Holders())
}

// find returns the holder with a sequence number.
func find(holders []Allocation, seq uint64) (Allocation, bool) {
	i := slices.IndexFunc(holders, func(h Allocation) bool { return h.Seq == seq })
	if i < 0 {
		return Allocation{}, false
	}
	return holders[i], true
}

// blockChange returns what a commit did to the owner of a block; one that was claimed by its owner has not changed.
func blockChange(key, was, is string, unknown bool) (Change, error) {
	p, ok := parseBlockID(key[1:])
	c := Change{Kind: BlockClaimed, Block: p, Unknown: unknown}
	if !ok {
		return c, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	for _, v := range []struct {
		to    *Owner
		value string
	}{{&c.Former, was}, {&c.Owner, is}} {
		if v.value == "" {
			continue
		}
		b, err := block.Decode(p, v.value)
		if err != nil {
			return c, wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
		*v.to = b.Owner()
	}
	switch {
	case is == "":
		c.Kind = BlockReturned
	case c.Owner.Kind == Nobody && (was == "" || c.Former.Kind != Nobody):
		c.Kind = BlockOrphaned
	}
	return c, nil
}

// catalogChanges returns what a commit did to pools and settings.
func catalogChanges(was, is string, unknown bool) (cs []Change, err error) {
	before, err := decodeCatalog(was)
	if err != nil {
		return nil, err
	}
	now, err := decodeCatalog(is)
	if err != nil {
		return nil, err
	}
	for i := range before.Pools {
		p := before.Pools[i].clone()
		switch j := now.byName(p.Name); {
		case j < 0:
			cs = append(cs, Change{Kind: PoolRemoved, FormerPool: &p})
		case !samePool(&p, &now.Pools[j]):
			q := now.Pools[j].clone()
			cs = append(cs, Change{Kind: PoolChanged, Pool: &q, FormerPool: &p})
		}
	}
	for i := range now.Pools {
		if p := now.Pools[i].clone(); before.byName(p.Name) < 0 {
			cs = append(cs, Change{Kind: PoolAdded, Pool: &p, Unknown: unknown})
		}
	}
	if unknown || !slices.Equal(before.Reserved, now.Reserved) {
		c := Change{Kind: ReservationsChanged, Unknown: unknown}
		if c.FormerReserved, err = setOf(before.Reserved); err != nil {
			return nil, err
		}
		if c.Reserved, err = setOf(now.Reserved); err != nil {
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
func samePool(a, b *Pool) bool {
	x, err := (&catalog{Pools: []Pool{*a}}).encode()
	y, err2 := (&catalog{Pools: []Pool{*b}}).encode()
	return err == nil && err2 == nil && x == y
}
