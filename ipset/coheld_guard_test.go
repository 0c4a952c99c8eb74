package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A virtual machine that migrates: its address is held on both hosts meanwhile, each with its attributes, whatever the affinity.
func TestAddressOnTwoHosts(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/24", 29))
		attrs := func(v string) alloc.Attributes { a, _ := alloc.NewAttributes(map[string]string{"pod": v}); return a }
		share := alloc.Share{Max: 2, Key: "vm-1"}
		a := want("source", 1, "pod-1")
		a.Share, a.Attributes = share, attrs("launcher-1")
		al := w.assign(a).V4[0]
		to, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: al.Address, Owner: alloc.HostOwner("target"), Handle: "pod-2", Attributes: attrs("launcher-2"), Share: share})
		if err != nil || to.Host != alloc.HostOwner("target") || to.Seq == al.Seq || to.Share() != share {
			t.Fatalf("strict %v: %+v, %v", strict, to, err)
		}
		w.check()
		for host, handle := range map[string]string{"source": "pod-1", "target": "pod-2"} {
			if als, err := w.IPsByHost(bg, alloc.HostOwner(host)); err != nil || len(als) != 1 || als[0].Handle != handle {
				t.Errorf("strict %v: %s has %+v, %v", strict, host, als, err)
			}
		}
		other := attrs("launcher-3")
		if err := w.Update(bg, alloc.UpdateArgs{Address: al.Address, Guard: alloc.Guard{Handle: "pod-2"}, Active: &other}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.RemoveHost(bg, alloc.HostOwner("source")); err != nil {
			t.Fatal(err)
		}
		w.check()
		got, err := w.Lookup(bg, al.Address)
		if err != nil || got.Handle != "pod-2" || got.Attributes != other || got.Seq != to.Seq {
			t.Errorf("strict %v: %+v, %v after the source has gone", strict, got, err)
		}
		if n := len(slices.Collect(got.Holders())); n != 1 {
			t.Errorf("strict %v: %d holders", strict, n)
		}
	}
}

