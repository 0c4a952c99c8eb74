//go:build transplant

// Package ip puts cidrset.Set in the place of OVN-Kubernetes' allocator of addresses.
package ip

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// Range is the addresses of a prefix, of which the ends may be reserved.
type Range struct {
	set  *cidrset.Set
	net  *net.IPNet
	ends []netip.Addr
	base big.Int // their tests log it
	max  int
}

func NewCIDRRange(cidr *net.IPNet) (*Range, error) {
	return NewRange(cidr, true, cidrset.Random(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

// NewRange returns the range of a prefix. Of a large IPv6 prefix it has 2^16 addresses, as theirs.
func NewRange(cidr *net.IPNet, reserve bool, opts ...cidrset.Option) (*Range, error) {
	p, _ := netipx.FromStdIPNet(cidr)
	if p.Addr().Is6() && p.Bits() < 112 {
		p = netip.PrefixFrom(p.Addr(), 112)
	}
	set, err := cidrset.New(p, p.Addr().BitLen(), opts...)
	if err != nil {
		return nil, err
	}
	r := &Range{set: set, net: cidr}
	if reserve {
		r.ends = []netip.Addr{p.Addr()}
	}
	if reserve && p.Addr().Is4() {
		r.ends = append(r.ends, netipx.PrefixLastIP(p))
	}
	for _, a := range r.ends {
		_, err = set.Occupy(netip.PrefixFrom(a, a.BitLen()))
	}
	r.max = r.Free()
	return r, err
}

func (r *Range) Free() int       { return int(r.set.Stats().Free) }
func (r *Range) Used() int       { return r.max - r.Free() }
func (r *Range) CIDR() net.IPNet { return *r.net }

// Exclude takes all of a prefix at once, held or not.
func (r *Range) Exclude(cidr *net.IPNet) error {
	p, _ := netipx.FromStdIPNet(cidr)
	_, err := r.set.Occupy(p)
	return err
}

func (r *Range) Allocate(ip net.IP) error {
	p, ok := r.at(ip)
	if !ok {
		return &ErrNotInRange{r.net.String()}
	}
	err := r.set.Claim(p)
	if errors.Is(err, ipalloc.ErrOccupied) {
		return ErrAllocated
	}
	return err
}

func (r *Range) AllocateNext() (net.IP, error) {
	p, err := r.set.AllocateNext()
	if errors.Is(err, ipalloc.ErrFull) {
		return nil, ErrFull
	}
	return p.Addr().AsSlice(), err
}

func (r *Range) Release(ip net.IP) {
	if p, ok := r.at(ip); ok {
		_, _ = r.set.Release(p) // a child is never refused
	}
}

func (r *Range) ForEach(fn func(net.IP)) {
	for p := range r.set.All() {
		if !slices.Contains(r.ends, p.Addr()) {
			fn(p.Addr().AsSlice())
		}
	}
}

func (r *Range) Has(ip net.IP) bool {
	p, ok := r.at(ip)
	return ok && r.set.Has(p)
}

func (r *Range) Reserved(ip net.IP) bool {
	a, _ := netipx.FromStdIP(ip)
	return slices.Contains(r.ends, a)
}

// at returns the child of an address; ok is false for one that is reserved or of another range.
func (r *Range) at(ip net.IP) (p netip.Prefix, ok bool) {
	a, _ := netipx.FromStdIP(ip)
	p = netip.PrefixFrom(a, a.BitLen())
	_, ok = r.set.Ordinal(p)
	return p, ok && !slices.Contains(r.ends, a)
}
