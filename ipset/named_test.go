package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// dual is a world with a pool of each family; the IPv4 one hands out a few addresses by itself.
func dual(t *testing.T) *world {
	four := poolOf("four", "10.0.0.0/24", 28)
	four.Ranges, four.Manual = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.200-10.0.0.203")}, true
	return newWorld(t, alloc.Config{}, four, poolOf("six", "fd00::/120", 124))
}

// namedArgs are arguments for named addresses and automatic ones.
type namedArgs struct {
	alloc.AssignArgs
	named []netip.Addr
}

// named are arguments for named addresses and n automatic IPv6 ones.
func named(handle string, n int, as ...string) namedArgs {
	a := namedArgs{AssignArgs: alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num6: n, Handle: handle}}
	for _, s := range as {
		a.named = append(a.named, ip(s))
	}
	return a
}

// assignNamed carries out such a call, which must succeed.
func (w *world) assignNamed(a namedArgs) alloc.Assigned {
	w.t.Helper()
	got, err := w.AssignIPs(bg, a.AssignArgs, a.named...)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// A static IPv4 address and an automatic IPv6 one are one commit, outside of the ranges of a manual pool too; a repetition of the
// request returns both, and one where the handle has the static address already adds the other.
func TestNamedBesideAutomatic(t *testing.T) {
	w := dual(t)
	rev := w.revision()
	a := named("vm", 1, "10.0.0.9")
	a.Request = "r"
	got := w.assignNamed(a)
	if len(got.V4) != 1 || got.V4[0].Address != ip("10.0.0.9") || len(got.V6) != 1 || w.revision() != rev+1 {
		t.Fatalf("%+v, %d commits", got, w.revision()-rev)
	}
	again, err := w.engine(w.store).AssignIPs(bg, a.AssignArgs, a.named...)
	if err != nil || !slices.Equal(again.V4, got.V4) || !slices.Equal(again.V6, got.V6) {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V6[0].Address}); err != nil {
		t.Fatal(err)
	}
	again, err = w.AssignIPs(bg, a.AssignArgs, a.named...)
	if err != nil || !slices.Equal(again.V4, got.V4) || len(again.V6) != 1 || again.V6[0].Seq == got.V6[0].Seq {
		t.Errorf("repeated after a release: %+v, %v", again, err)
	}
	a.named[0] = ip("10.0.0.10")
	if _, err := w.AssignIPs(bg, a.AssignArgs, a.named...); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("the key for another address: %v", err)
	}
	more := w.assignNamed(named("vm", 2, "10.0.0.9", "10.0.0.11", "fd00::77", "fd00::78"))
	if len(more.V4) != 2 || more.V4[0] != got.V4[0] || more.V4[1].Address != ip("10.0.0.11") || len(more.V6) != 4 || more.V6[0].Address != ip("fd00::77") {
		t.Errorf("%+v", more)
	}
}

// If one address cannot be given, none is: neither the named nor the automatic ones, with Partial too.
func TestNamedAllOrNothing(t *testing.T) {
	w := dual(t)
	w.assignNamed(named("other", 0, "10.0.0.7"))
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.8"), Owner: alloc.HostOwner("g"), Handle: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Decline(bg, alloc.DeclineArgs{Address: ip("10.0.0.8"), For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	state, _ := w.store.MarshalBinary()
	many := make([]string, 65)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(64 + i)}).String()
	}
	twice, contiguous := named("vm", 1, "10.0.0.9", "10.0.0.9"), named("vm", 2, "10.0.0.9")
	contiguous.Choose = alloc.Contiguous()
	none := named("vm", 1)
	none.named = []netip.Addr{{}}
	selected := named("vm", 0, "10.0.0.9")
	selected.Use = alloc.LoadBalancer
	full := named("vm", 300, "10.0.0.9")
	for name, tt := range map[string]struct {
		a    namedArgs
		want error
	}{
		"held":              {named("vm", 1, "10.0.0.9", "10.0.0.7"), ipalloc.ErrOccupied},
		"declined":          {named("vm", 1, "10.0.0.8"), ipalloc.ErrCooling},
		"in no pool":        {named("vm", 1, "192.0.2.1"), ipalloc.ErrNotFound},
		"another use":       {selected, ipalloc.ErrNotFound},
		"no IPv6 left":      {full, ipalloc.ErrFull},
		"named twice":       {twice, ipalloc.ErrInvalid},
		"no address":        {none, ipalloc.ErrInvalid},
		"too many":          {named("vm", 0, many...), ipalloc.ErrInvalid},
		"beside contiguous": {contiguous, ipalloc.ErrInvalid},
	} {
		tt.a.Partial = tt.a.Partial || tt.want == ipalloc.ErrOccupied
		if got, err := w.AssignIPs(bg, tt.a.AssignArgs, tt.a.named...); !errors.Is(err, tt.want) || len(got.V4)+len(got.V6) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if after, _ := w.store.MarshalBinary(); string(after) != string(state) {
			t.Fatalf("%s changed the store", name)
		}
	}
	w.assignNamed(named("vm", 0, many[:64]...))
}

