//go:build transplant

// Package bitmap puts cidrset.Set in the place of coredhcp's bitmaps of prefixes and addresses.
package bitmap

import (
	"errors"
	"net"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

var (
	ErrNoAddrAvail = errors.New("no address available to allocate")
	ErrDoubleFree  = errors.New("attempted to free an unallocated block")
)

// Allocator hands out prefixes of one size.
type Allocator struct {
	*cidrset.Set
	containing net.IPNet // their tests look at it
}

func NewBitmapAllocator(pool net.IPNet, size int) (*Allocator, error) {
	p, _ := netipx.FromStdIPNet(&pool)
	set, err := cidrset.New(p, size, cidrset.LowestFirst())
	return &Allocator{set, pool}, err
}

// child returns the child that an address is in.
func (a *Allocator) child(ip net.IP) netip.Prefix {
	addr, _ := netipx.FromStdIP(ip)
	p, _ := addr.Prefix(a.ChildBits())
	return p
}

// Allocate prefers the child that the hint is in, and gives no more of it than the hint asks for.
func (a *Allocator) Allocate(hint net.IPNet) (net.IPNet, error) {
	p := a.child(hint.IP)
	if a.Claim(p) != nil {
		var err error
		if p, err = a.AllocateNext(); errors.Is(err, ipalloc.ErrFull) {
			return net.IPNet{}, ErrNoAddrAvail
		} else if err != nil {
			return net.IPNet{}, err
		}
	}
	size, bits := hint.Mask.Size()
	if bits != p.Addr().BitLen() || size < p.Bits() {
		size = p.Bits()
	}
	return *netipx.PrefixIPNet(netip.PrefixFrom(p.Addr(), size)), nil
}

func (a *Allocator) Free(n net.IPNet) error {
	freed, err := a.Release(a.child(n.IP.Mask(n.Mask)))
	if err == nil && freed == 0 {
		return ErrDoubleFree
	}
	return err
}

// IPv4Allocator hands out the addresses of a range: those around it, in the smallest prefix
// that has both ends, are taken.
type IPv4Allocator struct{ Allocator }

func NewIPv4Allocator(start, end net.IP) (*IPv4Allocator, error) {
	from, _ := netipx.FromStdIP(start)
	to, _ := netipx.FromStdIP(end)
	r := netipx.IPRangeFrom(from, to)
	if !r.IsValid() || !from.Is4() {
		return nil, errors.New("no IPv4 addresses in the given range to allocate")
	}
	pool := netip.PrefixFrom(from, 32)
	for !pool.Contains(to) {
		pool = netip.PrefixFrom(from, pool.Bits()-1).Masked()
	}
	a, err := NewBitmapAllocator(*netipx.PrefixIPNet(pool), 32)
	if err != nil {
		return nil, err
	}
	var around netipx.IPSetBuilder
	around.AddPrefix(pool)
	around.RemoveRange(r)
	set, err := around.IPSet()
	if err != nil {
		return nil, err
	}
	for _, p := range set.Prefixes() {
		if err := a.Claim(p); err != nil {
			return nil, err
		}
	}
	return &IPv4Allocator{*a}, nil
}
