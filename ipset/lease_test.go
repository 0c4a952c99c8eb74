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
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
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

// The life of an address with a DHCP server: offered, offered again, leased, renewed, ended, offered to the same client.
func TestLeaseLife(t *testing.T) {
	w := lan(t)
	until := func(what string, al alloc.Allocation, d time.Duration) {
		t.Helper()
		if got := al.Until.Sub(w.clock.now()); got != d {
			t.Errorf("%s: ends in %v, want %v", what, got, d)
		}
		if found, err := w.Lookup(bg, al.Address); err != nil || found != al {
			t.Errorf("%s: %+v, %v, want %+v", what, found, err, al)
		}
	}
	a := w.mustOffer("c1")
	until("offered", a, 30*time.Second)
	w.clock.add(20 * time.Second)
	again := w.mustOffer("c1")
	if until("offered again", again, 30*time.Second); again.Address != a.Address || again.Seq != a.Seq {
		t.Errorf("%v, then %v", a, again)
	}
	leased, err := w.RenewIP(bg, a.Address, alloc.Guard{Handle: "c1"}, alloc.RenewArgs{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	until("leased", leased, time.Hour)
	until("an offer does not shorten a lease", w.mustOffer("c1"), time.Hour)
	w.clock.add(50 * time.Minute)
	als, err := w.Renew(bg, "c1", alloc.RenewArgs{TTL: 2 * time.Hour})
	if err != nil || len(als) != 1 {
		t.Fatalf("%v, %v", als, err)
	}
	until("renewed", als[0], 2*time.Hour)
	w.clock.add(3 * time.Hour)
	if b := w.mustOffer("c2"); b.Address == a.Address {
		t.Errorf("%s offered to another, while others rest longer", b.Address)
	}
	if b := w.mustOffer("c1"); b.Address != a.Address || b.Seq == a.Seq {
		t.Errorf("%+v, had %+v", b, a)
	}
	w.clock.add(time.Minute)
	if _, err := w.RenewIP(bg, a.Address, alloc.Guard{Handle: "c1"}, alloc.RenewArgs{TTL: time.Hour}); !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Errorf("renewed an offer that has ended: %v", err)
	}
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

// A declined address leaves its client in one commit, and no call assigns it before its time, however it is asked for.
func TestDeclined(t *testing.T) {
	w := lan(t)
	a := w.mustOffer("c1").Address
	before := w.revision()
	declined, err := w.Decline(bg, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: "c1"}, For: 10 * time.Minute, Reason: "answered by aa:bb"})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.revision() - before; n != 1 {
		t.Errorf("%d commits", n)
	}
	end := w.clock.now().Add(10 * time.Minute)
	for name, f := range map[string]func() error{
		"named by the client": func() error {
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner("dhcp"), Handle: "c1"})
			return err
		},
		"named without handle": func() error {
			_, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: a, Owner: alloc.HostOwner("dhcp")})
			return err
		},
		"looked up": func() error {
			al, err := w.Lookup(bg, a)
			if by, reason, ok := al.Declined(); al != declined || by != "c1" || reason != "answered by aa:bb" || !ok || !al.Until.Equal(end) {
				t.Errorf("looked up: %+v", al)
			}
			return err
		},
		"renewed": func() error {
			_, err := w.RenewIP(bg, a, alloc.Guard{Handle: "c1"}, alloc.RenewArgs{TTL: time.Hour})
			return err
		},
		"declined by another": func() error {
			_, err := w.Decline(bg, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: "c2"}, For: time.Hour})
			return err
		},
	} {
		e := (*ipalloc.Error)(nil)
		if err := f(); !errors.Is(err, ipalloc.ErrCooling) || !errors.As(err, &e) || !e.Until.Equal(end) || !strings.Contains(err.Error(), `declined by "c1": answered by aa:bb`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if al, err := w.Decline(bg, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: "c1"}, For: time.Hour}); err != nil || al != declined {
		t.Errorf("declined again: %+v, %v", al, err)
	}
	if als, err := w.IPsByHandle(bg, "c1"); err != nil || len(als) != 0 {
		t.Errorf("the client still has %v, %v", als, err)
	}
	for i := range 2 {
		if b := w.mustOffer(fmt.Sprint("c", 1+i)); b.Address == a {
			t.Errorf("%s was offered", a)
		}
	}
	if _, err := w.Offer(bg, offer("c3")); !errors.Is(err, ipalloc.ErrCooling) || !strings.Contains(err.Error(), "cooling until 2026-01-02T03:14:05Z") {
		t.Errorf("the rest is cooling: %v", err)
	}
	us, err := w.Utilization(bg)
	if err != nil || us[0].Cooling != (alloc.Count{Lo: 1}) || us[0].Used != (alloc.Count{Lo: 2}) {
		t.Errorf("%+v, %v", us, err)
	}
	w.check()
	w.clock.add(10 * time.Minute)
	if b := w.mustOffer("c3"); b.Attributes != (alloc.Attributes{}) {
		t.Errorf("%+v", b)
	}
}