// A sticky handle that names the address which it had last gets it once.
func TestNamedAndSticky(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	a := want("h", 2, "vm")
	a.Sticky = true
	first := w.assign(a).V4
	w.releaseHandle("vm")
	got := w.assignNamed(namedArgs{a, []netip.Addr{first[0].Address}})
	if len(got.V4) != 3 || got.V4[0].Address != first[0].Address || got.V4[1].Address != first[1].Address {
		t.Errorf("%+v, had %+v", got.V4, first)
	}
}

// A block of a size that its pool no longer has gives its addresses to every call that asks for one: automatic, named, as a wish, within the
// rules, and to a handle that had it last.
func TestEveryCallUsesABlockOfAnotherSize(t *testing.T) {
	p := poolOf("p", "10.0.0.0/26", 29)
	w := newWorld(t, alloc.Config{}, p)
	w.assign(want("a", 1, "first"))
	old := w.blocksOf("a")[0]
	p.BlockBits = 30
	if err := w.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	if got := w.assign(want("a", 1, "second")).V4[0]; got.Block != old {
		t.Errorf("automatic: %+v", got)
	}
	if got, err := w.EnsureBlock(bg, want("a", 1, "")); err != nil || !slices.Equal(got, []netip.Prefix{old}) {
		t.Errorf("EnsureBlock: %v, %v", got, err)
	}
	a := want("a", 1, "wish")
	wish := old.Addr().Next().Next().Next().Next()
	a.Choose, a.Sticky = alloc.Prefer(wish), true
	for range 2 { // by wish, and then as the last one
		if got := w.assign(a).V4; len(got) != 1 || got[0].Block != old || got[0].Address != wish {
			t.Errorf("%v: %+v", a.Choose, got)
		}
		w.releaseHandle("wish")
		a.Choose = alloc.Choice{}
	}
	if al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: old.Addr().Next().Next(), Owner: alloc.HostOwner("a"), WithinRules: true, Handle: "exact"}); err != nil || al.Block != old {
		t.Errorf("WithinRules: %+v, %v", al, err)
	}
	at := record.LastAddr(old)
	al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("a"), Handle: "third"})
	if err != nil || al.Block != old {
		t.Errorf("AssignIP: %+v, %v", al, err)
	}
	got, err := w.AssignIPs(bg, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Handle: "fourth"}, at.Prev())
	if err != nil || got.V4[0].Block != old {
		t.Errorf("named: %+v, %v", got, err)
	}
}

// A call that names an address of a block without owner makes the block its own, and gives the automatic addresses as from the first
// of its blocks.
func TestAnAdoptedBlockGivesTheRest(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/28", 30))
	w.assign(want("gone", 1, "old"))
	first := w.blocksOf("gone")[0]
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("gone")}); err != nil {
		t.Fatal(err)
	}
	later := ip("10.0.0.12") // of a block behind that
	if first.Contains(later) {
		later = ip("10.0.0.8")
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: later, Owner: alloc.HostOwner("h"), Handle: "has"}); err != nil {
		t.Fatal(err)
	}
	named := first.Addr().Next().Next().Next()
	got, err := w.AssignIPs(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Handle: "x"}, named)
	if err != nil || len(got.V4) != 2 || !first.Contains(got.V4[1].Address) != later.Less(first.Addr()) {
		t.Errorf("%v, %v: %v named of %v, beside %v", got.V4, err, named, first, later)
	}
}

// Pools restrict the addresses that a call names, whether it names one or several, with rules or without.
func TestPoolsRestrictNamedAddresses(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28), poolOf("b", "10.0.1.0/26", 28))
	h, in, out := alloc.HostOwner("h"), ip("10.0.0.5"), ip("10.0.1.5")
	calls := map[string]func(handle string, at netip.Addr, pools ...string) error{
		"AssignIP": func(handle string, at netip.Addr, pools ...string) error {
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: h, Handle: handle, Pools: pools})
			return err
		},
		"AssignIP within rules": func(handle string, at netip.Addr, pools ...string) error {
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: at, Owner: h, Handle: handle, Pools: pools, WithinRules: true})
			return err
		},
		"AssignIPs": func(handle string, at netip.Addr, pools ...string) error {
			_, err := w.AssignIPs(bg, alloc.AssignArgs{Owner: h, Handle: handle, Pools: pools}, at)
			return err
		},
		"AssignIPs with another": func(handle string, at netip.Addr, pools ...string) error {
			_, err := w.AssignIPs(bg, alloc.AssignArgs{Owner: h, Handle: handle, Num4: 1, Pools: pools}, at)
			return err
		},
	}
	for name, call := range calls {
		before := w.rev()
		if err := call("x", out, "a"); !errors.Is(err, ipalloc.ErrNotFound) || w.rev() != before {
			t.Errorf("%s, in another pool: %v", name, err)
		}
		if err := call("x", in, "a", "nowhere"); !errors.Is(err, ipalloc.ErrNotFound) || w.rev() != before {
			t.Errorf("%s, of a pool that does not exist: %v", name, err)
		}
		for _, pools := range [][]string{{"a"}, {"b", "a"}, nil} {
			if err := call("x", in, pools...); err != nil {
				t.Errorf("%s in %v: %v", name, pools, err)
			}
			if err := call("x", in, "b"); !errors.Is(err, ipalloc.ErrNotFound) {
				t.Errorf("%s of an address that is held in another pool: %v", name, err)
			}
			w.releaseHandle("x")
		}
	}
}
