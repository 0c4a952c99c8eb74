package release

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An address is held for a host: mostly that whose block it is in, else one that borrowed it. Its record has the host. What is
// held for a host is found in its own blocks; in those that were its own, which an index lists while any of their addresses is
// held; and by an index of the addresses that it borrowed. So neither an assignment from an own block nor a change of a
// block's owner writes more for it.

// hostPlaces returns where addresses may be held for a host: blocks that are or were its own, and addresses that it borrowed, each
// with the prefix length of its block; both in address order. Four round trips. A block that becomes the host's own while the lists
// are read is in neither, but then the record of the host's blocks has changed, and they are read again.
func (e *Releaser) hostPlaces(ctx context.Context, o block.Owner) (blocks, borrowed []netip.Prefix, err error) {
	if err := o.Check(); err != nil {
		return nil, nil, err
	}
	key := record.OwnerKey(o)
	own, err := e.Store.Get(ctx, nil, key)
	for tries := 1; err == nil; tries++ {
		if blocks, borrowed, err = e.listedPlaces(ctx, o, own[0]); err != nil {
			break
		}
		rev := own[0].Rev
		if own, err = e.Store.Get(ctx, nil, key); err != nil || own[0].Rev == rev {
			break
		}
		if tries == e.Tries {
			err = store.Conflict("ipset", key)
		}
	}
	return blocks, borrowed, err
}

// listedPlaces returns the places of a host with the record of its blocks.
func (e *Releaser) listedPlaces(ctx context.Context, o block.Owner, own store.Record) (blocks, borrowed []netip.Prefix, err error) {
	l, err := record.DecodeList(own)
	if err != nil {
		return nil, nil, err
	}
	blocks = l.Slice()
	var ids [2][]netip.Prefix
	for i, kind := range [...]string{record.KindFormer, record.KindHost} {
		r := record.CodeRange(kind, o)
		recs, _, err := e.Store.List(ctx, r)
		if err == nil {
			ids[i], err = record.IdsIn(recs, len(r.From))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	blocks = append(blocks, ids[0]...)
	slices.SortFunc(blocks, record.ComparePrefix)
	return slices.Compact(blocks), ids[1], nil
}

// IPsByHost carries out the call of that name.
func (e *Releaser) IPsByHost(ctx context.Context, o block.Owner) ([]block.Allocation, error) {
	fail := func(err error) ([]block.Allocation, error) {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Owner: o.String(), Err: err})
	}
	blocks, borrowed, err := e.hostPlaces(ctx, o)
	if err != nil {
		return fail(err)
	}
	var keys []string
	for _, id := range borrowed {
		keys = append(keys, record.AddressKey(id.Addr()))
	}
	err = e.EachBlock(ctx, blocks, func(b *block.Block) {
		for _, x := range b.AppendAbsent(nil) {
			keys = append(keys, record.AddressKey(b.Addr(x)))
		}
	})
	if err != nil {
		return fail(err)
	}
	slices.Sort(keys)
	als, err := e.ReadAddresses(ctx, slices.Compact(keys), func(al block.Allocation) bool { return al.Host == o })
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// ReleaseAddressesOf carries out the call of that name.
func (e *Releaser) ReleaseAddressesOf(ctx context.Context, o block.Owner) (released []netip.Addr, err error) {
	blocks, borrowed, err := e.hostPlaces(ctx, o)
	if err == nil {
		// In the order of the blocks: those that are or were its own whole, of others what it has borrowed.
		places := slices.Clone(blocks)
		for _, id := range borrowed {
			if _, own := slices.BinarySearchFunc(blocks, id.Masked(), record.ComparePrefix); !own {
				places = append(places, id)
			}
		}
		slices.SortStableFunc(places, record.ComparePrefix)
		err = e.InSteps(places, txn.StepCost{txn.OpsPerBlock, 1}, func(part []netip.Prefix) error {
			for more := true; more; {
				p := &releaseHostPlan{host: o, places: part}
				if err := e.Do(ctx, p); err != nil {
					return err
				}
				released, more = append(released, p.released...), p.more
			}
			return nil
		})
	}
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "release", Owner: o.String(), Err: err})
	}
	return released, nil
}