// Addresses that cool for different times are free in the order of their ends, also for an engine that has only read the block.
func TestCoolingInOrderOfTheirEnds(t *testing.T) {
	p := poolOf("a", "10.0.0.0/29", 29)
	p.Cooldown = 10 * time.Second
	w := newWorld(t, alloc.Config{}, p)
	als := w.assign(want("h", 8, "p")).V4
	for i, d := range []int{40, 20, 30} {
		e := w.engine(w.store)
		if _, err := e.Decline(bg, alloc.DeclineArgs{Address: als[i].Address, For: time.Duration(d) * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.engine(w.store).ReleaseIPs(bg, alloc.Release{Address: als[3].Address}); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("p")
	for _, want := range []int{0, 5, 6, 7, 8} {
		b, err := w.engine(w.store).Operator().BlockOf(bg, als[0].Address)
		if err != nil || b.Cooling() != uint64(8-want) {
			t.Errorf("after %v: %d cooling, want %d, %v", w.clock.now().Sub(t0), b.Cooling(), 8-want, err)
		}
		w.check()
		w.clock.add(10 * time.Second)
	}
	b, err := w.Operator().BlockOf(bg, als[0].Address)
	if since, ok := b.Empty(); err != nil || !ok || since.Sub(t0) != 40*time.Second {
		t.Errorf("empty since %v, %v, %v", since, ok, err)
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

// TestLeaseGivenBackLeavesNoEntry: the entry that says when time changes a block follows the lease that ends first.
func TestLeaseGivenBackLeavesNoEntry(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
	for i, ttl := range []time.Duration{time.Hour, 2 * time.Hour, 2 * time.Hour} {
		a := want("h", 1, fmt.Sprint("p", i))
		a.TTL = ttl
		w.assign(a)
	}
	due := func() time.Duration {
		recs := w.list(store.Range{From: record.KindDue, To: record.KindDue + "\xff"})
		if len(recs) == 0 {
			return 0
		}
		at := int64(0)
		for _, c := range []byte(recs[0].Key[1:record.DueTimeEnd]) {
			at = at<<8 | int64(c)
		}
		return time.Duration(at - wire.Stamp(w.clock.now()))
	}
	if got := due(); got != time.Hour {
		t.Fatal(got)
	}
	w.releaseHandle("p0")
	if got := due(); got != 2*time.Hour {
		t.Errorf("the first given back: %v", got)
	}
	if _, err := w.Renew(bg, "p1", alloc.RenewArgs{TTL: 3 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	w.releaseHandle("p2")
	if got := due(); got != 3*time.Hour {
		t.Errorf("the rest renewed: %v", got)
	}
	w.check()
	w.releaseHandle("p1")
	if got := due(); got != 0 {
		t.Errorf("none left: %v", got)
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
