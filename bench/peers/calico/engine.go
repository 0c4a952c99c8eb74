package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// engine is what a contestant of the works on engines can do: assign addresses of one pool of /26.
type engine interface {
	// assign returns an address for a host and handle; the zero one if there is none to be had.
	assign(host, handle string, blocks int) (lease, error)
	release(l lease, handle string) error
	releaseHandle(handle string) error
	// fill makes a block of an owner with so many addresses held, by a handle of the block, quickly and untimed.
	fill(block netip.Prefix, owner string, held int)
	// drop takes all blocks from a host, which holds no address.
	drop(host string)
	// fresh forgets what was read before, as a process does that has just begun.
	fresh()
}

// lease is an assigned address in the form in which a contestant's caller has it.
type lease struct {
	addr netip.Addr
	text string // for Calico
}

// oursEngine is an engine on a store.
type oursEngine struct {
	*ipset.Engine
	store store.Store
}

// newOurs returns an engine on a store, in which it makes the pool.
func newOurs(s store.Store, pool netip.Prefix, c alloc.Config) *oursEngine {
	o := &oursEngine{store: s}
	o.fresh()
	check(o.Operator().SetConfig(bg, c))
	check(o.AddPool(bg, alloc.Pool{Name: "pool", Prefix: pool, BlockBits: 26}))
	return o
}

func (o *oursEngine) fresh() { o.Engine = must(ipset.New(o.store, ipset.Options{})) }

func (o *oursEngine) assign(host, handle string, blocks int) (lease, error) {
	got, err := o.AutoAssign(bg, alloc.AssignArgs{
		Owner: alloc.HostOwner(host), Num4: 1, Handle: handle, Blocks: alloc.BlockArgs{Max: blocks}, Partial: true,
	})
	if err != nil || len(got.V4) == 0 {
		return lease{}, err
	}
	return lease{addr: got.V4[0].Address}, nil
}

func (o *oursEngine) release(l lease, handle string) error {
	rs, err := o.ReleaseIPs(bg, alloc.Release{Address: l.addr, Guard: alloc.Guard{Handle: handle}})
	if err == nil && rs[0].Outcome != alloc.Released {
		err = fmt.Errorf("release %v: %v", l.addr, rs[0].Outcome)
	}
	return err
}

func (o *oursEngine) releaseHandle(handle string) error {
	as, err := o.ReleaseByHandle(bg, handle)
	if err == nil && len(as) == 0 {
		err = fmt.Errorf("release %s: nothing", handle)
	}
	return err
}

func (o *oursEngine) fill(p netip.Prefix, owner string, held int) {
	b := must(block.New(p, block.Options{Owner: alloc.HostOwner(owner), Claimed: time.Now()}))
	if got := b.AutoAssign(nil, held, alloc.Claim{Handle: p.String()}, time.Now(), nil); len(got) != held {
		panic("the block is too small")
	}
	check(o.Operator().ImportBlock(bg, b))
}

func (o *oursEngine) drop(host string) {
	must(o.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(host), OnlyEmpty: true}))
}