// Each call with a Guard acts on the holder that the Guard names: the first, the second or the last of three. The others keep
// what they have, and a call that cannot spare them is refused.
func TestGuardNamesItsHolder(t *testing.T) {
	attrs := func(v string) alloc.Attributes { a, _ := alloc.NewAttributes(map[string]string{"is": v}); return a }
	said := func(h alloc.Allocation) string {
		return fmt.Sprint(h.Host, h.Handle, h.Seq, h.Until, h.Attributes, h.Alternate)
	}
	moved, other := alloc.HostOwner("moved"), attrs("other")
	own := func(h alloc.Allocation) *alloc.Attributes { return &h.Attributes }
	calls := map[string]struct {
		call func(e *Engine, h alloc.Allocation) error
		want func(h *alloc.Allocation) // what becomes of the holder; nil if it leaves
		err  error
	}{
		"Update of the other": {func(e *Engine, h alloc.Allocation) error {
			return e.Update(bg, alloc.UpdateArgs{Address: vip, Guard: alloc.Guard{Handle: h.Handle}, Alternate: &other, IfActive: own(h)})
		}, func(h *alloc.Allocation) { h.Alternate = other }, nil},
		"Update by sequence number": {func(e *Engine, h alloc.Allocation) error {
			return e.Update(bg, alloc.UpdateArgs{Address: vip, Guard: alloc.Guard{Seq: h.Seq}, Swap: true})
		}, func(h *alloc.Allocation) { h.Attributes, h.Alternate = h.Alternate, h.Attributes }, nil},
		"Update of the host": {func(e *Engine, h alloc.Allocation) error {
			return e.Update(bg, alloc.UpdateArgs{Address: vip, Guard: alloc.Guard{Handle: h.Handle, Seq: h.Seq}, Host: &moved})
		}, func(h *alloc.Allocation) { h.Host = moved }, nil},
		"Update of an old holder": {func(e *Engine, h alloc.Allocation) error {
			return e.Update(bg, alloc.UpdateArgs{Address: vip, Guard: alloc.Guard{Handle: h.Handle, Seq: h.Seq + 100}, Host: &moved})
		}, func(*alloc.Allocation) {}, ipalloc.ErrMismatch},
		"RenewIP": {func(e *Engine, h alloc.Allocation) error {
			_, err := e.RenewIP(bg, vip, alloc.Guard{Handle: h.Handle}, alloc.RenewArgs{TTL: 5 * time.Hour})
			return err
		}, func(h *alloc.Allocation) { h.Until = t0.Add(5 * time.Hour) }, nil},
		"ReleaseIPs": {func(e *Engine, h alloc.Allocation) error {
			_, err := e.ReleaseIPs(bg, alloc.Release{Address: vip, Guard: alloc.Guard{Handle: h.Handle}})
			return err
		}, nil, nil},
		"Release": {func(e *Engine, h alloc.Allocation) error {
			_, err := e.Release(bg, alloc.ReleaseArgs{Addresses: []alloc.Release{{Address: vip, Guard: alloc.Guard{Seq: h.Seq}}}})
			return err
		}, nil, nil},
		"Decline": {func(e *Engine, h alloc.Allocation) error {
			_, err := e.Decline(bg, alloc.DeclineArgs{Address: vip, Guard: alloc.Guard{Handle: h.Handle}, For: time.Hour})
			return err
		}, func(*alloc.Allocation) {}, ipalloc.ErrInUse},
	}
	for name, c := range calls {
		for i := range 3 {
			p := poolOf("a", "10.0.0.0/29", 29)
			p.Index = []string{"is"}
			w := newWorld(t, alloc.Config{}, p)
			w.Engine = w.engine(faults.NewLimited(w.store, store.Limits{Ops: 40}))
			for k, handle := range []string{"p", "q", "s"} {
				claim := alloc.Claim{Handle: handle, Attributes: attrs(handle), Share: alloc.Share{Max: 3}, TTL: time.Duration(k+1) * time.Hour}
				if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.HostOwner(hostsOf[handle]), Handle: claim.Handle, Attributes: claim.Attributes, TTL: claim.TTL, Share: claim.Share}); err != nil {
					t.Fatal(err)
				}
			}
			al, err := w.Lookup(bg, vip)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			holders := slices.Collect(al.Holders())
			for k, h := range holders {
				if k != i {
					want = append(want, said(h))
				} else if c.want != nil {
					c.want(&h)
					want = append(want, said(h))
				}
			}
			if err := c.call(w.Engine, holders[i]); !errors.Is(err, c.err) {
				t.Fatalf("%s, holder %d: %v, want %v", name, i, err, c.err)
			}
			if al, err = w.Lookup(bg, vip); err != nil {
				t.Fatal(err)
			}
			var got []string
			for h := range al.Holders() {
				got = append(got, said(h))
				if als, err := w.IPsByAttribute(bg, "is", h.Attributes.Map()["is"]); h.Attributes != (alloc.Attributes{}) && (err != nil || !slices.ContainsFunc(als, func(al alloc.Allocation) bool { return al.Handle == h.Handle })) {
					t.Errorf("%s, holder %d: the index has %+v, %v", name, i, als, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, holder %d:\ngot  %v\nwant %v", name, i, got, want)
			}
		}
	}
}

// The record of a shared address holds what all its holders have. It is bounded, whatever the store takes: a call that would make it
// longer is refused, and the others of its commit are not.
func TestRecordOfASharedAddressIsBounded(t *testing.T) {
	attrs := func(n int) alloc.Attributes {
		a, err := alloc.NewAttributes(map[string]string{"k": strings.Repeat("x", n)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, l := range []store.Limits{{}, {Ops: 127, Value: 100_000, Bytes: 400_000}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
		w.Engine = w.engine(faults.NewLimited(w.store, l))
		held := 0
		for i := range 12 {
			c := alloc.Claim{Handle: fmt.Sprint("p", i), Attributes: attrs(30_000), Share: alloc.Share{Max: 256}}
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.HostOwner("h"), Handle: c.Handle, Attributes: c.Attributes, Share: c.Share})
			if err == nil {
				held++
			} else if !errors.Is(err, ipalloc.ErrLimit) {
				t.Fatal(err)
			}
		}
		if want := map[bool]int{false: 3, true: 8}[l.Value == 0]; held != want {
			t.Errorf("%+v: %d holders, want %d", l, held, want)
		}
		more, less := attrs(60_000), attrs(1)
		set := func(a *alloc.Attributes) error {
			return w.Update(bg, alloc.UpdateArgs{Address: vip, Guard: alloc.Guard{Handle: "p1"}, Active: a})
		}
		if err := set(&more); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%+v: more: %v", l, err)
		}
		if err := set(&less); err != nil {
			t.Errorf("%+v: less: %v", l, err)
		}
		w.check()
		recs, _, err := w.store.List(bg, record.AddressRange(netip.MustParsePrefix("10.0.0.0/29")))
		if err != nil || len(recs) != 1 || len(recs[0].Value) > 1<<18 {
			t.Errorf("%d records, %v", len(recs), err)
		}
	}
}
