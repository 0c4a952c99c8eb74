package block

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/model"
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
				b.AutoAssign(nil, op, Claim{Handle: handle}, now, nil)
			case 3, 4, 5:
				a := b.Addr(uint64(op - 3))
				if m.CanTake(a, handle) == "" {
					m.Take(a, model.IPSetHold{Handle: handle})
				}
				b.Assign(a, Claim{Handle: handle}, now)
			default:
				a, cool := b.Addr(uint64((op-6)%3)), time.Duration((op-6)/3)*5*time.Second
				if h, ok := m.Holds[a]; ok && !h.Cooling {
					m.Drop(a, now, cool)
				}
				b.Release(a, Guard{}, now, cool)
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
