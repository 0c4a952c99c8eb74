package main

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/bits-and-blooms/bitset"
	cservice "github.com/cilium/cilium/pkg/ipam/service/ipallocator"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// oursAddrs is a range of package servicealloc.
type oursAddrs struct{ *servicealloc.Range }

var oursAddrPeer = addrPeer[netip.Addr, oursAddrs]{
	name: ours,
	make: func(p netip.Prefix) (oursAddrs, error) {
		r, err := servicealloc.NewRange(p)
		return oursAddrs{r}, err
	},
	handle: sameAddr,
	addr:   sameAddr,
}

func sameAddr(a netip.Addr) netip.Addr { return a }

func (o oursAddrs) AllocateNext() (netip.Addr, error) {
	a, _, err := o.Range.AllocateNext()
	return a, err
}

func (o oursAddrs) Release(a netip.Addr) { o.Range.Release(a) }

// oursPorts is the ports of a range, one number for all protocols.
type oursPorts struct{ p *servicealloc.Ports }

var oursPortPeer = portPeer[uint16, oursPorts]{
	name: ours,
	make: func(first, last uint16) (oursPorts, error) {
		p, err := servicealloc.NewPorts(servicealloc.PortRange{First: first, Last: last})
		return oursPorts{p}, err
	},
	handle: func(n uint16) uint16 { return n },
}

func (o oursPorts) AllocateNext() (uint16, error) {
	n, _, err := o.p.AllocateNext()
	return n, err
}

func (o oursPorts) Allocate(n uint16) error {
	return o.p.Allocate(n)
}

func (o oursPorts) Release(n uint16) {
	o.p.Release(n)
}

// ciliumAddrs is the fork of the ClusterIP allocator that Cilium uses for the addresses
// of load balancers. Of an IPv6 range it uses the first 65,534 addresses; it has no
// bands.
type ciliumAddrs struct{ r *cservice.Range }

var ciliumAddrPeer = addrPeer[netip.Addr, ciliumAddrs]{
	name:   cilium,
	most:   1<<16 - 2,
	make:   func(p netip.Prefix) (ciliumAddrs, error) { return ciliumAddrs{cservice.NewCIDRRange(p)}, nil },
	handle: sameAddr,
	addr:   sameAddr,
}

func (c ciliumAddrs) AllocateNext() (netip.Addr, error) { return c.r.AllocateNext() }
func (c ciliumAddrs) Allocate(a netip.Addr) error       { return c.r.Allocate(a) }
func (c ciliumAddrs) Release(a netip.Addr)              { c.r.Release(a) }

// bitsetAddrs is the least that makes such an allocator of a plain bitset: the mutex,
// a random start over all addresses, a codec. It has no bands and checks nothing.
type bitsetAddrs struct {
	mu    sync.Mutex
	src   *rand.PCG
	taken *bitset.BitSet
	first addr.U128
	n     uint64
	v4    bool
}

var bitsetAddrPeer = addrPeer[netip.Addr, *bitsetAddrs]{
	name: flat,
	make: func(p netip.Prefix) (*bitsetAddrs, error) {
		n := usable(p)
		return &bitsetAddrs{src: rand.NewPCG(1, 2), taken: bitset.New(uint(n)), n: n, v4: p.Addr().Is4(), first: addr.FromAddr(p.Addr().Next())}, nil
	},
	handle: sameAddr,
	addr:   sameAddr,
}

func (s *bitsetAddrs) AllocateNext() (netip.Addr, error) {
	s.mu.Lock()
	start, _ := bits.Mul64(s.src.Uint64(), s.n)
	i, ok := s.taken.NextClear(uint(start))
	if !ok {
		if i, ok = s.taken.NextClear(0); !ok {
			s.mu.Unlock()
			return netip.Addr{}, ipalloc.ErrFull
		}
	}
	s.taken.Set(i)
	s.mu.Unlock()
	u := s.first.Add(addr.U128{Lo: uint64(i)})
	if s.v4 {
		return u.Addr4(), nil
	}
	return u.Addr6(), nil
}

func (s *bitsetAddrs) Allocate(a netip.Addr) error {
	i := uint(addr.FromAddr(a).Sub(s.first).Lo)
	s.mu.Lock()
	s.taken.Set(i)
	s.mu.Unlock()
	return nil
}

func (s *bitsetAddrs) Release(a netip.Addr) {
	i := uint(addr.FromAddr(a).Sub(s.first).Lo)
	s.mu.Lock()
	s.taken.Clear(i)
	s.mu.Unlock()
}

// nullAddrs answers without looking.
type nullAddrs struct{ a netip.Addr }

var nullAddrPeer = addrPeer[netip.Addr, *nullAddrs]{
	name:   null,
	make:   func(p netip.Prefix) (*nullAddrs, error) { return &nullAddrs{p.Addr().Next()}, nil },
	handle: sameAddr,
	addr:   sameAddr,
}

func (s *nullAddrs) AllocateNext() (netip.Addr, error) { return s.a, nil }
func (s *nullAddrs) Allocate(netip.Addr) error         { return nil }
func (s *nullAddrs) Release(netip.Addr)                {}
