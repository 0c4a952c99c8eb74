package ipset

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// TestSince: every answer says since when an address is held, to the second. Renewals and changes of attributes and hosts keep it, each
// holder of a shared address has its own, and one that cools says since when it does, whoever writes the end of a lease.
func TestSince(t *testing.T) {
	p := poolOf("p", "10.0.0.0/28", 28)
	p.Cooldown = time.Hour
	w := newWorld(t, alloc.Config{}, p)
	start := w.clock.now().Truncate(time.Second)
	since := func(what string, al alloc.Allocation, after time.Duration) {
		t.Helper()
		if want := start.Add(after); !al.Since.Equal(want) {
			t.Errorf("%s: since %v, want %v", what, al.Since, want)
		}
	}
	look := func(a string) alloc.Allocation { al, _ := w.Lookup(bg, ip(a)); return al }
	w.clock.add(1500 * time.Millisecond)
	lease := alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("h"), Handle: "lease", TTL: time.Minute}
	al, err := w.AssignIP(bg, lease)
	if err != nil {
		t.Fatal(err)
	}
	since("assigned", al, time.Second)
	since("looked up", look("10.0.0.1"), time.Second)
	w.clock.add(20 * time.Second)
	if al, err = w.RenewIP(bg, al.Address, alloc.Guard{Handle: "lease"}, alloc.RenewArgs{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	since("renewed", al, time.Second)
	active, to := attributes(t, "k", "v"), alloc.HostOwner("other")
	if err := w.Update(bg, alloc.UpdateArgs{Address: al.Address, Active: &active, Host: &to}); err != nil {
		t.Fatal(err)
	}
	held, err := w.IPsByHandle(bg, "lease")
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	since("changed", held[0], time.Second)
	var read alloc.Allocation
	if text, err := json.Marshal(held[0]); err != nil || json.Unmarshal(text, &read) != nil || read != held[0] {
		t.Errorf("JSON says %+v, %v, want %+v", read, err, held[0])
	}
	web := alloc.Share{Max: 2, Key: "web"}
	for i, handle := range []string{"one", "two"} { // at 21 and 31 seconds
		if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.2"), Owner: alloc.HostOwner("h"), Handle: handle, Share: web}); err != nil {
			t.Fatal(err)
		}
		held, _ := w.IPsByHandle(bg, handle)
		since(handle, held[0], time.Duration(21+10*i)*time.Second)
		w.clock.add(10 * time.Second)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.2"), Guard: alloc.Guard{Handle: "one"}}); err != nil {
		t.Fatal(err)
	}
	since("the one that is left", look("10.0.0.2"), 31*time.Second)
	w.releaseHandle("two")
	since("cools", look("10.0.0.2"), 41*time.Second)
	w.clock.add(2 * time.Minute)
	since("its lease has ended", look("10.0.0.1"), 81*time.Second)
	if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	since("and that is written", look("10.0.0.1"), 81*time.Second)
}

// An address that is brought from elsewhere is held since when it was there, and since now if that is to come or before 1970.
func TestSinceOfAnImport(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/28", 28))
	now, named := w.clock.now().Truncate(time.Second), ip("10.0.0.0")
	for at, want := range map[time.Time]time.Time{
		now.Add(-time.Hour): now.Add(-time.Hour), now.Add(time.Hour): now, time.Unix(-5, 0): now, {}: now,
		time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC): now,
	} {
		named = named.Next()
		got, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: named, Owner: alloc.HostOwner("h"), Since: at})
		if err != nil || !got.Since.Equal(want) {
			t.Errorf("since %v: %v, %v", at, got, err)
			continue
		}
		if al, err := w.Lookup(bg, named); err != nil || al != got {
			t.Errorf("since %v: %+v, %v, and the call returned %+v", at, al, err, got)
		}
	}
}
