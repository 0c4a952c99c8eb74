package main

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// addrSet is what every contestant of the system servicealloc can do, with its own type
// H for an address. A release that fails shows in the allocations that follow.
type addrSet[H any] interface {
	AllocateNext() (H, error)
	Allocate(H) error
	Release(H)
}

// addrPeer is a contestant of the system servicealloc.
type addrPeer[H any, S addrSet[H]] struct {
	name   string
	most   uint64 // how many addresses of an IPv6 range it uses; 0 means all
	make   func(netip.Prefix) (S, error)
	handle func(netip.Addr) H // to the contestant's type, never timed
	addr   func(H) netip.Addr
}

// portPeer is a contestant at the works on ports.
type portPeer[H any, S addrSet[H]] struct {
	name   string
	make   func(first, last uint16) (S, error)
	handle func(uint16) H
}

const systemService = "servicealloc"

// serviceRanges are the ranges of the works, all but the first with room for 2^20.
var serviceRanges = []struct{ id, title, prefix string }{
	{"16", "IPv4 /16", "10.96.0.0/16"},
	{"12", "IPv4 /12", "10.96.0.0/12"},
	{"v6", "IPv6 /108 (Kubernetes and Cilium: 65,536 of it)", "fd00:96::/108"},
}

// The node ports of Kubernetes.
const firstPort, lastPort = 30000, 32767

// usable returns how many addresses of p can be handed out.
func usable(p netip.Prefix) uint64 {
	n := uint64(1) << (p.Addr().BitLen() - p.Bits())
	if p.Addr().Is4() {
		return n - 2
	}
	return n - 1
}

// serviceWorks returns the works of package servicealloc with all contestants.
func serviceWorks() *frame.Works {
	ws := &frame.Works{Section: systemService}
	addAddrPeer(ws, nullAddrPeer)
	addAddrPeer(ws, oursAddrPeer)
	addAddrPeer(ws, bitsetAddrPeer)
	addAddrPeer(ws, ciliumAddrPeer)
	addAddrPeer(ws, kubernetesAddrPeer)
	addObjects(ws, oursAddrPeer)
	addObjects(ws, kubernetesObjectPeer)
	addPorts(ws, oursPortPeer)
	addPorts(ws, kubernetesPortPeer)
	return ws
}

// addAddrPeer adds a contestant to every work that needs no more than addrSet.
func addAddrPeer[H any, S addrSet[H]](ws *frame.Works, p addrPeer[H, S]) {
	for _, r := range serviceRanges {
		for _, f := range fills[:2] {
			ws.Add(fmt.Sprintf("svcpair/%s/%s", r.id, f.name), fmt.Sprintf("Release + AllocateNext, %s, %s %% taken", r.title, f.name),
				p.name, func() *frame.Job { return servicePairJob(p, r.prefix, f.free) })
		}
	}
	for _, g := range []int{2, 32} {
		ws.Add(fmt.Sprintf("svcpair/g%d", g), fmt.Sprintf("the same, IPv4 /16, 50 %% taken, %d goroutines", g),
			p.name, func() *frame.Job { return serviceParallelJob(p, g) })
	}
	ws.Add("svcnamed/16", "Release + Allocate of that address, IPv4 /16, 50 % taken", p.name, func() *frame.Job { return serviceNamedJob(p) })
	for _, r := range serviceRanges {
		ws.Add("svcfill/"+r.id, "AllocateNext, a new "+r.title+" until it is full", p.name, func() *frame.Job { return serviceFillJob(p, r.prefix) })
	}
}

// servicePool returns a range of which all but about 1/free of what the contestant can
// use is taken, at random places, and n of what is taken.
func servicePool[H any, S addrSet[H]](p addrPeer[H, S], prefix string, free uint64, n int) (S, []H) {
	pool := netip.MustParsePrefix(prefix)
	s := must(p.make(pool))
	order, base := pool.Addr().BitLen()-pool.Bits(), addrNumber(pool.Addr())
	if p.most > 0 && pool.Addr().Is6() {
		order = min(order, 16)
	}
	last := uint64(1)<<order - 1
	var taken []H
	for i := (last + 1) / free; i <= last; i++ {
		x := scatter(i, order)
		if x == 0 || x == last { // base, and network or broadcast of IPv4
			continue
		}
		h := p.handle(base(x))
		if err := s.Allocate(h); err != nil {
			panic(err)
		}
		if len(taken) < n {
			taken = append(taken, h)
		}
	}
	return s, taken
}

