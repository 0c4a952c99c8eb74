package ipset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Lookup returns the allocation of an address as it is in the store. Of a shared one it is that of the first holder, and
// [Allocation.Holders] yields all. It returns [ipalloc.ErrNotHeld] for one that is not held,
// [ipalloc.ErrCooling] with the allocation for one that is cooling, and [ipalloc.ErrInvalid]. One round trip.
func (e *Engine) Lookup(ctx context.Context, a netip.Addr) (Allocation, error) {
	fail := func(al Allocation, err error) (Allocation, error) {
		return al, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: err})
	}
	if addr.CheckAddr(a) != nil {
		return fail(Allocation{}, errBadAddress)
	}
	als, err := e.readStates(ctx, []string{addressKey(a)}, func(Allocation) bool { return true })
	switch {
	case err != nil:
		return fail(Allocation{}, err)
	case len(als) == 0:
		return fail(Allocation{}, ipalloc.ErrNotHeld)
	case als[0].Cooling:
		return fail(als[0], inTheWay(als[0], ipalloc.ErrCooling))
	}
	return als[0], nil
}

// readMost is how many records are read at once.
const readMost = 1000

// readAddresses reads the records of some addresses, and returns those of their holders that keep accepts.
func (e *Engine) readAddresses(ctx context.Context, keys []string, keep func(Allocation) bool) ([]Allocation, error) {
	return e.readStates(ctx, keys, func(al Allocation) bool { return !al.Cooling && keep(al) })
}

