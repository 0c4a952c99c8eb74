//go:build transplant

// Package allocator puts ipset.Engine under MetalLB's choice of pools. The engine knows which services hold an address, their sharing
// key, and the lowest free address. The ports are left to the adapter, because an address of the engine has none.
package allocator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/bench/peers/transplants/metallb/config"
	"github.com/ipalloc/ipalloc/ipset"
	ask "github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// owner has all blocks, because there is one controller.
var owner, ctx = ask.VirtualOwner("metallb"), context.Background()

// Allocator has a pool of the engine for each CIDR, named after it. Blocks of one address fit whatever the CIDRs are changed to.
type Allocator struct {
	e                       *ipset.Engine
	pools, mirrored         *config.Pools     // those of SetPools, and those that the engine has
	allocated               map[string]*alloc // by service
	poolToCounters          map[string]PoolCounters
	countersMutex           sync.RWMutex
	countersChangedCallback func(string)
}

func New(countersCallback func(string)) *Allocator {
	return &Allocator{
		e: must(ipset.New(store.NewMemory(), ipset.Options{})), pools: &config.Pools{}, allocated: map[string]*alloc{},
		poolToCounters: map[string]PoolCounters{}, countersChangedCallback: countersCallback,
	}
}

// must returns v. The store in memory fails only for a call that is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func prefixOf(cidr *net.IPNet) netip.Prefix {
	p, _ := netipx.FromStdIPNet(cidr)
	return p
}

// usable returns the addresses of p without those of IPv4 that end in 0 or 255.
func usable(p netip.Prefix) []netipx.IPRange {
	var set netipx.IPSetBuilder
	set.AddPrefix(p)
	for at := p.Addr(); at.Is4() && p.Contains(at); {
		whole, _ := at.Prefix(24)
		last := netipx.PrefixLastIP(whole)
		set.Remove(whole.Addr())
		set.Remove(last)
		at = last.Next()
	}
	return must(set.IPSet()).Ranges()
}

// engine returns the engine, after it has got the pools.
func (a *Allocator) engine() *ipset.Engine {
	if a.mirrored == a.pools {
		return a.e
	}
	var change ask.PoolChanges
	for _, pool := range a.pools.ByName {
		for _, cidr := range pool.CIDR {
			p := ask.Pool{Name: cidr.String(), Prefix: prefixOf(cidr), BlockBits: prefixOf(cidr).Addr().BitLen()}
			if pool.AvoidBuggyIPs {
				p.Ranges = usable(p.Prefix)
				p.Disabled = len(p.Ranges) == 0
			}
			change.Set = append(change.Set, p)
		}
	}
	for _, old := range must(a.e.Pools(ctx)) {
		if !slices.ContainsFunc(change.Set, func(p ask.Pool) bool { return p.Name == old.Name }) {
			change.Remove = append(change.Remove, old.Name)
		}
	}
	must(0, a.e.Operator().ChangePools(ctx, change))
	must(a.e.Operator().Sweep(ctx, ask.SweepArgs{Unselected: true})) // what was released after its pool had gone
	a.mirrored = a.pools
	return a.e
}

// share returns what the holders of an address have in common.
func (k *key) share() ask.Share {
	if k.sharing == "" {
		return ask.Share{}
	}
	return ask.Share{Max: ask.MaxHolders, Key: fmt.Sprintf("%q %q", k.sharing, k.backend)}
}

func (a *Allocator) assign(svc string, al *alloc) {
	a.Unassign(svc)
	var named []netip.Addr
	for _, ip := range al.ips {
		at, _ := netipx.FromStdIP(ip)
		named = append(named, at)
	}
	must(a.engine().AssignIPs(ctx, ask.AssignArgs{Owner: owner, Handle: svc, Share: al.share()}, named...))
	a.allocated[svc] = al
	a.updatePoolStats(a.pools.ByName[al.pool])
	a.countersChangedCallback(al.pool)
}

