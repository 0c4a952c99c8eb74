package ipset

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An address is held for a host: mostly that whose block it is in, else one that borrowed it. Its record has the host. What is
// held for a host is found in its own blocks; in those that were its own, which an index lists while any of their addresses is
// held; and by an index of the addresses that it borrowed. So neither an assignment from an own block nor a change of a
// block's owner writes more for it.

// hostPlaces returns where addresses may be held for a host: blocks that are or were its own, and addresses that it borrowed, each
// with the prefix length of its block; both in address order. Four round trips. A block that becomes the host's own while the lists
// are read is in neither, but then the record of the host's blocks has changed, and they are read again.
func (e *Engine) hostPlaces(ctx context.Context, o Owner) (blocks, borrowed []netip.Prefix, err error) {
	if err := o.Check(); err != nil {
		return nil, nil, err
	}
	key := ownerKey(o)
	own, err := e.store.Get(ctx, nil, key)
	for tries := 1; err == nil; tries++ {
		if blocks, borrowed, err = e.listedPlaces(ctx, o, own[0]); err != nil {
			break
		}
		rev := own[0].Rev
		if own, err = e.store.Get(ctx, nil, key); err != nil || own[0].Rev == rev {
			break
		}
		if tries == e.tries {
			err = store.Conflict("ipset", key)
		}
	}
	return blocks, borrowed, err
}