// RemoveHost carries out the call of that name.
func (e *Releaser) RemoveHost(ctx context.Context, o block.Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	if released, err = e.ReleaseAddressesOf(ctx, o); err == nil {
		blocks, err = e.DisownBlocks(ctx, o, false)
	}
	return released, blocks, err
}

// releaseHostPlan releases addresses of a host in some places, as many as a commit takes. A place is a block, or an address with
// the prefix length of its block; the base address of a block stands for the block, which costs nothing but time.
type releaseHostPlan struct {
	host     block.Owner
	places   []netip.Prefix
	released []netip.Addr
	more     bool
}

// Plan implements [occ.Plan].
func (p *releaseHostPlan) Plan(t *txn.Txn) error {
	p.released, p.more = p.released[:0], false
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	blocks := make([]netip.Prefix, len(p.places))
	for i, id := range p.places {
		blocks[i] = id.Masked()
	}
	if err := t.Warm(blocks); err != nil {
		return err
	}
	if err := t.FetchPlaces(p.places); err != nil {
		return err
	}
	var drops []txn.Drop
	left := releaseBatch
	if t.E.Limits.Ops > 0 {
		left = t.E.Limits.Ops
	}
	var former []*txn.BlockEntry
	for i, id := range p.places {
		be, err := t.Block(cat, blocks[i])
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
			if n := len(drops); n == 0 || drops[n-1].Be != be {
				// A block costs what it is written with, and its pages if it goes.
				if left -= t.BlockOps(be, record.MaxPages, true, true); left < txn.OpsPerAddress && n > 0 {
					p.more = true
					return p.finish(t, cat, drops, former)
				}
				drops = append(drops, txn.Drop{Be: be})
			}
			_, a := be.Look(x)
			if left -= record.RecordsOf(a); left < 0 && len(p.released) > 0 {
				p.more = true
				return p.finish(t, cat, drops, former)
			}
			for h := range a.Holders() {
				if h.Host == p.host {
					drops[len(drops)-1].Add(x, h.Seq)
				}
			}
			p.released = append(p.released, be.Addr(x))
		}
		if id == be.At && block.HasCode(be.Former(), p.host.Code()) {
			if left -= t.BlockOps(be, 1, false, false); left < 0 && len(drops)+len(former) > 0 {
				p.more = true
				break
			}
			former = append(former, be)
		}
	}
	return p.finish(t, cat, drops, former)
}

// finish releases what drops say, and has the blocks former, in which nothing is held for the host then, name it no longer.
func (p *releaseHostPlan) finish(t *txn.Txn, cat *txn.CatalogEntry, drops []txn.Drop, former []*txn.BlockEntry) error {
	n := 0
	for _, be := range former {
		n += t.BlockOps(be, 1, false, false)
	}
	if err := t.Room(n); err != nil {
		return err
	}
	if err := t.Drop(cat, drops); err != nil {
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
func (p *releaseHostPlan) ordinals(t *txn.Txn, be *txn.BlockEntry, id netip.Prefix, drops []txn.Drop) (xs []uint64, err error) {
	if id != be.At {
		if err := t.Ready(be, id.Addr()); err != nil {
			return nil, err
		}
		x, err := be.Block.Ordinal(id.Addr())
		if n := len(drops); err == nil && be.HeldFor(x, p.host) && (n == 0 || drops[n-1].Be != be || !slices.ContainsFunc(drops[n-1].Leaving, func(l txn.Leaving) bool { return l.X == x })) {
			xs = append(xs, x)
		}
		return xs, nil
	}
	if err := t.FetchAll(be); err != nil {
		return nil, err
	}
	for x := range be.Each() {
		if be.HeldFor(x, p.host) {
			xs = append(xs, x)
		}
	}
	return xs, nil
}
