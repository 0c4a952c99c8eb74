package ipset

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/selector"
)

// A client that asks for one address gets it by the rules of automatic assignment, or a refusal that says why, and nothing else.
func TestExactly(t *testing.T) {
	ofOthers := poolOf("rack", "10.1.0.0/26", 26)
	ofOthers.Nodes = selector.Selector{{Labels: []selector.Requirement{{Key: "rack", Op: selector.Exists}}}}
	w := newWorld(t, alloc.Config{},
		alloc.Pool{Name: "lan", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 26, Cooldown: time.Hour, Subnet: true,
			Ranges: []netipx.IPRange{netipx.MustParseIPRange("10.0.0.0-10.0.0.99")}},
		ofOthers,
		alloc.Pool{Name: "off", Prefix: netip.MustParsePrefix("10.2.0.0/26"), Disabled: true},
		alloc.Pool{Name: "manual", Prefix: netip.MustParsePrefix("10.3.0.0/26"), Manual: true},
		alloc.Pool{Name: "six", Prefix: netip.MustParsePrefix("fd00::/120"), BlockBits: 122},
		alloc.Pool{Name: "tunnels", Prefix: netip.MustParsePrefix("10.4.0.0/26"), Uses: alloc.Tunnel})
	var reserved netipx.IPSetBuilder
	reserved.AddPrefix(netip.MustParsePrefix("10.0.0.8/30"))
	set, _ := reserved.IPSet()
	if _, err := w.Operator().SetReservations(bg, reservations(set)); err != nil {
		t.Fatal(err)
	}
	ask := func(address, handle string) (alloc.Allocation, error) {
		return w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(address), Owner: alloc.HostOwner("h"), WithinRules: true, Handle: handle})
	}
	first, err := ask("10.0.0.70", "c1")
	if err != nil || first.Address != ip("10.0.0.70") {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := ask("10.0.0.70", "c1"); err != nil || again != first {
		t.Errorf("again: %+v, %v", again, err)
	}
	for _, a := range []string{"10.3.0.9", "fd00::42", "10.0.0.99"} {
		if al, err := ask(a, "c2"); err != nil || al.Address != ip(a) {
			t.Errorf("%s: %+v, %v", a, al, err)
		}
	}
	w.releaseHandle("c2")
	before := w.rev()
	for _, tt := range []struct {
		address, handle string
		want            error
	}{
		{"10.0.0.70", "c3", ipalloc.ErrOccupied},
		{"10.0.0.99", "c3", ipalloc.ErrCooling},
		{"10.0.0.9", "c3", ipalloc.ErrReserved},   // a reservation
		{"10.0.0.100", "c3", ipalloc.ErrReserved}, // outside of the ranges
		{"10.0.0.0", "c3", ipalloc.ErrReserved},   // the network
		{"10.1.0.1", "c3", ipalloc.ErrNotFound},   // for other hosts
		{"10.2.0.1", "c3", ipalloc.ErrNotFound},
		{"10.4.0.1", "c3", ipalloc.ErrNotFound}, // for another use
		{"10.9.0.1", "c3", ipalloc.ErrNotFound}, // in no pool
		{"::ffff:10.0.0.1", "c3", ipalloc.ErrInvalid},
	} {
		if al, err := ask(tt.address, tt.handle); !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v, want %v", tt.address, al, err, tt.want)
		}
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("h"), WithinRules: true,
		Handle: "c4", Share: alloc.Share{Max: 2}}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("shared: %v", err)
	}
	if w.rev() != before {
		t.Error("a refusal changed the store")
	}
}

// With strict affinity a host gets no address of another's block, also not if it asks for that one.
func TestExactlyUnderStrictAffinity(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true, MaxBlocksPerHost: 1}, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 26})
	ask := func(address, host string) error {
		_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip(address), Owner: alloc.HostOwner(host), WithinRules: true, Handle: host})
		return err
	}
	for _, tt := range []struct {
		address, host string
		want          error
	}{
		{"10.0.0.1", "a", nil},
		{"10.0.0.2", "a", nil},
		{"10.0.0.3", "b", ipalloc.ErrOccupied}, // in a's block
		{"10.0.0.70", "a", ipalloc.ErrLimit},
		{"10.0.0.70", "b", nil},
	} {
		if err := ask(tt.address, tt.host); !errors.Is(err, tt.want) {
			t.Errorf("%s for %s: %v, want %v", tt.address, tt.host, err, tt.want)
		}
	}
}

// A lease that is renewed for no time is held until it is released: no sweep and no other clock ends it, and it can't be renewed.
func TestLeaseBecomesPermanent(t *testing.T) {
	w := lan(t)
	one, two := w.mustOffer("c1"), w.mustOffer("c2")
	if al, err := w.RenewIP(bg, one.Address, alloc.Guard{Handle: "c1"}, alloc.RenewArgs{}); err != nil || !al.Until.IsZero() || al.Address != one.Address {
		t.Errorf("%+v, %v", al, err)
	}
	if als, err := w.Renew(bg, "c2", alloc.RenewArgs{}); err != nil || len(als) != 1 || !als[0].Until.IsZero() {
		t.Errorf("%+v, %v", als, err)
	}
	w.check()
	w.clock.add(24 * time.Hour)
	if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	for _, al := range []alloc.Allocation{one, two} {
		if found, err := w.Lookup(bg, al.Address); err != nil || found.Handle != al.Handle || !found.Until.IsZero() {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if _, err := w.Renew(bg, "c2", alloc.RenewArgs{TTL: time.Hour}); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Errorf("renewed once more: %v", err)
	}
	if kept, err := w.Assign(bg, alloc.HostOwner("dhcp"), "c1"); err != nil || kept.Address != one.Address || !kept.Until.IsZero() {
		t.Errorf("%+v, %v", kept, err)
	}
}
