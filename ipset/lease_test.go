package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// lan is a world with a dynamic range of three addresses.
func lan(t *testing.T) *world {
	p := poolOf("lan", "192.168.1.0/24", 24)
	p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("192.168.1.100-192.168.1.102")}
	return newWorld(t, alloc.Config{}, p)
}

// offer are the arguments of an offer of half a minute.
func offer(handle string) alloc.AssignArgs {
	return alloc.AssignArgs{Owner: alloc.HostOwner("dhcp"), Num4: 1, Handle: handle, TTL: 30 * time.Second}
}

// mustOffer offers an address.
func (w *world) mustOffer(handle string) alloc.Allocation {
	w.t.Helper()
	got, err := w.Offer(bg, offer(handle))
	if err != nil || len(got.V4) != 1 {
		w.t.Fatalf("offer for %s: %v, %v", handle, got, err)
	}
	return got.V4[0]
}

// revision returns the number of commits that the store has made.
func (w *world) revision() uint64 {
	w.t.Helper()
	_, rev, err := w.store.List(bg, store.Range{From: "c", To: "d"})
	if err != nil {
		w.t.Fatal(err)
	}
	return rev
}

// Each call for one address says who has it, until when, or that it is free, and changes nothing then.
func TestLeaseRefusals(t *testing.T) {
	w := lan(t)
	p, _ := w.Pools(bg)
	p[0].Cooldown = time.Minute
	if err := w.UpdatePool(bg, p[0]); err != nil {
		t.Fatal(err)
	}
	held, static, cooling := w.mustOffer("c1").Address, ip("192.168.1.9"), w.mustOffer("c2").Address
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: static, Owner: alloc.HostOwner("dhcp"), Handle: "printer"}); err != nil {
		t.Fatalf("outside of the dynamic range: %v", err)
	}
	w.releaseHandle("c2")
	end := w.clock.now().Add(time.Minute)
	before, _ := w.store.MarshalBinary()
	for name, tt := range map[string]struct {
		at     netip.Addr
		g      alloc.Guard
		want   error
		holder string
		until  time.Time
	}{
		"another's":     {held, alloc.Guard{Handle: "c9"}, ipalloc.ErrMismatch, "c1", w.clock.now().Add(30 * time.Second)},
		"another's old": {static, alloc.Guard{Handle: "printer", Seq: 1}, ipalloc.ErrMismatch, "printer", time.Time{}},
		"cooling":       {cooling, alloc.Guard{Handle: "c2"}, ipalloc.ErrCooling, "c2", end},
		"free":          {ip("192.168.1.102"), alloc.Guard{}, ipalloc.ErrNotHeld, "", time.Time{}},
		"in no pool":    {ip("10.0.0.1"), alloc.Guard{Handle: "c1"}, ipalloc.ErrNotHeld, "", time.Time{}},
		"no address":    {netip.Addr{}, alloc.Guard{Handle: "c1"}, ipalloc.ErrInvalid, "", time.Time{}},
		"with a zone":   {ip("fe80::1%eth0"), alloc.Guard{}, ipalloc.ErrInvalid, "", time.Time{}},
	} {
		_, err := w.RenewIP(bg, tt.at, tt.g, alloc.RenewArgs{TTL: time.Hour})
		_, err2 := w.Decline(bg, alloc.DeclineArgs{Address: tt.at, Guard: tt.g, For: time.Hour})
		for _, err := range []error{err, err2} {
			e := (*ipalloc.Error)(nil)
			if !errors.Is(err, tt.want) || !errors.As(err, &e) || e.Holder != tt.holder || !e.Until.Equal(tt.until) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, f := range map[string]func() error{
		"renewed for less":     func() error { _, err := w.RenewIP(bg, held, alloc.Guard{}, alloc.RenewArgs{TTL: -1}); return err },
		"all renewed for less": func() error { _, err := w.Renew(bg, "c1", alloc.RenewArgs{TTL: -1}); return err },
		"declined for no time": func() error { _, err := w.Decline(bg, alloc.DeclineArgs{Address: held}); return err },
		"offered for no time":  func() error { _, err := w.Offer(bg, want("dhcp", 1, "c1")); return err },
		"offered to nothing":   func() error { _, err := w.Offer(bg, offer("")); return err },
	} {
		if err := f(); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Decline(bg, alloc.DeclineArgs{Address: held, For: time.Hour, Reason: strings.Repeat("x", 1<<16)}); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("a long reason: %v", err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("a refusal changed the store")
	}
	if al, err := w.RenewIP(bg, static, alloc.Guard{Handle: "printer"}, alloc.RenewArgs{TTL: time.Hour}); err != nil || !al.Until.IsZero() {
		t.Errorf("an address without a lease: %+v, %v", al, err)
	}
}

// The leases of a handle are renewed, and its addresses released, in as few commits as the store's limit allows.
func TestStepsAreAsLongAsFits(t *testing.T) {
	for _, tt := range []struct{ limit, renew, release int }{{0, 1, 1}, {16, 1, 2}, {20, 1, 2}, {127, 1, 1}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 26))
		a := want("h", 12, "p")
		a.TTL = time.Hour
		w.assign(a)
		f := faults.NewLimited(w.store, store.Limits{Ops: tt.limit})
		e := w.engine(f)
		if als, err := e.Renew(bg, "p", alloc.RenewArgs{TTL: 2 * time.Hour}); err != nil || len(als) != 12 || f.Counts().Commits != tt.renew {
			t.Errorf("%d records: renewed %d in %d commits, want %d: %v", tt.limit, len(als), f.Counts().Commits, tt.renew, err)
		}
		f.Reset()
		if as, err := e.ReleaseByHandle(bg, "p"); err != nil || len(as) != 12 || f.Counts().Commits != tt.release {
			t.Errorf("%d records: released %d in %d commits, want %d: %v", tt.limit, len(as), f.Counts().Commits, tt.release, err)
		}
	}
}

