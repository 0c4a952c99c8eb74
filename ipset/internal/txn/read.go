package txn

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/space"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A round trip costs a hundred times what a plan costs. So reads are gathered: blocks with their addresses, pages with those
// above them, and only what the cache lacks.

// ReadMost is how many records are read at once.
const ReadMost = 1000

// Plans decide by what they read here, and the commit verifies it: on whatever one of these methods returns the commit
// depends, so that a plan made from a cache that has fallen behind ends in a conflict and is made again, a plan that
// fails, too. Only Peek leaves that to its caller.

// Block returns a block, advanced to the present.
func (t *Txn) Block(cat *CatalogEntry, p netip.Prefix) (*BlockEntry, error) {
	be, err := t.Peek(cat, p)
	if err == nil {
		t.Guard(&be.Cell)
	}
	return be, err
}

// entry returns a block as it was read or last written, with what has ended since in part.
func (t *Txn) entry(p netip.Prefix) (*BlockEntry, error) {
	be := t.Blocks.Get(p)
	if be == nil {
		if err := t.Load(record.BlockKey(record.KindBlock, p)); err != nil {
			return nil, err
		}
		be = t.Blocks.Get(p)
	}
	return be, nil
}

// Peek is Block for callers that meet many: they guard what they pick, and make sure of what they pass over.
func (t *Txn) Peek(cat *CatalogEntry, p netip.Prefix) (*BlockEntry, error) {
	be, err := t.entry(p)
	if err != nil {
		return nil, err
	}
	if be.Block == nil || be.NextLease() == 0 && be.Cooling() == 0 && len(be.Changes.List) == 0 {
		return be, nil
	}
	if all, err := t.advanceSome(cat, be, t.mostEnds(cat, be)); err != nil {
		return nil, err
	} else if aged := len(be.Changes.List) > 0 && !t.Changed(&be.Cell); !all || aged && be.IsEmpty() && be.Owner().Kind == alloc.Nobody {
		return nil, &ErrDue{[]netip.Prefix{be.At}} // a block that time empties is deleted if nobody owns it
	} else if aged && !slices.Contains(t.aged, be.At) {
		t.aged = append(t.aged, be.At)
	}
	return be, nil
}

// FetchAll loads all addresses of a block.
func (t *Txn) FetchAll(be *BlockEntry) error { return t.fetchOrdinals(be, be.AppendAbsent(nil)) }

// fetchMost is the largest number of addresses that one read loads.
const fetchMost = 1000

// FetchCooling loads the cooling addresses of a block if it is not known when each is free.
func (t *Txn) FetchCooling(be *BlockEntry) error { return t.fetchOrdinals(be, be.absentCooling()) }

// absentCooling returns the cooling ordinals of which it is not known when they are free.
func (be *BlockEntry) absentCooling() (xs []uint64) {
	if be.KnowsCooling() {
		return nil
	}
	for x, until := range be.EachCooling() {
		if until == 0 {
			xs = append(xs, x)
		}
	}
	return xs
}

// fetchOrdinals loads addresses of a block.
func (t *Txn) fetchOrdinals(be *BlockEntry, xs []uint64) error {
	for len(xs) > 0 {
		n := min(fetchMost, len(xs))
		f := Fetch{T: t}
		for _, x := range xs[:n] {
			f.Add(be.At, be.Addr(x))
		}
		if err := f.Run(); err != nil {
			return err
		}
		xs = xs[n:]
	}
	return nil
}

// Ready loads an address of a block if it is held or cooling, and what the release of a cooling one from the queue needs.
func (t *Txn) Ready(be *BlockEntry, a netip.Addr) error {
	f := t.fetching()
	f.Add(be.At, a)
	if err := f.Run(); err != nil {
		return err
	}
	if x, err := be.Block.Ordinal(a); err == nil && be.IsCooling(x) {
		return t.FetchCooling(be)
	}
	return nil
}

// Fetch loads addresses, and those of their blocks that the cache lacks, in one round trip.
type Fetch struct {
	T      *Txn
	Keys   []string
	Places []netip.Prefix // of each address its block; addresses follow the blocks in keys
	Addrs  []netip.Addr
	Others []netip.Prefix // blocks whose addresses are known, read again with them to see whether they have changed
	few    [4]netip.Prefix
}

// fetching returns an empty Fetch, which lasts until the next call.
func (t *Txn) fetching() *Fetch {
	f := &t.fetch
	*f = Fetch{T: t, Keys: f.Keys[:0], Places: f.Places[:0], Addrs: f.Addrs[:0], Others: f.Others[:0]}
	return f
}

// Add asks for an address that may be in a block. It costs nothing if all is known of it.
func (f *Fetch) Add(block netip.Prefix, a netip.Addr) {
	if be := f.T.Blocks.Get(block); be != nil && be.knows(a) {
		if f.Others == nil {
			f.Others = f.few[:0]
		}
		if n := len(f.Others); n == 0 || f.Others[n-1] != block {
			f.Others = append(f.Others, block)
		}
		return
	}
	f.Places, f.Addrs = append(f.Places, block), append(f.Addrs, a)
}

// knows reports whether the cached block has what is held or cooling at an address.
func (be *BlockEntry) knows(a netip.Addr) bool {
	if be.Block == nil || be.Absent() == 0 {
		return true
	}
	x, err := be.Block.Ordinal(a)
	return err != nil || !be.IsAbsent(x)
}

