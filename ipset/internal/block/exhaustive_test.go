package block

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestBlockExhaustively runs every sequence of five operations on a block of four addresses beside its twin.
func TestBlockExhaustively(t *testing.T) {
	prefix := netip.MustParsePrefix("10.0.0.0/30")
	const ops, depth = 12, 5
	total := 1
	for range depth {
		total *= ops
	}
	if testing.Short() {
		total /= ops
	}
	for n := range total {
		b := mustBlock(t, "10.0.0.0/30", Options{Claimed: t0})
		m := model.NewIPSetBlock(prefix, 0, 0, t0)
		now := t0
		for k := n; k > 0; k /= ops {
			b.Advance(now, 0)
			m.Advance(now, 0)
			handle := fmt.Sprint("h", k%2)
			switch op := k % ops; op {
			case 0:
				now = now.Add(6 * time.Second)
			case 1, 2:
				for _, a := range m.Peek(op, nil) {
					m.Take(a, model.IPSetHold{Handle: handle})
				}
				b.AutoAssign(nil, op, alloc.Claim{Handle: handle}, now, nil)
			case 3, 4, 5:
				a := b.Addr(uint64(op - 3))
				if m.CanTake(a, handle) == "" {
					m.Take(a, model.IPSetHold{Handle: handle})
				}
				b.Assign(a, alloc.Claim{Handle: handle}, now)
			default:
				a, cool := b.Addr(uint64((op-6)%3)), time.Duration((op-6)/3)*5*time.Second
				if m.Held(a) {
					m.Drop(a, now, cool)
				}
				b.Release(a, alloc.Guard{}, now, cool)
			}
		}
		if free := slices.Collect(b.FreeAddresses()); !slices.Equal(free, m.Free) || b.Used() != uint64(m.Used()) || int(b.Cooling()) != len(m.Cool) {
			t.Fatalf("sequence %d: free %v, want %v; %d held, %d cooling", n, free, m.Free, b.Used(), b.Cooling())
		}
		if err := b.Check(); err != nil {
			t.Fatalf("sequence %d: %v", n, err)
		}
	}
}

// The first and the last ordinal of a block of 2^64 addresses are neighbours in arithmetic only: every sequence of six
// operations at both ends keeps a queue that is coded and read again.
func TestQueueOf64BitsDoesNotWrap(t *testing.T) {
	prefix := netip.MustParsePrefix("fd00::/64")
	ends := []uint64{0, 1, 2, 1<<64 - 1}
	total := 1
	for range 6 {
		total *= len(ends)
	}
	for n := range total {
		b := mustBlock(t, prefix.String(), Options{Claimed: t0})
		b.AutoAssign(nil, 3, alloc.Claim{Handle: "first"}, t0, nil)
		for k := n + total; k > 1; k /= len(ends) {
			a := b.Addr(ends[k%len(ends)])
			if _, err := b.Assign(a, alloc.Claim{Handle: "h"}, t0); err != nil {
				b.Release(a, alloc.Guard{}, t0, 0)
			}
			if err := b.Check(); err != nil {
				t.Fatalf("sequence %d, after %s: %v", n, a, err)
			}
		}
		data, addrs := records(b)
		c, err := decoded(prefix, data, addrs)
		if err != nil {
			t.Fatalf("sequence %d: %v", n, err)
		}
		if got, want := c.FreeSpans(), b.FreeSpans(); !slices.Equal(got, want) {
			t.Fatalf("sequence %d: queue %v is read as %v", n, want, got)
		}
	}
}