// TestSweepTellsWhichLeasesEnded: a sweep names each lease that it ends, once, as its holder had the address, however few of them a
// commit takes; not one that still runs, that was given back, or that an assignment has ended.
func TestSweepTellsWhichLeasesEnded(t *testing.T) {
	for _, limits := range []store.Limits{{}, {Ops: 40}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		e := w.engine(limitedStore{w.store, limits})
		ended := map[string]alloc.Allocation{}
		for i := range 70 {
			a := want("h", 1, fmt.Sprint("lease", i))
			a.TTL = time.Hour
			got := w.assign(a)
			ended[a.Handle] = got.V4[0]
		}
		vip := ip("10.0.0.250")
		for handle, ttl := range map[string]time.Duration{"soon": time.Hour, "late": 3 * time.Hour, "never": 0} {
			al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: vip, Owner: alloc.HostOwner(handle), Handle: handle, TTL: ttl, Share: alloc.Share{Max: 3}})
			if err != nil {
				t.Fatal(err)
			}
			if handle == "soon" {
				ended[handle] = al
			}
		}
		if _, err := w.ReleaseByHandle(bg, "lease7"); err != nil {
			t.Fatal(err)
		}
		delete(ended, "lease7")
		w.clock.add(2 * time.Hour)
		s, err := e.Operator().Sweep(bg, alloc.SweepArgs{})
		if err != nil {
			t.Fatal(err)
		}
		for _, al := range s.Ended {
			was, ok := ended[al.Handle]
			if !ok || al.Address != was.Address || al.Host != was.Host || al.Seq != was.Seq || !al.Until.Equal(was.Until) {
				t.Errorf("%+v: %+v, want %+v", limits, al, was)
			}
			delete(ended, al.Handle)
		}
		if len(ended) > 0 {
			t.Errorf("%+v: no word of %v", limits, ended)
		}
		if s, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || len(s.Ended) > 0 {
			t.Errorf("%+v: a second sweep: %+v, %v", limits, s, err)
		}
	}
}
