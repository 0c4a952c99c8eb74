package release

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// An address is held for a host: mostly that whose block it is in, else one that borrowed it. Its record has the host. What is
// held for a host is found in its own blocks; in those that were its own, which an index lists while any of their addresses is
// held; and by an index of the addresses that it borrowed. So neither an assignment from an own block nor a change of a
// block's owner writes more for it.

// hostPlaces returns where addresses may be held for a host: blocks that are or were its own, and addresses that it borrowed, each
// with the prefix length of its block; both in address order. Two round trips. A block that becomes the host's own or ceases to be
// meanwhile is in the first list all the time.
func (e *Releaser) hostPlaces(ctx context.Context, o alloc.Owner) (blocks, borrowed []netip.Prefix, err error) {
	own, had, err := e.Owned(ctx, o, record.CodeRange(record.KindOwner, o))
	if err != nil {
		return nil, nil, err
	}
	borrowed, err = e.IDs(ctx, nil, record.CodeRange(record.KindHost, o))
	blocks = append(own, had...)
	slices.SortFunc(blocks, record.ComparePrefix)
	return blocks, borrowed, err
}

// placesOf returns what hostPlaces does in the order of the blocks: those that are or were the host's own whole, of others what it has
// borrowed.
func (e *Releaser) placesOf(ctx context.Context, o alloc.Owner) (places []netip.Prefix, err error) {
	blocks, borrowed, err := e.hostPlaces(ctx, o)
	places = slices.Clone(blocks)
	for _, id := range borrowed {
		if _, own := slices.BinarySearchFunc(blocks, id.Masked(), record.ComparePrefix); !own {
			places = append(places, id)
		}
	}
	slices.SortStableFunc(places, record.ComparePrefix)
	return places, err
}

// IPsByHost carries out the call of that name.
func (e *Releaser) IPsByHost(ctx context.Context, o alloc.Owner) ([]alloc.Allocation, error) {
	fail := func(err error) ([]alloc.Allocation, error) {
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
	als, err := e.ReadAddresses(ctx, slices.Compact(keys), func(al alloc.Allocation) bool { return al.Host == o })
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// ReleaseByHost carries out the call of that name.
func (e *Releaser) ReleaseByHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, err error) {
	places, err := e.placesOf(ctx, o)
	if err == nil {
		released, err = e.releaseAt(ctx, places, releasePlan{host: o})
	}
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "release", Owner: o.String(), Err: err})
	}
	return released, nil
}

// RemoveHost carries out the call of that name.
func (e *Releaser) RemoveHost(ctx context.Context, o alloc.Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	if released, err = e.ReleaseByHost(ctx, o); err == nil {
		blocks, err = e.DisownBlocks(ctx, o, netip.Prefix{}, false)
	}
	return released, blocks, err
}
