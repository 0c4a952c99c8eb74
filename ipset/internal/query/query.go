package query

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A query reads outside of any plan and rests on nothing afterwards. It shows blocks as time has left them, although nothing is
// written: an ended lease is not held for any caller.

// Lookup carries out the call of that name.
func (e *Reader) Lookup(ctx context.Context, a netip.Addr) (alloc.Allocation, error) {
	fail := func(al alloc.Allocation, err error) (alloc.Allocation, error) {
		return al, cause.Wrap(ipalloc.Error{Op: "look up", Addr: a, Err: err})
	}
	if addr.CheckAddr(a) != nil {
		return fail(alloc.Allocation{}, cause.BadAddress)
	}
	als, err := e.readStates(ctx, []string{record.AddressKey(a)}, func(alloc.Allocation) bool { return true })
	switch {
	case err != nil:
		return fail(alloc.Allocation{}, err)
	case len(als) == 0:
		return fail(alloc.Allocation{}, ipalloc.ErrNotHeld)
	case als[0].Cooling:
		return fail(als[0], txn.InTheWay(als[0], ipalloc.ErrCooling))
	}
	return als[0], nil
}

// ReadAddresses reads the records of some addresses, and returns an allocation for each holder that keep accepts.
func (e *Reader) ReadAddresses(ctx context.Context, keys []string, keep func(alloc.Allocation) bool) ([]alloc.Allocation, error) {
	return e.readStates(ctx, keys, func(al alloc.Allocation) bool { return !al.Cooling && keep(al) })
}

// readStates reads the catalog and the records of some addresses, held or cooling, and returns an allocation for each
// holder that keep accepts.
func (e *Reader) readStates(ctx context.Context, keys []string, keep func(alloc.Allocation) bool) ([]alloc.Allocation, error) {
	var als []alloc.Allocation
	now, err := e.Past()
	if err != nil {
		return nil, err
	}
	for len(keys) > 0 {
		n := min(len(keys), txn.ReadMost)
		recs, err := e.Store.Get(ctx, nil, append([]string{record.CatalogKey}, keys[:n]...)...)
		if err != nil {
			return nil, err
		}
		cat, err := e.DecodeCatalog(ctx, recs[0])
		if cause.IsConflict(err) {
			continue // the pools have changed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range recs[1:] {
			if rec.Rev == 0 {
				continue
			}
			al, busy, err := readAllocation(cat, rec.Key, rec.Value, now)
			if err != nil {
				return nil, err
			}
			for h := range al.Holders() {
				if busy && keep(h) {
					als = append(als, h)
				}
			}
		}
		keys = keys[n:]
	}
	return als, nil
}

// readAllocation describes the address of a record as it is at the moment now, and reports false if it is free by then.
func readAllocation(cat *pool.Catalog, key, value string, now int64) (alloc.Allocation, bool, error) {
	at, ok := record.ParseAddressKey(key)
	a, length, err := block.DecodeAddress(value)
	if err == nil && (!ok || length > at.BitLen()) {
		err = fmt.Errorf("%w: address record %q", ipalloc.ErrCorrupt, key)
	}
	if err != nil {
		return alloc.Allocation{}, false, err
	}
	cooldown := int64(0)
	if cat != nil && !a.Cooling && a.Until != 0 && a.Until <= now {
		cooldown = cat.Cooldown(netip.PrefixFrom(at, length).Masked())
	}
	a, busy := a.At(now, cooldown)
	return a.Allocation(at, length), busy, nil
}

// BlockOf carries out the call of that name.
func (e *Reader) BlockOf(ctx context.Context, a netip.Addr) (*block.Block, error) {
	if addr.CheckAddr(a) != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Addr: a, Err: cause.BadAddress})
	}
	cat, recs, err := e.readAround(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, rec := range recs {
		if p, ok := record.ParseBlockID(rec.Key[1:]); ok && rec.Rev != 0 && p.Contains(a) {
			return e.readBlock(ctx, cat, p)
		}
	}
	return nil, nil
}