// servicePairs gives back a random one of the addresses in win and takes another, n
// times. It returns the state of the generator, of which x is the seed.
func servicePairs[H any, S addrSet[H]](s S, win []H, shift uint, n int, x uint64) uint64 {
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
		w := x >> shift
		s.Release(win[w])
		h, err := s.AllocateNext()
		if err != nil {
			panic(err)
		}
		win[w] = h
	}
	return x
}

func servicePairJob[H any, S addrSet[H]](p addrPeer[H, S], prefix string, free uint64) *frame.Job {
	s, win := servicePool(p, prefix, free, window)
	x := uint64(1)
	return &frame.Job{Run: func(n int) { x = servicePairs(s, win, 64-windowBits, n, x) }}
}

func serviceParallelJob[H any, S addrSet[H]](p addrPeer[H, S], g int) *frame.Job {
	s, taken := servicePool(p, serviceRanges[0].prefix, 2, g*own)
	x := make([]uint64, g)
	return &frame.Job{Wall: true, Grain: g, Run: func(n int) {
		frame.Together(g, func(i int) {
			x[i] = servicePairs(s, taken[i*own:(i+1)*own], 64-ownBits, n/g, x[i]+uint64(i))
		})
	}}
}

func serviceNamedJob[H any, S addrSet[H]](p addrPeer[H, S]) *frame.Job {
	s, win := servicePool(p, serviceRanges[0].prefix, 2, window)
	x := uint64(1)
	return &frame.Job{Run: func(n int) {
		for range n {
			x = x*6364136223846793005 + 1442695040888963407
			h := win[x>>(64-windowBits)]
			s.Release(h)
			if err := s.Allocate(h); err != nil {
				panic(err)
			}
		}
	}}
}

func serviceFillJob[H any, S addrSet[H]](p addrPeer[H, S], prefix string) *frame.Job {
	pool := netip.MustParsePrefix(prefix)
	n := usable(pool)
	if p.most > 0 && pool.Addr().Is6() {
		n = min(n, p.most)
	}
	var s S
	return &frame.Job{
		N:     int(n),
		Reset: func() { s = must(p.make(pool)) },
		Run: func(n int) {
			for range n {
				if _, err := s.AllocateNext(); err != nil {
					panic(err)
				}
			}
		},
	}
}

// addObjects adds a contestant to the work that is measured against IPAddress objects.
func addObjects[H any, S addrSet[H]](ws *frame.Works, p addrPeer[H, S]) {
	for _, held := range []int{1000, 10000} {
		ws.Add(fmt.Sprintf("svcobjects/%d", held),
			fmt.Sprintf("Release + AllocateNext, IPv4 /16, %d taken (Kubernetes: IPAddress objects, an API that answers at once)", held),
			p.name, func() *frame.Job {
				s := must(p.make(netip.MustParsePrefix(serviceRanges[0].prefix)))
				base := addrNumber(netip.MustParsePrefix(serviceRanges[0].prefix).Addr())
				var win []H
				for i := range uint64(held) {
					h := p.handle(base(1 + scatter(i, 15)))
					if err := s.Allocate(h); err != nil {
						panic(err)
					}
					win = append(win, h)
				}
				win = win[:own]
				x := uint64(1)
				return &frame.Job{Run: func(n int) { x = servicePairs(s, win, 64-ownBits, n, x) }}
			})
	}
}

// addrNumber returns a function that gives the address x places behind a.
func addrNumber(a netip.Addr) func(x uint64) netip.Addr {
	b := a.As16()
	return func(x uint64) netip.Addr {
		c := b
		for i := len(c) - 1; x > 0; i-- { // the places are zero: a is the base of a prefix
			c[i] |= byte(x)
			x >>= 8
		}
		if a.Is4() {
			return netip.AddrFrom16(c).Unmap()
		}
		return netip.AddrFrom16(c)
	}
}

// addPorts adds a contestant to the work on node ports.
func addPorts[H any, S addrSet[H]](ws *frame.Works, p portPeer[H, S]) {
	for _, f := range fills[:2] {
		ws.Add("svcports/"+f.name, fmt.Sprintf("Release + AllocateNext, ports %d-%d, %s %% taken", firstPort, lastPort, f.name), p.name, func() *frame.Job {
			s := must(p.make(firstPort, lastPort))
			var win []H
			for n := uint64(firstPort); n <= lastPort; n++ {
				if n%f.free == 0 {
					continue
				}
				h := p.handle(uint16(n))
				if err := s.Allocate(h); err != nil {
					panic(err)
				}
				if len(win) < own {
					win = append(win, h)
				}
			}
			x := uint64(1)
			return &frame.Job{Run: func(n int) { x = servicePairs(s, win, 64-ownBits, n, x) }}
		})
	}
}