// listedPlaces returns the places of a host with the record of its blocks.
func (e *Engine) listedPlaces(ctx context.Context, o Owner, own store.Record) (blocks, borrowed []netip.Prefix, err error) {
	l, err := decodeList(own)
	if err != nil {
		return nil, nil, err
	}
	blocks = l.slice()
	var ids [2][]netip.Prefix
	for i, kind := range [...]string{kindFormer, kindHost} {
		r := codeRange(kind, o)
		recs, _, err := e.store.List(ctx, r)
		if err == nil {
			ids[i], err = idsIn(recs, len(r.From))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	blocks = append(blocks, ids[0]...)
	slices.SortFunc(blocks, comparePrefix)
	return slices.Compact(blocks), ids[1], nil
}

// IPsByHost returns the addresses that are held for a host, in address order: those in its own blocks that no other host has
// borrowed, and those that it has borrowed. None is no error. It returns [ipalloc.ErrInvalid]. Cost: six round trips.
func (e *Engine) IPsByHost(ctx context.Context, o Owner) ([]Allocation, error) {
	fail := func(err error) ([]Allocation, error) {
		return nil, wrap(ipalloc.Error{Op: "look up", Owner: o.String(), Err: err})
	}
	blocks, borrowed, err := e.hostPlaces(ctx, o)
	if err != nil {
		return fail(err)
	}
	var keys []string
	for _, id := range borrowed {
		keys = append(keys, addressKey(id.Addr()))
	}
	err = e.eachBlock(ctx, blocks, func(b *block.Block) {
		for _, x := range b.AppendAbsent(nil) {
			keys = append(keys, addressKey(b.Addr(x)))
		}
	})
	if err != nil {
		return fail(err)
	}
	slices.Sort(keys)
	als, err := e.readAddresses(ctx, slices.Compact(keys), func(al Allocation) bool { return al.Host == o })
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// ReleaseAddressesOf gives back every address that is held for a host, in its own blocks and in those that it borrowed from, and
// returns them. Addresses that others borrowed from its blocks stay, and so do the blocks: [Engine.DisownBlocks] takes those.
//
// Each step is a commit of its own. Repeat a call that was interrupted. It returns [ipalloc.ErrInvalid], or an error of the
// store with what was given back so far.
func (e *Engine) ReleaseAddressesOf(ctx context.Context, o Owner) (released []netip.Addr, err error) {
	blocks, borrowed, err := e.hostPlaces(ctx, o)
	if err == nil {
		// In the order of the blocks: those that are or were its own whole, of others what it has borrowed.
		places := slices.Clone(blocks)
		for _, id := range borrowed {
			if _, own := slices.BinarySearchFunc(blocks, id.Masked(), comparePrefix); !own {
				places = append(places, id)
			}
		}
		slices.SortStableFunc(places, comparePrefix)
		err = e.inSteps(places, stepCost{opsPerBlock, 1}, func(part []netip.Prefix) error {
			for more := true; more; {
				p := &releaseHostPlan{host: o, places: part}
				if err := e.do(ctx, p); err != nil {
					return err
				}
				released, more = append(released, p.released...), p.more
			}
			return nil
		})
	}
	if err != nil {
		return released, wrap(ipalloc.Error{Op: "release", Owner: o.String(), Err: err})
	}
	return released, nil
}

// RemoveHost gives back every address that is held for a host and then all its blocks; those from which others have
// borrowed are left without owner. It is ReleaseAddressesOf and DisownBlocks in this order, and resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	if released, err = e.ReleaseAddressesOf(ctx, o); err == nil {
		blocks, err = e.DisownBlocks(ctx, o, false)
	}
	return released, blocks, err
}

// releaseHostPlan releases addresses of a host in some places, as many as a commit takes. A place is a block, or an address with
// the prefix length of its block; the base address of a block stands for the block, which costs nothing but time.
type releaseHostPlan struct {
	host     Owner
	places   []netip.Prefix
	released []netip.Addr
	more     bool
}

// Plan implements [occ.Plan].
func (p *releaseHostPlan) Plan(t *txn) error {
	p.released, p.more = p.released[:0], false
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	blocks := make([]netip.Prefix, len(p.places))
	for i, id := range p.places {
		blocks[i] = id.Masked()
	}
	if err := t.warm(blocks); err != nil {
		return err
	}
	if err := t.fetchPlaces(p.places); err != nil {
		return err
	}
	var drops []drop
	left := releaseBatch
	if t.e.limits.Ops > 0 {
		left = t.e.limits.Ops
	}
	var former []*blockEntry
	for i, id := range p.places {
		be, err := t.block(cat, blocks[i])
		if err != nil {
			return err
		}
		if be.Block == nil {
			continue
		}
		ordinals, err := p.ordinals(t, be, id, drops)
		if err != nil {
			return err
		}
		for _, x := range ordinals {
			if n := len(drops); n == 0 || drops[n-1].be != be {
				// A block costs what it is written with, and its pages if it goes.
				if left -= t.blockOps(be, maxPages, true, true); left < opsPerAddress && n > 0 {
					p.more = true
					return p.finish(t, cat, drops, former)
				}
				drops = append(drops, drop{be: be})
			}
			_, a := be.Look(x)
			if left -= recordsOf(a); left < 0 && len(p.released) > 0 {
				p.more = true
				return p.finish(t, cat, drops, former)
			}
			for h := range a.Holders() {
				if h.Host == p.host {
					drops[len(drops)-1].add(x, h.Seq)
				}
			}
			p.released = append(p.released, be.Addr(x))
		}
		if id == be.at && block.HasCode(be.Former(), p.host.Code()) {
			if left -= t.blockOps(be, 1, false, false); left < 0 && len(drops)+len(former) > 0 {
				p.more = true
				break
			}
			former = append(former, be)
		}
	}
	return p.finish(t, cat, drops, former)
}

// finish releases what drops say, and has the blocks former, in which nothing is held for the host then, name it no longer.
func (p *releaseHostPlan) finish(t *txn, cat *catalogEntry, drops []drop, former []*blockEntry) error {
	n := 0
	for _, be := range former {
		n += t.blockOps(be, 1, false, false)
	}
	if err := t.Room(n); err != nil {
		return err
	}
	if err := t.drop(cat, drops); err != nil {
		return err
	}
	for _, be := range former {
		if be.Block != nil { // else it is deleted
			be.Forget(p.host)
			t.Change(be)
		}
	}
	return nil
}

// ordinals returns what is held for the host in a place and is not in drops, ascending.
func (p *releaseHostPlan) ordinals(t *txn, be *blockEntry, id netip.Prefix, drops []drop) (xs []uint64, err error) {
	if id != be.at {
		if err := t.ready(be, id.Addr()); err != nil {
			return nil, err
		}
		x, err := be.Block.Ordinal(id.Addr())
		if n := len(drops); err == nil && be.HeldFor(x, p.host) && (n == 0 || drops[n-1].be != be || !slices.ContainsFunc(drops[n-1].leaving, func(l leaving) bool { return l.x == x })) {
			xs = append(xs, x)
		}
		return xs, nil
	}
	if err := t.fetchAll(be); err != nil {
		return nil, err
	}
	for x := range be.Each() {
		if be.HeldFor(x, p.host) {
			xs = append(xs, x)
		}
	}
	return xs, nil
}