// readAround reads the catalog and the blocks that an address may be in: together by the catalog as it was last seen, and
// the blocks once more if it is another now.
func (e *Reader) readAround(ctx context.Context, a netip.Addr) (*pool.Catalog, []store.Record, error) {
	keys := []string{record.CatalogKey}
	guess := e.Decoded.Load()
	if guess != nil {
		keys = guess.AppendKeys(keys, a)
	}
	recs, err := e.Store.Get(ctx, nil, keys...)
	if err != nil {
		return nil, nil, err
	}
	cat, err := e.DecodeCatalog(ctx, recs[0])
	if cause.IsConflict(err) {
		return e.readAround(ctx, a) // the pools have changed meanwhile
	}
	if err != nil {
		return nil, nil, err
	}
	if guess == nil || guess.Rev != recs[0].Rev {
		keys = cat.AppendKeys(keys[:1], a)
		if recs, err = e.Store.Get(ctx, nil, keys...); err != nil {
			return nil, nil, err
		}
	}
	if len(keys) > 1 {
		return cat, recs[1:], nil
	}
	recs, _, err = e.Store.List(ctx, record.BlockBefore(a)) // it may be in a block that a pool has left behind
	return cat, recs, err
}

// readBlock reads a block with its addresses, advanced to the present; nil if there is none.
func (e *Reader) readBlock(ctx context.Context, cat *pool.Catalog, p netip.Prefix) (*block.Block, error) {
	now, err := e.Past()
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		recs, err := e.Store.Get(ctx, nil, record.BlockKey(record.KindBlock, p))
		if err != nil || recs[0].Rev == 0 {
			return nil, err
		}
		addrs, _, err := e.Store.List(ctx, record.AddressRange(p))
		if err != nil {
			return nil, err
		}
		b, err := wholeBlock(p, recs[0], addrs)
		if err == nil {
			b.AdvanceTo(now, cat.Cooldown(p), math.MaxInt)
			return b, nil
		}
		if tries == e.Tries {
			return nil, cause.Wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
		}
	}
}

// wholeBlock puts a block and its address records together. They may have been read one after the other: that they are of one
// moment is seen by the revisions, because every commit that writes an address writes its block.
func wholeBlock(p netip.Prefix, rec store.Record, addrs []store.Record) (*block.Block, error) {
	b, err := block.Decode(p, rec.Value)
	if err != nil {
		return nil, err
	}
	for _, r := range addrs {
		a, ok := record.ParseAddressKey(r.Key)
		x, err := b.Ordinal(a)
		if !ok || err != nil || r.Rev > rec.Rev || !b.IsAbsent(x) {
			return nil, fmt.Errorf("%w: address record %q", ipalloc.ErrCorrupt, r.Key)
		}
		if err := b.LoadRecord(x, r.Value); err != nil {
			return nil, err
		}
	}
	return b, b.Complete()
}

// Pages yields the records of a range in key order, a page at a time. An error ends the loop.
func (e *Reader) Pages(ctx context.Context, r store.Range) iter.Seq2[[]store.Record, error] {
	r.Limit = cmp.Or(r.Limit, txn.ReadMost)
	return func(yield func([]store.Record, error) bool) {
		for {
			recs, _, err := e.Store.List(ctx, r)
			if (err != nil || len(recs) > 0) && !yield(recs, err) || len(recs) < r.Limit {
				return
			}
			r.From = recs[len(recs)-1].Key + "\x00"
		}
	}
}

// blocksPage is how many blocks are read with their addresses at a time.
const blocksPage = 64

