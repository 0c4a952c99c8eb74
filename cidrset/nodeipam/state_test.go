package nodeipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/claims"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// Every held prefix times every reservation times every released prefix, in and
// around a slot of four children: the whole neighbourhood of what a release may and may not free.
func TestSmallWorldExhaustively(t *testing.T) {
	var all []netip.Prefix // every prefix in and just around the pool
	for bits := 27; bits <= 32; bits++ {
		for i := range 1 << (bits - 27) {
			a := pfx("10.0.0.0/27").Addr().As4()
			a[3] = byte(i << (32 - bits))
			all = append(all, netip.PrefixFrom(netip.AddrFrom4(a), bits))
		}
	}
	pool := pfxs("10.0.0.0/28")
	for _, held := range all {
		for i, reserved := range all {
			if testing.Short() && i%8 != 0 {
				continue // slow with the race detector
			}
			for _, p := range all {
				a, err := New(Config{Slots: []Slot{{30, pool}}, Reserved: []netip.Prefix{reserved}})
				if err != nil {
					t.Fatal(err)
				}
				before := snapshot(t, a)
				a.Load([]Node{{Name: "held", Prefixes: []netip.Prefix{held}}, {Name: "p", Prefixes: []netip.Prefix{p}}})
				a.Release("p")
				for i := range 4 {
					child := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i * 4)}), 30)
					taken := a.spaces[0].Tally(claims.BlockOf(child), 30).Free == 0
					if want := child.Overlaps(held) || child.Overlaps(reserved); taken != want {
						t.Fatalf("held %v, reserved %v, released %v: %v taken %v", held, reserved, p, child, taken)
					}
				}
				a.Release("held")
				if snapshot(t, a) != before || a.Check() != nil {
					t.Fatalf("held %v, reserved %v, released %v: %v", held, reserved, p, a.Check())
				}
			}
		}
	}
}

func TestSnapshot(t *testing.T) {
	c := dual("10.0.0.0/16", 24, "fd00::/32", 64)
	c.Reserved = pfxs("10.0.0.0/25", "10.0.0.0/24", "fd00::/33")
	a := mustNew(t, c)
	for i := range 100 {
		if _, err := a.Allocate(Node{Name: fmt.Sprint("n", i)}); err != nil {
			t.Fatal(err)
		}
	}
	a.Load([]Node{ParseNode("dup", "10.0.1.0/24"), ParseNode("far", "172.16.0.0/12")})
	a.Terminate("n3")
	_ = a.DrainPool(pfx("10.0.0.0/16"), true)
	data, err := a.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot(t, b) != string(data) || b.Check() != nil || fmt.Sprint(b.Stats()) != fmt.Sprint(a.Stats()) {
		t.Fatalf("%+v, want %+v: %v", b.Stats(), a.Stats(), b.Check())
	}
	if _, err := Restore(data, nil); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Fatal(err)
	}
	refuseDamage(t, data)
}

// refuseDamage tests that Restore refuses data cut anywhere, with its own checksum and
// with a right one, and with any byte damaged.
func refuseDamage(t *testing.T, data []byte) {
	t.Helper()
	for i := range data {
		for _, cut := range [][]byte{data[:i], wire.Seal(slices.Clone(data[:i]), 0)} {
			if _, err := Restore(cut); i < len(data)-4 && !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: %v", i, len(data), err)
			}
		}
		data[i] ^= 0x55
		if _, err := Restore(data); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
		data[i] ^= 0x55
	}
}

func TestConcurrentOwnersGetDistinctPrefixes(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/16", 24, "fd00::/48", 64))
	got := make([][]netip.Prefix, 256)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < len(got); i += 8 {
				if i%4 == 0 {
					_, _ = a.Allocate(Node{Name: fmt.Sprint("brief", i)})
					a.Release(fmt.Sprint("brief", i))
				}
				name := fmt.Sprint("n", i)
				for got[i] == nil {
					as, _ := a.Allocate(Node{Name: name})
					got[i] = as.Prefixes
				}
				_ = a.Stats()
				_, _ = a.Lookup(name)
			}
		}()
	}
	wg.Wait()
	seen := map[netip.Prefix]int{}
	for i, ps := range got {
		for _, p := range ps {
			if j, dup := seen[p]; dup {
				t.Fatalf("%v given to %d and %d", p, i, j)
			}
			seen[p] = i
		}
	}
	if len(seen) != 512 {
		t.Fatalf("%d prefixes", len(seen))
	}
}

