//go:build transplant

// Package ipallocator replaces Cilium's range of service addresses by ipset.Engine.
package ipallocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var (
	ErrFull      = errors.New("range is full")
	ErrAllocated = errors.New("provided IP is already allocated")
)

type ErrNotInRange struct{ ValidRange string }

func (e *ErrNotInRange) Error() string {
	return fmt.Sprintf("provided IP is not in the valid range. The range of valid IPs is %s", e.ValidRange)
}

// CIDRRangeOption makes the first or the last address of a prefix usable.
type CIDRRangeOption func(first, last *bool)

func WithAllowFirstIP() CIDRRangeOption { return func(first, _ *bool) { *first = true } }
func WithAllowLastIP() CIDRRangeOption  { return func(_, last *bool) { *last = true } }
func WithAllowFirstLastIPs() CIDRRangeOption {
	return func(first, last *bool) { *first, *last = true, true }
}

// host owns the blocks: there is one process.
var host, ctx = alloc.HostOwner("cilium"), context.Background()

// Range is an engine with one pool, whose Ranges leave out unusable addresses.
type Range struct {
	e      *ipset.Engine
	prefix netip.Prefix
	usable netipx.IPRange
	base   netip.Addr // their tests look at these
	max    int
}

// NewCIDRRange assigns only the first 2^16 addresses of a larger IPv6 prefix, like the original.
func NewCIDRRange(p netip.Prefix, opts ...CIDRRangeOption) *Range {
	p = p.Masked()
	pool := netip.PrefixFrom(p.Addr(), max(p.Bits(), p.Addr().BitLen()-16))
	tiny := pool.Bits() >= p.Addr().BitLen()-1
	first, last := tiny, tiny
	for _, o := range opts {
		o(&first, &last)
	}
	r := &Range{prefix: p, base: pool.Addr()}
	end := netipx.PrefixLastIP(pool)
	if !first {
		r.base = r.base.Next()
	}
	if !last {
		end = end.Prev()
	}
	r.usable = netipx.IPRangeFrom(r.base, end)
	e, err := ipset.New(store.NewMemory(), ipset.Options{})
	if err == nil {
		bits := max(pool.Bits(), p.Addr().BitLen()-8)
		err = e.AddPool(ctx, alloc.Pool{Name: "range", Prefix: pool, BlockBits: bits, Ranges: []netipx.IPRange{r.usable}})
	}
	if r.e = e; err != nil {
		panic(err)
	}
	r.max = r.Free()
	return r
}

func (r *Range) Free() int {
	u, err := r.e.Utilization(ctx)
	if err != nil {
		panic(err)
	}
	return int(u[0].Available.Lo)
}

func (r *Range) Allocate(ip netip.Addr) error {
	if !r.usable.Contains(ip) {
		return &ErrNotInRange{r.prefix.String()}
	}
	_, err := r.e.AssignIP(ctx, alloc.AssignIPArgs{Address: ip, Owner: host})
	if errors.Is(err, ipalloc.ErrOccupied) {
		return ErrAllocated
	}
	return err
}

func (r *Range) AllocateNext() (netip.Addr, error) {
	args := alloc.AssignArgs{Owner: host, Num4: 1}
	if r.base.Is6() {
		args.Num4, args.Num6 = 0, 1
	}
	got, err := r.e.AutoAssign(ctx, args)
	if errors.Is(err, ipalloc.ErrFull) {
		return netip.Addr{}, ErrFull
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return append(got.V4, got.V6...)[0].Address, nil
}

func (r *Range) ForEach(fn func(netip.Addr)) {
	for al, err := range r.e.Allocations(ctx, r.prefix) {
		if err != nil {
			panic(err)
		}
		fn(al.Address)
	}
}

func (r *Range) Has(ip netip.Addr) bool {
	_, err := r.e.Lookup(ctx, ip)
	return err == nil
}
