package block

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// t0 is when the tests' clocks begin.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func mustBlock(t testing.TB, prefix string, o Options) *Block {
	t.Helper()
	b, err := New(netip.MustParsePrefix(prefix), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustCheck(t testing.TB, b *Block) {
	t.Helper()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
}

// lastBytes writes addresses as their last byte, which is all that differs in the blocks of these tests.
func lastBytes(als []alloc.Allocation) string {
	var s []string
	for _, a := range als {
		b := a.Address.AsSlice()
		s = append(s, fmt.Sprint(b[len(b)-1]))
	}
	return strings.Join(s, " ")
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestBlockOrderIsFirstInFirstOut(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{})
	got := b.AutoAssign(nil, 4, alloc.Claim{Handle: "h"}, t0, nil)
	if s := lastBytes(got); s != "0 1 2 3" {
		t.Fatalf("first four: %s", s)
	}
	for _, a := range []string{"10.0.0.2", "10.0.0.0"} {
		if o, err := b.Release(ip(a), alloc.Guard{}, t0, 0); err != nil || o != alloc.Released {
			t.Fatalf("release %s: %v, %v", a, o, err)
		}
	}
	if s := lastBytes(b.AutoAssign(nil, 9, alloc.Claim{Handle: "h"}, t0, nil)); s != "4 5 6 7 2 0" {
		t.Fatalf("next six: %s", s)
	}
	mustCheck(t, b)
	if n, ok := b.Free(); n != 0 || !ok {
		t.Fatalf("free = %d, %v", n, ok)
	}
}

func TestBlockSizes(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		free   uint64
		ok     bool
	}{
		{"10.0.0.0/32", 1, true}, {"10.0.0.0/31", 2, true}, {"10.0.0.0/26", 64, true}, {"0.0.0.0/0", 1 << 32, true},
		{"2001:db8::/128", 1, true}, {"2001:db8::/122", 64, true}, {"2001:db8::/65", 1 << 63, true}, {"2001:db8::/64", 0, false},
	} {
		b := mustBlock(t, tt.prefix, Options{})
		if n, ok := b.Free(); n != tt.free || ok != tt.ok {
			t.Errorf("%s: free = %d, %v", tt.prefix, n, ok)
		}
		got := b.AutoAssign(nil, 3, alloc.Claim{Handle: "h"}, t0, nil)
		for i, a := range got {
			if !b.Prefix().Contains(a.Address) || a.Address != b.Addr(uint64(i)) || a.Prefix().Bits() != b.Prefix().Bits() {
				t.Errorf("%s: %v", tt.prefix, a)
			}
		}
		if al, ok := b.Lookup(ip("2001:db9::")); ok {
			t.Errorf("%s: outside: %v", tt.prefix, al)
		}
		mustCheck(t, b)
		data, addrs := records(b)
		c, err := decoded(b.prefix, data, addrs)
		if err != nil || string(c.Append(nil)) != data {
			t.Errorf("%s: decoded: %v", tt.prefix, err)
		}
	}
	for _, p := range []string{"2001:db8::/63", "10.0.0.1/24", "::ffff:10.0.0.0/120", "::/0"} {
		if _, err := New(netip.MustParsePrefix(p), Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("New(%s) = %v", p, err)
		}
	}
	if _, err := New(netip.Prefix{}, Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("New(zero) = %v", err)
	}
}

func TestBlockLargeIsSparse(t *testing.T) {
	b := mustBlock(t, "2001:db8::/64", Options{})
	far := ip("2001:db8::ffff:ffff:ffff:ffff")
	if _, err := b.Assign(far, alloc.Claim{Handle: "far"}, t0); err != nil {
		t.Fatal(err)
	}
	b.AutoAssign(nil, 100, alloc.Claim{Handle: "near"}, t0, nil)
	mustCheck(t, b)
	data, addrs := records(b)
	c, err := decoded(b.prefix, data, addrs)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := c.Lookup(far); !ok || a.Handle != "far" {
		t.Fatalf("Lookup(far) = %v, %v", a, ok)
	}
	if n := len(slices.Collect(c.All())); n != 101 {
		t.Fatalf("%d addresses", n)
	}
}

