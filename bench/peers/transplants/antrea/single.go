//go:build transplant

// Package ipallocator puts bitmap.Bitmap in the place of Antrea's allocator of one range of addresses.
package ipallocator

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// SingleIPAllocator has a bit for each address. The reserved ones are set from the beginning.
type SingleIPAllocator struct {
	name     string
	at       addr.Codec
	first    uint64 // the ordinal of the first address
	mu       sync.Mutex
	bits     *bitmap.Bitmap
	reserved *bitmap.Bitmap
}

func NewCIDRAllocator(cidr *net.IPNet, reserved []net.IP) (*SingleIPAllocator, error) {
	p, _ := netipx.FromStdIPNet(cidr)
	a, err := newAllocator(cidr.String(), p.Addr().Next(), netipx.PrefixLastIP(p))
	if err != nil {
		return nil, err
	}
	for _, ip := range reserved {
		if i, ok := a.offset(ip); ok {
			a.bits.Set(i)
			a.reserved.Set(i)
		}
	}
	return a, nil
}

func NewIPRangeAllocator(first, last net.IP) (*SingleIPAllocator, error) {
	from, _ := netipx.FromStdIP(first)
	to, _ := netipx.FromStdIP(last)
	return newAllocator(fmt.Sprintf("%s-%s", from, to), from, to)
}

func newAllocator(name string, first, last netip.Addr) (*SingleIPAllocator, error) {
	if !netipx.IPRangeFrom(first, last).IsValid() {
		return nil, fmt.Errorf("invalid IP range %s", name)
	}
	pool, _ := first.Prefix(max(0, first.BitLen()-64))
	at, err := addr.NewCodec(pool, first.BitLen())
	a := &SingleIPAllocator{name: name, at: at}
	a.first, _ = at.Ordinal(first)
	end, ok := at.Ordinal(last)
	if !ok {
		end = math.MaxUint64
	}
	n := min(end-a.first, 1<<16-1) + 1 // theirs has no more
	a.bits, a.reserved = bitmap.New(n), bitmap.New(n)
	return a, err
}

func (a *SingleIPAllocator) Name() string { return a.name }
func (a *SingleIPAllocator) Total() int   { return int(a.bits.Len() - a.reserved.Count()) }
func (a *SingleIPAllocator) Free() int    { return a.Total() - a.Used() }

func (a *SingleIPAllocator) Used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.bits.Count() - a.reserved.Count())
}

func (a *SingleIPAllocator) Has(ip net.IP) bool {
	_, ok := a.offset(ip)
	return ok
}

// offset returns the bit of an address.
func (a *SingleIPAllocator) offset(ip net.IP) (i uint64, ok bool) {
	x, _ := netipx.FromStdIP(ip)
	i, ok = a.at.Ordinal(x)
	return i - a.first, ok && i-a.first < a.bits.Len()
}

// address returns the address of a bit, in 16 bytes as theirs.
func (a *SingleIPAllocator) address(i uint64) net.IP {
	return net.IP(a.at.Addr(a.first + i).AsSlice()).To16()
}

func (a *SingleIPAllocator) AllocateIP(ip net.IP) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.offset(ip)
	if !ok || !a.bits.Set(i) {
		return fmt.Errorf("IP %v is not in %s, reserved or already allocated", ip, a.name)
	}
	return nil
}

func (a *SingleIPAllocator) AllocateNext() (net.IP, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.bits.SetNextClear(0)
	if !ok {
		return nil, fmt.Errorf("no available IP")
	}
	return a.address(i), nil
}

func (a *SingleIPAllocator) AllocateRange(size int) (ips []net.IP, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for lo, hi := range a.bits.ZeroRuns() {
		if hi-lo < uint64(size)-1 {
			continue
		}
		a.bits.SetRange(lo, lo+uint64(size)-1)
		for i := range uint64(size) {
			ips = append(ips, a.address(lo+i))
		}
		return ips, nil
	}
	return nil, fmt.Errorf("continuous range of size %d is not available", size)
}

func (a *SingleIPAllocator) Release(ip net.IP) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.offset(ip)
	if !ok || a.reserved.Test(i) || !a.bits.Clear(i) {
		return fmt.Errorf("IP %v is not in %s or not allocated", ip, a.name)
	}
	return nil
}
