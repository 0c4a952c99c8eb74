package ipset

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Plans decide by what they read here, and the commit verifies it: on whatever one of these methods returns the commit
// depends, so that a plan made from a cache that has fallen behind ends in a conflict and is made again, a plan that
// fails, too. Only peek leaves that to its caller.

// block returns a block, advanced to the present.
func (t *txn) block(cat *catalogEntry, p netip.Prefix) (*blockEntry, error) {
	be, err := t.peek(cat, p)
	if err == nil {
		t.Guard(&be.Cell)
	}
	return be, err
}

// entry returns a block as it was read or last written, with what has ended since in part.
func (t *txn) entry(p netip.Prefix) (*blockEntry, error) {
	be := t.blocks.Get(p)
	if be == nil {
		if err := t.Load(blockKey(kindBlock, p)); err != nil {
			return nil, err
		}
		be = t.blocks.Get(p)
	}
	return be, nil
}

// peek is block for those who meet many: they guard what they pick, and make sure of what they pass over.
func (t *txn) peek(cat *catalogEntry, p netip.Prefix) (*blockEntry, error) {
	be, err := t.entry(p)
	if err != nil {
		return nil, err
	}
	if be.Block == nil || be.NextLease() == 0 && be.Cooling() == 0 && len(be.changes.List) == 0 {
		return be, nil
	}
	if all, err := t.advanceSome(cat, be, t.mostEnds(cat, be)); err != nil {
		return nil, err
	} else if !all {
		return nil, &errDue{[]netip.Prefix{be.at}}
	}
	if len(be.changes.List) > 0 && !t.Changed(&be.Cell) && !slices.Contains(t.aged, be.at) {
		t.aged = append(t.aged, be.at)
	}
	return be, nil
}

// fetchAll loads all addresses of a block.
func (t *txn) fetchAll(be *blockEntry) error { return t.fetchOrdinals(be, be.AppendAbsent(nil)) }

// fetchMost is the largest number of addresses that one read loads.
const fetchMost = 1000

// fetchCooling loads the cooling addresses of a block if it is not known when each is free.
func (t *txn) fetchCooling(be *blockEntry) error {
	if be.KnowsCooling() {
		return nil
	}
	var xs []uint64
	for x, until := range be.EachCooling() {
		if until == 0 {
			xs = append(xs, x)
		}
	}
	return t.fetchOrdinals(be, xs)
}

// fetchOrdinals loads addresses of a block.
func (t *txn) fetchOrdinals(be *blockEntry, xs []uint64) error {
	for len(xs) > 0 {
		n := min(fetchMost, len(xs))
		f := fetch{t: t}
		for _, x := range xs[:n] {
			f.add(be.at, be.Addr(x))
		}
		if err := f.run(); err != nil {
			return err
		}
		xs = xs[n:]
	}
	return nil
}

// ready loads an address of a block if it is held or cooling, and what the release of a cooling one from the queue needs.
func (t *txn) ready(be *blockEntry, a netip.Addr) error {
	f := fetch{t: t}
	f.add(be.at, a)
	if err := f.run(); err != nil {
		return err
	}
	if x, err := be.Block.Ordinal(a); err == nil && be.IsCooling(x) {
		return t.fetchCooling(be)
	}
	return nil
}

// fetch loads addresses, and those of their blocks that the cache lacks, in one round trip.
type fetch struct {
	t      *txn
	keys   []string
	places []netip.Prefix // of each address its block; addresses follow the blocks in keys
	addrs  []netip.Addr
	others []netip.Prefix // blocks whose addresses are known, read again with them to see whether they have changed
	few    [4]netip.Prefix
}

// add asks for an address that may be in a block. It costs nothing if all is known of it.
func (f *fetch) add(block netip.Prefix, a netip.Addr) {
	if be := f.t.blocks.Get(block); be != nil && be.knows(a) {
		if f.others == nil {
			f.others = f.few[:0]
		}
		if n := len(f.others); n == 0 || f.others[n-1] != block {
			f.others = append(f.others, block)
		}
		return
	}
	f.places, f.addrs = append(f.places, block), append(f.addrs, a)
}

// knows reports whether the cached block has what is held or cooling at an address.
func (be *blockEntry) knows(a netip.Addr) bool {
	if be.Block == nil || be.Absent() == 0 {
		return true
	}
	x, err := be.Block.Ordinal(a)
	return err != nil || !be.IsAbsent(x)
}