func TestBlockReservedEnds(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{Head: 3, Tail: 1})
	if n, ok := b.Free(); n != 4 || !ok {
		t.Errorf("free = %d, %v", n, ok)
	}
	if s := lastBytes(b.AutoAssign(nil, 9, alloc.Claim{Handle: "h"}, t0, nil)); s != "3 4 5 6" {
		t.Fatalf("assigned %s", s)
	}
	for _, a := range []string{"10.0.0.0", "10.0.0.2", "10.0.0.7"} {
		if _, err := b.Assign(ip(a), alloc.Claim{Handle: "h"}, t0); !errors.Is(err, ipalloc.ErrReserved) {
			t.Errorf("Assign(%s) = %v", a, err)
		}
		if o, _ := b.Release(ip(a), alloc.Guard{}, t0, 0); o != alloc.WasFree {
			t.Errorf("Release(%s) = %v", a, o)
		}
	}
	mustCheck(t, b)
	for _, tt := range []struct {
		prefix     string
		head, tail uint64
		ok         bool
	}{
		{"10.0.0.0/30", 3, 1, false}, {"10.0.0.0/31", 3, 1, false}, {"10.0.0.0/32", 3, 1, false}, {"10.0.0.0/29", 3, 1, true},
		{"10.0.0.0/30", 3, 0, true}, {"10.0.0.0/30", 0, 4, false}, {"10.0.0.0/30", ^uint64(0), 1, false}, {"2001:db8::/64", ^uint64(0), 0, true},
	} {
		_, err := New(netip.MustParsePrefix(tt.prefix), Options{Head: tt.head, Tail: tt.tail})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%s with %d + %d: %v", tt.prefix, tt.head, tt.tail, err)
		}
	}
}

func TestBlockAvoidsReservations(t *testing.T) {
	var sb netipx.IPSetBuilder
	sb.AddPrefix(netip.MustParsePrefix("10.0.0.2/31"))
	sb.AddRange(netipx.MustParseIPRange("10.0.0.4-10.0.0.4"))
	sb.AddRange(netipx.MustParseIPRange("10.0.0.7-10.0.1.7"))
	set, _ := sb.IPSet()
	b := mustBlock(t, "10.0.0.0/29", Options{})
	if s := lastBytes(b.AutoAssign(nil, 9, alloc.Claim{Handle: "h"}, t0, set)); s != "0 1 5 6" {
		t.Fatalf("assigned %s", s)
	}
	// They keep their place: without the reservation they come first.
	b.Release(ip("10.0.0.0"), alloc.Guard{}, t0, 0)
	if s := lastBytes(b.AutoAssign(nil, 9, alloc.Claim{Handle: "h"}, t0, nil)); s != "2 3 4 7 0" {
		t.Fatalf("then %s", s)
	}
}

func TestBlockReleaseOutcomes(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{})
	a := b.AutoAssign(nil, 1, alloc.Claim{Handle: "mine"}, t0, nil)[0]
	for i, tt := range []struct {
		g    alloc.Guard
		want alloc.Outcome
	}{
		{alloc.Guard{Handle: "other"}, alloc.OwnerChanged}, {alloc.Guard{Seq: a.Seq + 1}, alloc.OwnerChanged}, {alloc.Guard{Handle: "MINE"}, alloc.OwnerChanged},
		{alloc.Guard{Handle: "mine", Seq: a.Seq}, alloc.Released}, {alloc.Guard{Handle: "mine", Seq: a.Seq}, alloc.WasFree}, {alloc.Guard{}, alloc.WasFree},
	} {
		if o, err := b.Release(a.Address, tt.g, t0, 0); o != tt.want || err != nil {
			t.Errorf("%d: Release(%+v) = %v, %v", i, tt.g, o, err)
		}
	}
	next, err := b.Assign(a.Address, alloc.Claim{Handle: "mine"}, t0)
	if err != nil || next.Seq == a.Seq {
		t.Fatalf("again: %v, %v", next, err)
	}
	if o, _ := b.Release(a.Address, alloc.Guard{Handle: "mine", Seq: a.Seq}, t0, 0); o != alloc.OwnerChanged {
		t.Errorf("a late release took the successor's address: %v", o)
	}
	if _, err := b.Release(ip("10.0.0.8"), alloc.Guard{}, t0, 0); !errors.Is(err, ipalloc.ErrOutOfRange) {
		t.Errorf("release outside: %v", err)
	}
}