// Run reads. A block whose addresses are read is read with them: they are its addresses only at the revision that is known. All
// blocks that have changed since are taken over together, so that a cache that is behind causes one conflict, not one a block.
func (f *Fetch) Run() error {
	if len(f.Addrs) == 0 {
		return nil
	}
	for _, blocks := range [...][]netip.Prefix{f.Places, f.Others} {
		for i, p := range blocks {
			if i == 0 || blocks[i-1] != p {
				f.Keys = append(f.Keys, record.BlockKey(record.KindBlock, p))
			}
		}
	}
	slices.Sort(f.Keys)
	f.Keys = slices.Compact(f.Keys)
	blocks := len(f.Keys)
	for _, a := range f.Addrs {
		f.Keys = append(f.Keys, record.AddressKey(a))
	}
	recs, err := f.T.Records(f.Keys...)
	if err != nil {
		return err
	}
	var changed error
	for _, r := range recs[:blocks] {
		if c := f.T.Known(r.Key); c != nil && c.Rev != r.Rev {
			f.T.Forget(r.Key)
			changed = store.Conflict("ipset", r.Key)
		}
		if err := f.T.See(r); err != nil {
			return err
		}
	}
	if err := f.load(recs[blocks:]); err != nil {
		return err
	}
	return changed
}

// load keeps the records of the addresses.
func (f *Fetch) load(recs []store.Record) error {
	for i, r := range recs {
		be := f.T.Blocks.Get(f.Places[i])
		if be == nil || be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(f.Addrs[i])
		if err != nil || !be.IsAbsent(x) {
			continue
		}
		if err := be.Block.LoadRecord(x, r.Value); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "read", Addr: f.Addrs[i], Prefix: be.At, Err: err})
		}
	}
	return nil
}

// FetchAt loads those of some addresses that are held or cooling.
func (t *Txn) FetchAt(cat *CatalogEntry, addrs iter.Seq[netip.Addr]) error {
	f := Fetch{T: t}
	for a := range addrs {
		if i := cat.Containing(a); i >= 0 {
			for _, at := range cat.Pools[i].BlocksOf(a) {
				f.Add(at, a)
			}
		}
	}
	return f.Run()
}

// FetchPlaces loads blocks with all addresses, and addresses with the prefix lengths of their blocks. The blocks must be known.
func (t *Txn) FetchPlaces(places []netip.Prefix) error {
	var changed error
	f := Fetch{T: t}
	run := func() error {
		err := f.Run()
		if f = (Fetch{T: t}); cause.IsConflict(err) {
			changed, err = err, nil
		}
		return err
	}
	for _, id := range places {
		be := t.Blocks.Get(id.Masked())
		if be == nil || be.Block == nil {
			continue
		}
		if id != be.At || be.Absent() == 0 {
			f.Add(be.At, id.Addr())
			continue
		}
		for _, x := range be.AppendAbsent(nil) {
			if f.Add(be.At, be.Addr(x)); len(f.Addrs) == fetchMost {
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
func (t *Txn) assumeAbsent(p netip.Prefix) *BlockEntry {
	be := t.Blocks.Get(p)
	if be == nil {
		be, _ = t.readBlock(p, store.Record{Key: record.BlockKey(record.KindBlock, p)}) // the pool's block size has been checked
		t.Blocks.Put(p, be)
	}
	t.Guard(&be.Cell)
	return be
}

// Warm reads those of the blocks that the cache lacks, or may have as they were, in one round trip.
func (t *Txn) Warm(blocks []netip.Prefix) error {
	var keys []string
	for _, p := range blocks {
		if be := t.Blocks.Get(p); be == nil || t.Doubtful(&be.Cell) {
			keys = append(keys, record.BlockKey(record.KindBlock, p))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return t.Read(keys...)
}

// PageKeys appends the keys of a page, of its floor and of the pages above it, up to the one that spans the pool, as far as the
// cache lacks them.
func (t *Txn) PageKeys(keys []string, pool netip.Prefix, id record.PageID) []string {
	if id.Level == 0 && t.Pages.Get(id.Floor()) == nil {
		keys = append(keys, id.Floor().Key())
	}
	for ok := true; ok; {
		if t.Pages.Get(id) == nil {
			keys = append(keys, id.Key())
		}
		if int(id.Bits)-space.Bits*(int(id.Level)+1) <= pool.Bits() {
			break // a page of level n spans 2^(space.Bits*(n+1)) blocks: this one spans the pool
		}
		id, _, ok = id.Up()
	}
	return keys
}

// NextSize returns the first block size from size on of which there is a block in a family, or was one that has handed out an address.
func (t *Txn) NextSize(v6 bool, size int) (int, bool, error) {
	recs, err := t.List(record.PageRange(v6, size, 0, addr.U128{}, addr.U128{}, true))
	if err != nil || len(recs) == 0 {
		return 0, false, err
	}
	id, ok := record.ParsePageKey(recs[0].Key)
	if !ok {
		return 0, false, fmt.Errorf("%w: page of a pool %q", ipalloc.ErrCorrupt, recs[0].Key)
	}
	return int(id.Bits), true, nil
}