// readStates reads the catalog and the records of some addresses, and returns those of their holders that keep accepts, of
// addresses held or cooling.
func (e *Engine) readStates(ctx context.Context, keys []string, keep func(Allocation) bool) ([]Allocation, error) {
	var als []Allocation
	now, err := e.past()
	if err != nil {
		return nil, err
	}
	for len(keys) > 0 {
		n := min(len(keys), readMost)
		recs, err := e.store.Get(ctx, nil, append([]string{catalogKey}, keys[:n]...)...)
		if err != nil {
			return nil, err
		}
		cat, err := e.decodeCatalog(ctx, recs[0])
		if isConflict(err) {
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
func readAllocation(cat *catalog, key, value string, now int64) (Allocation, bool, error) {
	at, ok := parseAddressKey(key)
	a, length, err := block.DecodeAddress(value)
	if err == nil && (!ok || length > at.BitLen()) {
		err = fmt.Errorf("%w: address record %q", ipalloc.ErrCorrupt, key)
	}
	if err != nil {
		return Allocation{}, false, err
	}
	cooldown := int64(0)
	if cat != nil && !a.Cooling && a.Until != 0 && a.Until <= now {
		cooldown = cat.cooldown(netip.PrefixFrom(at, length).Masked())
	}
	a, busy := a.At(now, cooldown)
	return a.Allocation(at, length), busy, nil
}

// BlockOf returns the block that an address is in, the zero BlockInfo if there is none.
func (e *Engine) BlockOf(ctx context.Context, a netip.Addr) (BlockInfo, error) {
	if addr.CheckAddr(a) != nil {
		return BlockInfo{}, wrap(ipalloc.Error{Op: "look up", Addr: a, Err: errBadAddress})
	}
	cat, recs, err := e.readAround(ctx, a)
	if err != nil {
		return BlockInfo{}, err
	}
	for _, rec := range recs {
		if p, ok := parseBlockID(rec.Key[1:]); ok && rec.Rev != 0 && p.Contains(a) {
			b, err := e.readBlock(ctx, cat, p)
			if b == nil || err != nil {
				return BlockInfo{}, err
			}
			return b.Info(), nil
		}
	}
	return BlockInfo{}, nil
}

// readAround reads the catalog and the blocks that an address may be in: together by the catalog as it was last seen, and the
// blocks
// once more if it is another now.
func (e *Engine) readAround(ctx context.Context, a netip.Addr) (*catalog, []store.Record, error) {
	keys := []string{catalogKey}
	guess := e.decoded.Load()
	if guess != nil {
		keys = guess.appendKeys(keys, a)
	}
	recs, err := e.store.Get(ctx, nil, keys...)
	if err != nil {
		return nil, nil, err
	}
	cat, err := e.decodeCatalog(ctx, recs[0])
	if isConflict(err) {
		return e.readAround(ctx, a) // the pools have changed meanwhile
	}
	if err != nil {
		return nil, nil, err
	}
	if guess == nil || guess.rev != recs[0].Rev {
		keys = cat.appendKeys(keys[:1], a)
		if recs, err = e.store.Get(ctx, nil, keys...); err != nil {
			return nil, nil, err
		}
	}
	if len(keys) > 1 {
		return cat, recs[1:], nil
	}
	recs, _, err = e.store.List(ctx, blockBefore(a)) // it may be in a block that a pool has left behind
	return cat, recs, err
}

// appendKeys appends the keys of the blocks that an address may be in, none if it is in no pool.
func (c *catalog) appendKeys(keys []string, a netip.Addr) []string {
	if i := c.containing(a); i >= 0 {
		for _, p := range c.Pools[i].blocksOf(a) {
			keys = append(keys, blockKey(kindBlock, p))
		}
	}
	return keys
}

// readBlock reads a block with its addresses, advanced to the present; nil if there is none.
func (e *Engine) readBlock(ctx context.Context, cat *catalog, p netip.Prefix) (*block.Block, error) {
	now, err := e.past()
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		recs, err := e.store.Get(ctx, nil, blockKey(kindBlock, p))
		if err != nil || recs[0].Rev == 0 {
			return nil, err
		}
		addrs, _, err := e.store.List(ctx, addressRange(p))
		if err != nil {
			return nil, err
		}
		b, err := wholeBlock(p, recs[0], addrs)
		if err == nil {
			b.AdvanceTo(now, cat.cooldown(p), math.MaxInt)
			return b, nil
		}
		if tries == e.tries {
			return nil, wrap(ipalloc.Error{Op: "read", Prefix: p, Err: err})
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
		a, ok := parseAddressKey(r.Key)
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

// eachPage calls do with the records of a range in key order, a page at a time, until it returns false.
func (e *Engine) eachPage(ctx context.Context, r store.Range, do func([]store.Record) bool) error {
	for {
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return err
		}
		if len(recs) > 0 && !do(recs) || len(recs) < r.Limit {
			return nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// blocksPage is how many blocks are read with their addresses at a time.
const blocksPage = 64

// Blocks yields every block in p, in address order; an error is the last thing it yields. It reads a few
// at a time, so the result is not a consistent snapshot. The zero prefix is every block of both families.
func (e *Engine) Blocks(ctx context.Context, p netip.Prefix) iter.Seq2[BlockInfo, error] {
	return func(yield func(BlockInfo, error) bool) {
		r := store.Range{From: kindBlock, To: kindBlock + "\xff"}
		if p.IsValid() {
			r = blockRange(kindBlock, p)
		}
		r.Limit = blocksPage
		cat, err := e.readCatalog(ctx)
		if err == nil {
			more := true
			err2 := e.eachPage(ctx, r, func(recs []store.Record) bool {
				more, err = e.blocksOf(ctx, cat, recs, func(b *block.Block) bool { return yield(b.Info(), nil) })
				return more && err == nil
			})
			if err == nil {
				err = err2
			}
			if !more {
				return
			}
		}
		if err != nil {
			yield(BlockInfo{}, err)
		}
	}
}

// blocksOf yields the blocks of some records with their addresses, advanced to the present; more is false if yield ended it. It
// lists the addresses from the first of these blocks to the last, once for each family.
func (e *Engine) blocksOf(ctx context.Context, cat *catalog, recs []store.Record, yield func(*block.Block) bool) (more bool, err error) {
	now, err := e.past()
	if err != nil {
		return true, err
	}
	for i := 0; i < len(recs); {
		// Blocks of one family are read together; the range of their addresses has nothing else.
		first, ok := parseBlockID(recs[i].Key[1:])
		if !ok {
			return true, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, recs[i].Key)
		}
		j, last := i, first
		for ; j < len(recs); j++ {
			p, ok := parseBlockID(recs[j].Key[1:])
			if !ok || p.Addr().Is4() != first.Addr().Is4() {
				break
			}
			last = p
		}
		addrs, _, err := e.store.List(ctx, store.Range{From: addressKey(first.Addr()), To: addressKey(lastAddr(last)) + "\x00"})
		if err != nil {
			return true, err
		}
		for ; i < j; i++ {
			p, _ := parseBlockID(recs[i].Key[1:])
			r := addressRange(p)
			from, _ := slices.BinarySearchFunc(addrs, r.From, func(rec store.Record, key string) int { return strings.Compare(rec.Key, key) })
			to, _ := slices.BinarySearchFunc(addrs, r.To, func(rec store.Record, key string) int { return strings.Compare(rec.Key, key) })
			b, err := wholeBlock(p, recs[i], addrs[from:to])
			if err == nil {
				b.AdvanceTo(now, cat.cooldown(p), math.MaxInt)
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

// Allocations yields what is held or cooling in p, in address order, each address once, with its first holder; an error is the
// last thing it yields. It reads a few at a
// time, so the result is not a consistent snapshot. The zero prefix is every address of both families.
func (e *Engine) Allocations(ctx context.Context, p netip.Prefix) iter.Seq2[Allocation, error] {
	return func(yield func(Allocation, error) bool) {
		r := store.Range{From: kindAddress, To: kindAddress + "\xff"}
		if p.IsValid() {
			r = addressRange(p)
		}
		r.Limit = readMost
		now, err := e.past()
		var cat *catalog
		if err == nil {
			cat, err = e.readCatalog(ctx)
		}
		if err != nil {
			yield(Allocation{}, err)
			return
		}
		more := true
		var bad error
		err = e.eachPage(ctx, r, func(recs []store.Record) bool {
			for _, rec := range recs {
				al, busy, err := readAllocation(cat, rec.Key, rec.Value, now)
				if err != nil {
					bad = err
					return false
				}
				if more = !busy || yield(al, nil); !more {
					return false
				}
			}
			return true
		})
		if err = errors.Join(bad, err); more && err != nil {
			yield(Allocation{}, err)
		}
	}
}

// IPsByHandle returns the addresses of a handle in address order; none is no error. It returns [ipalloc.ErrInvalid] for an
// empty handle. Cost: two round trips.
func (e *Engine) IPsByHandle(ctx context.Context, handle string) ([]Allocation, error) {
	fail := func(err error) ([]Allocation, error) {
		return nil, wrap(ipalloc.Error{Op: "look up", Owner: handle, Err: err})
	}
	if err := block.CheckName("handle", handle); err != nil {
		return nil, wrap(ipalloc.Error{Op: "look up", Err: err})
	}
	recs, _, err := e.store.List(ctx, handleRange(handle))
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	ids, err := idsIn(recs, len(handleRange(handle).From))
	if err != nil {
		return fail(err)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = addressKey(id.Addr())
	}
	als, err := e.readAddresses(ctx, keys, func(al Allocation) bool { return al.Handle == handle })
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// idsIn returns the blocks, or the addresses with the prefix lengths of their blocks, that index records name from a place in
// their keys on.
func idsIn(recs []store.Record, at int) ([]netip.Prefix, error) {
	ids := make([]netip.Prefix, 0, len(recs))
	for _, rec := range recs {
		p, ok := parseID(rec.Key[at:])
		if !ok {
			return nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, rec.Key)
		}
		ids = append(ids, p)
	}
	return ids, nil
}

// eachBlock calls do with each of the blocks that exist, without their addresses, all as they are at one moment.
func (e *Engine) eachBlock(ctx context.Context, blocks []netip.Prefix, do func(*block.Block)) error {
	if len(blocks) == 0 {
		return nil
	}
	keys := make([]string, len(blocks))
	for i, p := range blocks {
		keys[i] = blockKey(kindBlock, p)
	}
	recs, err := e.store.Get(ctx, nil, keys...)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if rec.Rev == 0 {
			continue
		}
		b, err := block.Decode(blocks[i], rec.Value)
		if err != nil {
			return wrap(ipalloc.Error{Op: "read", Prefix: blocks[i], Err: err})
		}
		do(b)
	}
	return nil
}

// BlocksOf returns the blocks of an owner in address order. One round trip.
func (e *Engine) BlocksOf(ctx context.Context, o Owner) ([]netip.Prefix, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	recs, err := e.store.Get(ctx, nil, ownerKey(o))
	if err != nil {
		return nil, err
	}
	l, err := decodeList(recs[0])
	return l.slice(), err
}