func TestBlockCooling(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/31", Options{Claimed: t0})
	b.AutoAssign(nil, 2, alloc.Claim{Handle: "a"}, t0, nil)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	b.Release(ip("10.0.0.1"), alloc.Guard{}, at(1), 10*time.Second)
	b.Release(ip("10.0.0.0"), alloc.Guard{}, at(2), 10*time.Second)
	mustCheck(t, b)
	if _, ok := b.Empty(); ok || b.Cooling() != 2 || b.Used() != 0 {
		t.Fatalf("cooling counts as empty: %d cooling, %d used", b.Cooling(), b.Used())
	}
	if got := b.AutoAssign(nil, 1, alloc.Claim{Handle: "b"}, at(3), nil); len(got) != 0 {
		t.Fatalf("handed out a cooling address: %v", got)
	}
	if _, err := b.Assign(ip("10.0.0.1"), alloc.Claim{Handle: "b"}, at(3)); !errors.Is(err, ipalloc.ErrCooling) {
		t.Fatalf("another handle took it: %v", err)
	}
	if _, err := b.Assign(ip("10.0.0.1"), alloc.Claim{}, at(3)); !errors.Is(err, ipalloc.ErrCooling) {
		t.Fatalf("no handle took it: %v", err)
	}
	if _, err := b.Assign(ip("10.0.0.1"), alloc.Claim{Handle: "a"}, at(3)); err != nil {
		t.Fatalf("its own handle: %v", err)
	}
	if b.Advance(at(11), 0) || !b.Advance(at(12), 0) || b.Cooling() != 0 {
		t.Fatalf("released at 2 for 10 s, cooling %d at 12", b.Cooling())
	}
	b.Release(ip("10.0.0.1"), alloc.Guard{}, at(13), 10*time.Second)
	b.Advance(at(99), 0)
	if since, ok := b.Empty(); !ok || !since.Equal(at(23)) {
		t.Fatalf("empty since %v, %v", since, ok)
	}
	if s := lastBytes(b.AutoAssign(nil, 2, alloc.Claim{Handle: "c"}, at(99), nil)); s != "0 1" {
		t.Fatalf("order after cooling: %s", s)
	}
	mustCheck(t, b)
}

func TestBlockLeases(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{})
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	b.AutoAssign(nil, 2, alloc.Claim{Handle: "long", TTL: 100 * time.Second}, t0, nil)
	b.AutoAssign(nil, 1, alloc.Claim{Handle: "short", TTL: 10 * time.Second}, t0, nil)
	b.AutoAssign(nil, 1, alloc.Claim{Handle: "ever"}, t0, nil)
	if n := b.Renew("ever", time.Second, at(5)); n != 0 {
		t.Fatalf("renewed %d without lease", n)
	}
	if n := b.Renew("short", 10*time.Second, at(5)); n != 1 {
		t.Fatalf("renewed %d", n)
	}
	if b.Advance(at(12), 0); b.Used() != 4 {
		t.Fatal("a renewed lease ended at its old end")
	}
	if b.Advance(at(15), 3*time.Second); b.Used() != 3 || b.Cooling() != 1 {
		t.Fatalf("at its end: %d held, %d cooling", b.Used(), b.Cooling())
	}
	mustCheck(t, b)
	b.Advance(at(1000), 3*time.Second)
	if b.Used() != 1 || b.Cooling() != 0 {
		t.Fatalf("at last: %d held, %d cooling", b.Used(), b.Cooling())
	}
	mustCheck(t, b)
}

func TestBlockAttributesAreSeparate(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{})
	pod, _ := alloc.NewAttributes(map[string]string{"pod": "a", "node": "n"})
	b.AutoAssign(nil, 3, alloc.Claim{Handle: "h", Attributes: pod}, t0, nil)
	other, _ := alloc.NewAttributes(map[string]string{"pod": "b"})
	if err := b.SetAttributes(ip("10.0.0.1"), alloc.Guard{Handle: "h"}, other, pod); err != nil {
		t.Fatal(err)
	}
	mustCheck(t, b)
	for i, want := range []string{"a", "b", "a"} {
		if a, _ := b.Lookup(b.Addr(uint64(i))); a.Attributes.Map()["pod"] != want {
			t.Errorf("address %d: %v", i, a.Attributes.Map())
		}
	}
	if err := b.SetAttributes(ip("10.0.0.1"), alloc.Guard{Handle: "x"}, pod, pod); !errors.Is(err, errOwner) {
		t.Errorf("foreign handle: %v", err)
	}
	if err := b.SetAttributes(ip("10.0.0.5"), alloc.Guard{}, pod, pod); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Errorf("free address: %v", err)
	}
}

