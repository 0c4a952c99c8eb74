package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// subject is what several goroutines use at once. workers returns the pair of each.
type subject struct {
	name    string
	floor   bool
	workers func(g int) []func()
}

var subjects = []subject{
	{"one mutex and one bit", true, floor},
	{"`cidrset.Set`, 2^16 children, half full", false, sets(1)},
	{"eight of them, a goroutine to one", false, sets(8)},
	{"`servicealloc.Range`, a /16, half full", false, ranges},
	{"one `ipset.Engine`, store in memory", false, engines(1)},
	{"eight engines on one store in memory", false, engines(8)},
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// floor is a word behind a mutex. A pair locks it twice.
func floor(g int) (out []func()) {
	var mu sync.Mutex
	word := uint64(0)
	flip := func(bit int) {
		mu.Lock()
		defer mu.Unlock()
		word ^= 1 << bit
	}
	for i := range g {
		out = append(out, func() { flip(i % 64); flip(i % 64) })
	}
	return out
}

// each goroutine holds as many prefixes, and gives back the one that it has had longest.
const held = 64

// turning returns a pair: what was taken first is given back, and something is taken for it.
func turning[T any](take func() T, give func(T)) func() {
	var list [held]T
	for i := range list {
		list[i] = take()
	}
	at := 0
	return func() {
		give(list[at])
		list[at] = take()
		at = (at + 1) % held
	}
}

// sets has n sets, of which each goroutine uses one.
func sets(n int) func(g int) []func() {
	return func(g int) (out []func()) {
		var all []*cidrset.Set
		for range n {
			s := must(cidrset.New(netip.MustParsePrefix("10.0.0.0/8"), 24))
			for i := range 1 << 16 {
				if i%2 == 0 {
					p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
					must(s.Occupy(p))
				}
			}
			all = append(all, s)
		}
		for i := range g {
			s := all[i%n]
			out = append(out, turning(func() netip.Prefix { return must(s.AllocateNext()) }, func(p netip.Prefix) { must(s.Release(p)) }))
		}
		return out
	}
}

func ranges(g int) (out []func()) {
	r := must(servicealloc.NewRange(netip.MustParsePrefix("10.0.0.0/16")))
	for range 1 << 15 {
		_, _, err := r.AllocateNext()
		must(0, err)
	}
	for range g {
		out = append(out, turning(func() netip.Addr {
			a, _, err := r.AllocateNext()
			return must(a, err)
		}, func(a netip.Addr) { r.Release(a) }))
	}
	return out
}

// engines has n engines on one store. A goroutine has its host and its engine.
func engines(n int) func(g int) []func() {
	return func(g int) (out []func()) {
		ctx, db := context.Background(), store.NewMemory()
		var all []*ipset.Engine
		for range n {
			all = append(all, must(ipset.New(db, ipset.Options{})))
		}
		must(0, all[0].AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/12")}))
		for i := range g {
			e, args := all[i%n], alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host-", i)), Num4: 1, Claim: alloc.Claim{Handle: fmt.Sprint("pod-", i)}}
			out = append(out, turning(func() netip.Addr {
				return must(e.AutoAssign(ctx, args)).V4[0].Address
			}, func(a netip.Addr) {
				must(e.ReleaseIPs(ctx, alloc.Release{Address: a}))
			}))
		}
		return out
	}
}
