package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
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