func TestBlockSteadyStateDoesNotAllocate(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/26", Options{})
	handles := make([]string, 64)
	for i := range handles {
		handles[i] = fmt.Sprintf("handle-%033d", i)
	}
	for i := range 32 {
		b.AutoAssign(nil, 1, alloc.Claim{Handle: handles[i]}, t0, nil)
	}
	buf := make([]alloc.Allocation, 0, 1)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		a := b.AutoAssign(buf, 1, alloc.Claim{Handle: handles[32+i&31]}, t0, nil)
		b.Release(a[0].Address, alloc.Guard{Seq: a[0].Seq}, t0, 0)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	mustCheck(t, b)
}

func BenchmarkBlock(b *testing.B) {
	for _, used := range []int{0, 32, 62} {
		b.Run(fmt.Sprintf("used=%d", used), func(b *testing.B) {
			blk := mustBlock(b, "10.0.0.0/26", Options{})
			handles := make([]string, 64)
			for i := range handles {
				handles[i] = fmt.Sprintf("handle-%033d", i)
			}
			for i := range used {
				blk.AutoAssign(nil, 1, alloc.Claim{Handle: handles[i]}, t0, nil)
			}
			buf := make([]alloc.Allocation, 0, 1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a := blk.AutoAssign(buf, 1, alloc.Claim{Handle: handles[63]}, t0, nil)
				blk.Release(a[0].Address, alloc.Guard{Seq: a[0].Seq}, t0, 0)
			}
		})
	}
}

// A block names its former owners while any of its addresses is held, each once.
func TestFormerOwners(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/26", Options{Owner: alloc.HostOwner("a"), Claimed: t0})
	b.Give(alloc.HostOwner("b"), 0)
	if b.former != "" {
		t.Fatalf("an empty block names %q", b.former)
	}
	b.Assign(ip("10.0.0.1"), alloc.Claim{Handle: "p"}, t0)
	for _, step := range []struct{ owner, former string }{{"", "1b\x00"}, {"c", "1b\x00"}, {"bb", "1b\x001c\x00"}, {"b", "1c\x001bb\x00"}, {"c", "1bb\x001b\x00"}} {
		o := alloc.Owner{}
		if step.owner != "" {
			o = alloc.HostOwner(step.owner)
		}
		b.Give(o, 0)
		mustCheck(t, b)
		if b.former != step.former {
			t.Fatalf("given to %q it names %q, want %q", step.owner, b.former, step.former)
		}
	}
	b.Release(ip("10.0.0.1"), alloc.Guard{}, t0, 0)
	if mustCheck(t, b); b.former != "" {
		t.Errorf("empty again it names %q", b.former)
	}
}

// Forget removes a former owner for whom nothing is held, and no other.
func TestForgetFormerOwner(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/26", Options{Owner: alloc.HostOwner("a"), Claimed: t0})
	for i, host := range []string{"a", "b", "c"} {
		b.Assign(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), alloc.Claim{Handle: "p"}, t0)
		b.Give(alloc.HostOwner(host), 0)
	}
	b.Disown()
	for _, host := range []string{"a", "b", "c", "never"} {
		was := b.former
		held := slices.ContainsFunc([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, func(a string) bool {
			x, _ := b.Ordinal(ip(a))
			return b.HeldFor(x, alloc.HostOwner(host))
		})
		b.Forget(alloc.HostOwner(host))
		if mustCheck(t, b); (b.former == was) != (held || !HasCode(was, OwnerCode(alloc.HostOwner(host)))) {
			t.Errorf("%s holds %v: was %q, is %q", host, held, was, b.former)
		}
	}
}

// An ordinal cools until the time that is known of it, and as long as the last one if none is.
func TestCoolsUntil(t *testing.T) {
	b := &Block{cool: []cooling{{x: 1}, {x: 2, until: 1}, {x: 3, until: 90}}}
	for x, want := range map[uint64]int64{1: 90, 2: 1, 3: 90} {
		if got := b.CoolsUntil(x); got != want {
			t.Errorf("ordinal %d: %d, want %d", x, got, want)
		}
	}
}