// run reads. A block whose addresses are read is read with them: they are its addresses only at the revision that is known. All
// blocks that have changed since are taken over together, so that a cache that is behind causes one conflict, not one a block.
func (f *fetch) run() error {
	if len(f.addrs) == 0 {
		return nil
	}
	for _, blocks := range [...][]netip.Prefix{f.places, f.others} {
		for i, p := range blocks {
			if i == 0 || blocks[i-1] != p {
				f.keys = append(f.keys, blockKey(kindBlock, p))
			}
		}
	}
	slices.Sort(f.keys)
	f.keys = slices.Compact(f.keys)
	blocks := len(f.keys)
	for _, a := range f.addrs {
		f.keys = append(f.keys, addressKey(a))
	}
	recs, err := f.t.Records(f.keys...)
	if err != nil {
		return err
	}
	var changed error
	for _, r := range recs[:blocks] {
		if c := f.t.Known(r.Key); c != nil && c.Rev != r.Rev {
			f.t.Forget(r.Key)
			changed = store.Conflict("ipset", r.Key)
		}
		if err := f.t.See(r); err != nil {
			return err
		}
	}
	if err := f.load(recs[blocks:]); err != nil {
		return err
	}
	return changed
}

// load keeps the records of the addresses.
func (f *fetch) load(recs []store.Record) error {
	for i, r := range recs {
		be := f.t.blocks.Get(f.places[i])
		if be == nil || be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(f.addrs[i])
		if err != nil || !be.IsAbsent(x) {
			continue
		}
		if err := be.Block.LoadRecord(x, r.Value); err != nil {
			return wrap(ipalloc.Error{Op: "read", Addr: f.addrs[i], Prefix: be.at, Err: err})
		}
	}
	return nil
}

// fetchAt loads those of some addresses that are held or cooling in blocks of their pools' present size.
func (t *txn) fetchAt(cat *catalogEntry, addrs iter.Seq[netip.Addr]) error {
	f := fetch{t: t}
	for a := range addrs {
		if i := cat.containing(a); i >= 0 {
			f.add(netip.PrefixFrom(a, cat.Pools[i].BlockBits).Masked(), a)
		}
	}
	return f.run()
}

// fetchPlaces loads blocks with all addresses, and addresses with the prefix lengths of their blocks. The blocks must be known.
func (t *txn) fetchPlaces(places []netip.Prefix) error {
	var changed error
	f := fetch{t: t}
	run := func() error {
		err := f.run()
		if f = (fetch{t: t}); isConflict(err) {
			changed, err = err, nil
		}
		return err
	}
	for _, id := range places {
		be := t.blocks.Get(id.Masked())
		if be == nil || be.Block == nil {
			continue
		}
		if id != be.at || be.Absent() == 0 {
			f.add(be.at, id.Addr())
			continue
		}
		for _, x := range be.AppendAbsent(nil) {
			if f.add(be.at, be.Addr(x)); len(f.addrs) == fetchMost {
				if err := run(); err != nil {
					return err
				}
			}
		}
	}
	if err := run(); err != nil {
		return err
	}
	return changed
}

// assumeAbsent saves the reading of a block whose page says that it does not exist: if it does, the commit that makes
// it is in conflict, and it is read then.
func (t *txn) assumeAbsent(p netip.Prefix) *blockEntry {
	be := t.blocks.Get(p)
	if be == nil {
		be, _ = readBlock(p, store.Record{Key: blockKey(kindBlock, p)}) // the pool's block size has been checked
		t.blocks.Put(p, be)
	}
	t.Guard(&be.Cell)
	return be
}

// warm reads those of the blocks that the cache lacks, in one round trip.
func (t *txn) warm(blocks []netip.Prefix) error {
	var keys []string
	for _, p := range blocks {
		if t.blocks.Get(p) == nil {
			keys = append(keys, blockKey(kindBlock, p))
		}
	}
	return t.Load(keys...)
}

// pageKeys appends the keys of a page, of its floor and of the pages above it, up to the one that spans the pool, as far as the
// cache lacks them.
func (t *txn) pageKeys(keys []string, pool netip.Prefix, id pageID) []string {
	if id.Level == 0 && t.pages.Get(id.floor()) == nil {
		keys = append(keys, id.floor().key())
	}
	for ok := true; ok; {
		if t.pages.Get(id) == nil {
			keys = append(keys, id.key())
		}
		if int(id.bits)-space.Bits*(int(id.Level)+1) <= pool.Bits() {
			break // a page of level n spans 2^(space.Bits*(n+1)) blocks: this one spans the pool
		}
		id, _, ok = id.parent()
	}
	return keys
}

// nextSize returns the first block size from size on of which there is a block in a family, or was one that has handed out an address.
func (t *txn) nextSize(v6 bool, size int) (int, bool, error) {
	recs, err := t.List(pageRange(v6, size, 0, addr.U128{}, addr.U128{}, true))
	if err != nil || len(recs) == 0 {
		return 0, false, err
	}
	id, ok := parsePageKey(recs[0].Key)
	if !ok {
		return 0, false, fmt.Errorf("%w: space page %q", ipalloc.ErrCorrupt, recs[0].Key)
	}
	return int(id.bits), true, nil
}