// Blocks carries out the call of that name.
func (e *Reader) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[*block.Block, error] {
	return func(yield func(*block.Block, error) bool) {
		r := store.Range{From: record.KindBlock, To: record.KindBlock + "\xff"}
		if p != (netip.Prefix{}) {
			if err := block.CheckPrefix(p); err != nil {
				yield(nil, cause.Op("list blocks", err))
				return
			}
			r = record.BlockRange(record.KindBlock, p)
		}
		r.Limit = blocksPage
		cat, err := e.ReadCatalog(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for recs, err := range e.Pages(ctx, r) {
			more := true
			if err == nil {
				more, err = e.blocksOf(ctx, cat, recs, func(b *block.Block) bool { return yield(b, nil) })
			}
			if err != nil {
				yield(nil, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// blocksOf yields the blocks of some records with their addresses, advanced to the present; more is false if yield ended it. It
// lists the addresses from the first of these blocks to the last, once for each family.
func (e *Reader) blocksOf(ctx context.Context, cat *pool.Catalog, recs []store.Record, yield func(*block.Block) bool) (more bool, err error) {
	now, err := e.Past()
	if err != nil {
		return true, err
	}
	for i := 0; i < len(recs); {
		// Blocks of one family are read together; the range of their addresses has nothing else.
		first, ok := record.ParseBlockID(recs[i].Key[1:])
		if !ok {
			return true, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, recs[i].Key)
		}
		j, last := i, first
		for ; j < len(recs); j++ {
			p, ok := record.ParseBlockID(recs[j].Key[1:])
			if !ok || p.Addr().Is4() != first.Addr().Is4() {
				break
			}
			last = p
		}
		addrs, _, err := e.Store.List(ctx, store.Range{From: record.AddressKey(first.Addr()), To: record.AddressKey(record.LastAddr(last)) + "\x00"})
		if err != nil {
			return true, err
		}
		for ; i < j; i++ {
			p, _ := record.ParseBlockID(recs[i].Key[1:])
			r := record.AddressRange(p)
			from, _ := slices.BinarySearchFunc(addrs, r.From, func(rec store.Record, key string) int { return strings.Compare(rec.Key, key) })
			to, _ := slices.BinarySearchFunc(addrs, r.To, func(rec store.Record, key string) int { return strings.Compare(rec.Key, key) })
			b, err := wholeBlock(p, recs[i], addrs[from:to])
			if err == nil {
				b.AdvanceTo(now, cat.Cooldown(p), math.MaxInt)
			} else if b, err = e.readBlock(ctx, cat, p); err != nil {
				return true, err
			}
			if b != nil && !yield(b) {
				return false, nil
			}
		}
	}
	return true, nil
}

// Allocations carries out the call of that name.
func (e *Reader) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[alloc.Allocation, error] {
	return func(yield func(alloc.Allocation, error) bool) {
		r := store.Range{From: record.KindAddress, To: record.KindAddress + "\xff"}
		if p != (netip.Prefix{}) {
			if err := block.CheckPrefix(p); err != nil {
				yield(alloc.Allocation{}, cause.Op("list allocations", err))
				return
			}
			r = record.AddressRange(p)
		}
		now, err := e.Past()
		var cat *pool.Catalog
		if err == nil {
			cat, err = e.ReadCatalog(ctx)
		}
		if err != nil {
			yield(alloc.Allocation{}, err)
			return
		}
		for recs, err := range e.Pages(ctx, r) {
			for _, rec := range recs {
				var al alloc.Allocation
				var busy bool
				if al, busy, err = readAllocation(cat, rec.Key, rec.Value, now); err != nil {
					break
				}
				if busy && !yield(al, nil) {
					return
				}
			}
			if err != nil {
				yield(alloc.Allocation{}, err)
				return
			}
		}
	}
}

// IPsByHandle carries out the call of that name.
func (e *Reader) IPsByHandle(ctx context.Context, handle string) ([]alloc.Allocation, error) {
	if err := cause.Name("handle", handle); err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Err: err})
	}
	als, err := e.indexed(ctx, record.HandleRange(handle), func(al alloc.Allocation) bool { return al.Handle == handle })
	return als, cause.Of("look up", handle, err)
}

// EachBlock calls do with each of the blocks that exist, without their addresses, all as they are at one moment.
func (e *Reader) EachBlock(ctx context.Context, blocks []netip.Prefix, do func(*block.Block)) error {
	if len(blocks) == 0 {
		return nil
	}
	keys := make([]string, len(blocks))
	for i, p := range blocks {
		keys[i] = record.BlockKey(record.KindBlock, p)
	}
	recs, err := e.Store.Get(ctx, nil, keys...)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if rec.Rev == 0 {
			continue
		}
		b, err := block.Decode(blocks[i], rec.Value)
		if err != nil {
			return cause.Wrap(ipalloc.Error{Op: "read", Prefix: blocks[i], Err: err})
		}
		do(b)
	}
	return nil
}

// BlocksOf carries out the call of that name.
func (e *Reader) BlocksOf(ctx context.Context, o alloc.Owner) ([]netip.Prefix, error) {
	own, _, err := e.Owned(ctx, o, record.CodeRange(record.KindOwner, o))
	return own, err
}

// Owned returns the blocks of an owner in a range of its records: own are its present blocks, had its former ones.
func (e *Reader) Owned(ctx context.Context, o alloc.Owner, r store.Range) (own, had []netip.Prefix, err error) {
	if err := o.Check(); err != nil {
		return nil, nil, err
	}
	recs, _, err := e.Store.List(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	return record.BlocksOf(o, recs)
}
