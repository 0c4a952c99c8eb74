//go:build transplant

// Package db puts ipset.Engine in the place of headscale's allocator of the addresses of nodes.
package db

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/peers/transplants/headscale/tsaddr"
	"github.com/ipalloc/ipalloc/bench/peers/transplants/headscale/types"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// server owns the blocks: there is one process.
var server, ctx = alloc.HostOwner("headscale"), context.Background()

// HSDatabase has the nodes.
type HSDatabase struct{ DB *types.Table }

func (db *HSDatabase) ListNodes() (types.Nodes, error) { return db.DB.Nodes, nil }

// IPAllocator is an engine with a pool for each family.
type IPAllocator struct {
	e                *ipset.Engine
	strategy         types.IPAllocationStrategy
	mu               sync.Mutex // of headscale's calls
	prefix4, prefix6 *netip.Prefix
	prev4, prev6     netip.Addr // the last ones, after which the sequence goes on
}

func NewIPAllocator(db *HSDatabase, prefix4, prefix6 *netip.Prefix, strategy types.IPAllocationStrategy) (*IPAllocator, error) {
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	i := &IPAllocator{e: e, strategy: strategy, prefix4: prefix4, prefix6: prefix6}
	if err != nil {
		return nil, err
	}
	service4, service6 := tsaddr.TailscaleServiceIP(), tsaddr.TailscaleServiceIPv6()
	change := alloc.PoolChanges{Reserve: []netipx.IPRange{
		netipx.RangeOfPrefix(tsaddr.ChromeOSVMRange()), netipx.IPRangeFrom(service4, service4), netipx.IPRangeFrom(service6, service6),
	}}
	add := func(p *netip.Prefix, prev *netip.Addr) {
		if p == nil {
			return
		}
		*prev = p.Addr()
		r := netipx.RangeOfPrefix(*p)
		pool := alloc.Pool{Name: p.String(), Prefix: *p, BlockBits: max(p.Bits(), p.Addr().BitLen()-64)}
		if strategy == types.IPAllocationStrategyRandom {
			pool.Order = alloc.Random
		}
		change.Set = append(change.Set, pool)
		change.Reserve = append(change.Reserve, netipx.IPRangeFrom(r.From(), r.From()), netipx.IPRangeFrom(r.To(), r.To()))
	}
	add(prefix4, &i.prev4)
	add(prefix6, &i.prev6)
	if err := e.Operator().ChangePools(ctx, change); err != nil || db == nil {
		return i, err
	}
	for _, n := range db.DB.Nodes {
		for _, ip := range []*netip.Addr{n.IPv4, n.IPv6} {
			if ip == nil {
				continue
			}
			if _, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: *ip, Owner: server}); err != nil && !errors.Is(err, ipalloc.ErrNotFound) {
				return nil, err
			}
		}
	}
	return i, nil
}

// next returns the first free address after prev, or a random one.
func (i *IPAllocator) next(prev netip.Addr, prefix *netip.Prefix) (*netip.Addr, error) {
	args := alloc.AssignArgs{Owner: server, Num4: 1, Pools: []string{prefix.String()}}
	if prefix.Addr().Is6() {
		args.Num4, args.Num6 = 0, 1
	}
	if i.strategy == types.IPAllocationStrategySequential {
		args.From = prev.Next()
	}
	got, err := i.e.AutoAssign(ctx, args)
	if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrReserved) {
		return nil, ErrCouldNotAllocateIP
	} else if err != nil {
		return nil, err
	}
	return &append(got.V4, got.V6...)[0].Address, nil
}

// FreeIPs releases addresses; those that are free are no error.
func (i *IPAllocator) FreeIPs(ips []netip.Addr) error {
	var list []alloc.Release
	for _, ip := range ips {
		list = append(list, alloc.Release{Address: ip})
	}
	_, err := i.e.ReleaseIPs(ctx, list...)
	return err
}

// BackfillNodeIPs gives each node an address of each family that has a prefix, and takes those of the others.
func (db *HSDatabase) BackfillNodeIPs(i *IPAllocator) (log []string, err error) {
	fill := func(n *types.Node, ip **netip.Addr, prefix *netip.Prefix, next func() (*netip.Addr, error)) {
		switch {
		case err != nil:
		case prefix != nil && *ip == nil:
			if *ip, err = next(); err == nil {
				log = append(log, fmt.Sprintf("assigned %v to node %q", *ip, n.Hostname))
			}
		case prefix == nil && *ip != nil:
			log = append(log, fmt.Sprintf("removing %v from node %q", *ip, n.Hostname))
			*ip = nil
		}
	}
	for _, n := range db.DB.Nodes {
		fill(n, &n.IPv4, i.prefix4, i.allocateNext4)
		fill(n, &n.IPv6, i.prefix6, i.allocateNext6)
	}
	return log, err
}