func (a *Allocator) Unassign(svc string) {
	al := a.allocated[svc]
	if al == nil {
		return
	}
	delete(a.allocated, svc)
	must(a.engine().ReleaseByHandle(ctx, svc))
	pool := a.pools.ByName[al.pool]
	if pool == nil {
		deleteStatsFor(al.pool)
		return
	}
	a.updatePoolStats(pool)
	a.countersChangedCallback(al.pool)
}

// getIPFromCIDR returns the lowest address that is free or that the service may share.
func (a *Allocator) getIPFromCIDR(cidr *net.IPNet, _ bool, svc string, ports []Port, sharingKey, backendKey string) net.IP {
	k, p, args := &key{sharingKey, backendKey}, prefixOf(cidr), ask.AssignArgs{Owner: owner, Pools: []string{cidr.String()}, Num4: 1}
	if args.Choose = ask.From(p.Addr()); p.Addr().Is6() {
		args.Num4, args.Num6 = 0, 1
	}
	got, _ := a.engine().DryRun().AutoAssign(ctx, args) // an error for a full pool
	all := append(got.V4, got.V6...)
	if k.sharing != "" {
		all = append(all, must(a.e.IPsByShare(ctx, k.share().Key))...)
	}
	slices.SortFunc(all, func(x, y ask.Allocation) int { return x.Address.Compare(y.Address) })
	for _, x := range all {
		if p.Contains(x.Address) && a.checkSharing(svc, x.Address.String(), ports, k) == nil {
			return x.Address.AsSlice()
		}
	}
	return nil
}

// checkSharing returns why a service can't hold an address beside those that do.
func (a *Allocator) checkSharing(svc, ip string, ports []Port, k *key) error {
	held, err := a.engine().Lookup(ctx, netip.MustParseAddr(ip))
	if err != nil {
		return nil // free
	}
	n := 0
	for h := range held.Holders() {
		if h.Handle == svc {
			continue
		}
		if n++; k.sharing == "" || k.share() != held.Share() || n == ask.MaxHolders {
			return fmt.Errorf("%q can't share %s, which %s has", svc, ip, h.Handle)
		}
		if slices.ContainsFunc(ports, func(p Port) bool { return slices.Contains(a.allocated[h.Handle].ports, p) }) {
			return fmt.Errorf("a port is already in use on %s by %s", ip, h.Handle)
		}
	}
	return nil
}

func (a *Allocator) updatePoolStats(p *config.Pool) {
	var c PoolCounters
	for _, u := range must(a.engine().Utilization(ctx)) {
		if !slices.ContainsFunc(p.CIDR, func(cidr *net.IPNet) bool { return cidr.String() == u.Pool }) {
			continue
		}
		if used := int64(u.Used.Lo); u.Prefix.Addr().Is4() {
			c.AssignedIPv4 += used
		} else {
			c.AssignedIPv6 += used
		}
	}
	total, ipv4, ipv6 := poolCount(p)
	c.AvailableIPv4, c.AvailableIPv6 = ipv4-c.AssignedIPv4, ipv6-c.AssignedIPv6
	stats.poolCapacity.WithLabelValues(p.Name).Set(float64(total))
	stats.ipv4PoolCapacity.WithLabelValues(p.Name).Set(float64(ipv4))
	stats.ipv6PoolCapacity.WithLabelValues(p.Name).Set(float64(ipv6))
	stats.poolActive.WithLabelValues(p.Name).Set(float64(c.AssignedIPv4 + c.AssignedIPv6))
	stats.ipv4PoolActive.WithLabelValues(p.Name).Set(float64(c.AssignedIPv4))
	stats.ipv6PoolActive.WithLabelValues(p.Name).Set(float64(c.AssignedIPv6))
	a.countersMutex.Lock()
	defer a.countersMutex.Unlock()
	a.poolToCounters[p.Name] = c
}