func TestChangesComeInOrderAndOutsideTheLock(t *testing.T) {
	var a *Allocator
	var got []string
	a = mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/22")}}}, OnChange(func(c Change) {
		_ = a.Stats() // would deadlock under the lock
		text := c.Op.String()
		for _, n := range c.Nodes {
			text += fmt.Sprint(" ", n.Name, n.Prefixes)
		}
		if c.Prefix.IsValid() {
			text += " " + c.Prefix.String()
		}
		got = append(got, text)
	}))
	allocate(t, a, "a", "10.0.0.0/24")
	allocate(t, a, "a", "10.0.0.0/24") // nothing changed
	a.Load([]Node{ParseNode("b", "10.0.1.0/24"), ParseNode("c", "10.0.2.0/24"), ParseNode("a", "10.0.0.0/24")})
	_ = a.Occupy(Node{Name: "d", Prefixes: []netip.Prefix{pfx("10.0.3.0/24")}})
	a.Release("b")
	a.Release("b")
	a.Terminate("c")
	a.Terminate("c")
	a.Observe(ParseNode("a", "x"))
	_ = a.Reserve(pfx("10.1.0.0/16"))
	_ = a.Reserve(pfx("10.1.0.0/16"))
	_ = a.Unreserve(pfx("10.1.0.5/16"))
	_ = a.Unreserve(pfx("10.1.0.0/16"))
	_ = a.AddPool(0, pfx("10.4.0.0/16"))
	_ = a.GrowPool(pfx("10.4.0.0/16"), pfx("10.4.0.0/15"))
	_ = a.DrainPool(pfx("10.4.0.0/15"), true)
	_ = a.DrainPool(pfx("10.4.0.0/15"), true)
	_ = a.DrainPool(pfx("10.4.0.0/15"), false)
	_ = a.RemovePool(pfx("10.4.0.0/15"))
	want := []string{
		"allocate a[10.0.0.0/24]", "occupy b[10.0.1.0/24] c[10.0.2.0/24]", "occupy d[10.0.3.0/24]", "release b[10.0.1.0/24]",
		"terminate c[10.0.2.0/24]", "reserve 10.1.0.0/16", "unreserve 10.1.0.0/16", "add pool 10.4.0.0/16",
		"grow pool 10.4.0.0/16", "drain pool 10.4.0.0/15", "undrain pool 10.4.0.0/15", "remove pool 10.4.0.0/15",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("changes:\n%s\nwant:\n%s", lines(got), lines(want))
	}
	if Op(200).String() != "unknown" {
		t.Fatal(Op(200))
	}
}

func TestAllocations(t *testing.T) {
	a := mustNew(t, dual("10.0.0.0/12", 24, "fd00::/44", 64))
	for i := range 1000 {
		_, _ = a.Allocate(Node{Name: fmt.Sprint("n", i)})
	}
	for _, c := range []struct {
		name string
		want float64
		f    func()
	}{
		{"Allocate and Release", 2, func() {
			_, _ = a.Allocate(Node{Name: "x"})
			a.Release("x")
		}},
		{"Allocate again", 1, func() { _, _ = a.Allocate(Node{Name: "n7"}) }},
		{"Lookup", 1, func() { _, _ = a.Lookup("n7") }},
	} {
		if got := testing.AllocsPerRun(5000, c.f); got > c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

// Check finds a node, a claim and a count that are not what they were.
func TestCheckFinds(t *testing.T) {
	for what, damage := range map[string]func(a *Allocator, n *owner){
		"a node under two names":  func(a *Allocator, n *owner) { a.owners["other"] = n },
		"a node without a prefix": func(a *Allocator, n *owner) { a.owners["none"] = &owner{name: "none"} },
		"a prefix too few":        func(a *Allocator, n *owner) { n.prefixes = n.prefixes[:1] },
		"a claim of another":      func(a *Allocator, n *owner) { n.two[1].Owner = a.owners["m"] },
		"a prefix of another":     func(a *Allocator, n *owner) { n.prefixes[0] = a.owners["m"].prefixes[0] },
		"a prefix with host bits": func(a *Allocator, n *owner) { n.prefixes[0] = pfx("10.0.0.1/28") },
		"a node not in the tries": func(a *Allocator, n *owner) {
			a.owners["new"] = &owner{name: "new", prefixes: n.prefixes}
		},
		"a node that is forgotten": func(a *Allocator, n *owner) { delete(a.owners, "n") },
		"a terminating node":       func(a *Allocator, n *owner) { n.terminating = true },
		"a reservation":            func(a *Allocator, n *owner) { a.reservations++ },
	} {
		a, err := New(dual("10.0.0.0/24", 28, "fd00::/48", 64))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"m", "n"} {
			if _, err := a.Allocate(Node{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(a.Reserve(pfx("10.0.0.128/25")), a.Check()); err != nil {
			t.Fatal(err)
		}
		if damage(a, a.owners["n"]); !errors.Is(a.Check(), ipalloc.ErrCorrupt) {
			t.Error(what)
		}
	}
}
