package ipset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// cluster returns a store with n blocks, 100 of each host, made without an engine's help so that it is quick.
func cluster(t *testing.T, n int) *world {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
	w.assign(want("host0", 1, "p"))
	for first := ip("10.0.0.0"); n > 0; n -= 100 {
		host := alloc.HostOwner(fmt.Sprint("host", n/100))
		blocks, _, err := w.ClaimAffinity(bg, netip.PrefixFrom(first, 19).Masked(), host)
		if err != nil || len(blocks) < 100 {
			t.Fatal(len(blocks), err)
		}
		for range 128 * 64 {
			first = first.Next()
		}
	}
	return w
}

// TestRestartReadsLittle: what an engine that knows nothing reads for its first allocation is the catalog, the host's own records
// and a page per level, whatever else the store holds.
func TestRestartReadsLittle(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	w := cluster(t, n)
	for _, tt := range []struct {
		host           string
		calls, records int
	}{
		{"new", 3, 20},   // catalog; owner and pages; commit
		{"host0", 4, 20}, // catalog; owner and pages; its block; commit
	} {
		c := faults.NewFaulty(w.store)
		got, err := w.engine(c).AutoAssign(bg, want(tt.host, 1, "q"))
		if err != nil || len(got.V4) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if c.Counts().Calls() > tt.calls || touched(c) > tt.records {
			t.Errorf("%s: %d calls and %d records for the first address among %d blocks, at most %d and %d", tt.host, c.Counts().Calls(), touched(c), n, tt.calls, tt.records)
		}
	}
}

// TestReservationsAreNotWalkedThrough: looking for a block in a pool that is reserved, wholly or but for a few, costs what the
// reservations cut and not what they hold.
func TestReservationsAreNotWalkedThrough(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reserved []string
		calls    int
		n        int
	}{
		{"all", []string{"10.0.0.0/8"}, 10, 0},
		{"all but the last block", []string{"10.0.0.0/9", "10.128.0.0/10", "10.192.0.0/11", "10.224.0.0/12", "10.240.0.0/13", "10.248.0.0/14", "10.252.0.0/15", "10.254.0.0/16", "10.255.0.0/17", "10.255.128.0/18", "10.255.192.0/19", "10.255.224.0/20", "10.255.240.0/21", "10.255.248.0/22", "10.255.252.0/23", "10.255.254.0/24", "10.255.255.0/25", "10.255.255.128/26"}, 8, 1},
		{"two holes", []string{"10.0.0.0/10", "10.65.0.0/16", "10.128.0.0/9"}, 8, 1},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/8", 26))
		if _, err := w.Operator().SetReservations(bg, reservations(ranges(tt.reserved...))); err != nil {
			t.Fatal(err)
		}
		c := faults.NewFaulty(w.store)
		got, err := w.engine(c).AutoAssign(bg, want("h", 1, "p"))
		if err != nil || len(got.V4) != tt.n || tt.n == 0 && got.Short[0].Reason != alloc.ReasonReservedLeft {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if c.Counts().Calls() > tt.calls || touched(c) > 40 {
			t.Errorf("%s: %d calls and %d records, at most %d and 40", tt.name, c.Counts().Calls(), touched(c), tt.calls)
		}
	}
}

// TestReservedRoomIsNotWalkedThrough: the blocks of others have room, and all of it is reserved.
func TestReservedRoomIsNotWalkedThrough(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/16", 26))
		for i := range 52 {
			w.assign(want(fmt.Sprint("old", i), 20*64, "old"))
		}
		w.releaseHandle("old")
		if n := len(w.blocksOf("old0")); n != 20 {
			t.Fatal(n)
		}
		if _, err := w.Operator().SetReservations(bg, reservations(ranges("10.0.0.0/16"))); err != nil {
			t.Fatal(err)
		}
		c := faults.NewFaulty(w.store)
		got, err := w.engine(c).AutoAssign(bg, want("new", 1, "p"))
		if err != nil || len(got.V4) != 0 || got.Short[0].Reason != alloc.ReasonReservedLeft {
			t.Errorf("strict %v: %+v, %v", strict, got, err)
		}
		if c.Counts().Calls() > 12 || touched(c) > 60 {
			t.Errorf("strict %v: %d calls and %d records", strict, c.Counts().Calls(), touched(c))
		}
	}
}

// A store whose copy has been interrupted is refused with what to do, and serves once the copy is repeated.
func TestInterruptedCopyIsRefused(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	w.assign(want("h", 20, "x"))
	dst := store.NewMemory()
	few := faults.NewFaulty(faults.NewLimited(dst, store.Limits{Ops: 4}))
	commits := 0
	few.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit {
			if commits++; commits > 3 {
				return faults.Outcome{Err: context.Canceled}
			}
		}
		return faults.Outcome{}
	})
	if _, err := store.Copy(bg, few, w.store); err == nil {
		t.Fatal("the copy ended")
	}
	e, err := New(dst, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range settling {
		if name == "NewCollector" || name == "InSpace" || name == "RemoveSpace" || name == "Spaces" {
			continue
		}
		if err := call(e); err != nil && !errors.Is(err, ipalloc.ErrInUse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.AutoAssign(bg, want("h", 1, "y")); !errors.Is(err, ipalloc.ErrInUse) || !strings.Contains(err.Error(), "being copied into") {
		t.Error("assign:", err)
	}
	if _, err := store.Copy(bg, dst, w.store); err != nil {
		t.Fatal(err)
	}
	if held, err := e.IPsByHandle(bg, "x"); err != nil || len(held) != 20 {
		t.Error(len(held), err)
	}
}

// TestLateReleaseOfALostPast: a release of unknown outcome that was sent before a backup cannot be made once its engine has settled it. A
// set-back to that backup undoes that too: the release is made if it arrives then, and frees an address that an Assign has answered since. The
// procedure after a restore finds it, and the address has one holder at a time.
func TestLateReleaseOfALostPast(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/29", 30))
		h := alloc.HostOwner("h")
		if _, err := w.Assign(bg, h, "x"); err != nil {
			t.Fatal(err)
		}
		l := newLate(w.store, false)
		a := w.engine(l)
		l.armed = true
		if _, err := a.ReleaseByHandle(bg, "x"); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		was := w.list(store.Range{}) // the backup
		al, err := a.Assign(bg, h, "x")
		if err != nil {
			t.Fatal(err)
		}
		if back { // a is gone; records have the revisions of the backup again
			l.store = setBack(t, was)
		}
		if made := l.land(); made != back {
			t.Errorf("set back %v: the late release was made: %v", back, made)
		}
		e := w.engine(l.store)
		r, err := e.Operator().Check(bg, slices.Values([]audit.InUse{{Address: al.Address, Handle: "x"}}))
		lost := err == nil && slices.ContainsFunc(r.Problems, func(p audit.Problem) bool { return p.Kind == audit.NotHeld && p.Addr == al.Address })
		if err != nil || lost != back {
			t.Errorf("set back %v: %v, %v", back, r, err)
		}
	}
}

// setBack returns a store whose records have the revisions of a list.
func setBack(t *testing.T, recs []store.Record) store.Store {
	t.Helper()
	s := store.NewMemory()
	slices.SortFunc(recs, func(a, b store.Record) int { return cmp.Compare(a.Rev, b.Rev) })
	for n := uint64(1); len(recs) > 0; n++ {
		ops := []store.Op{{Kind: store.Put, Key: "Step", Expect: store.AnyRevision}}
		for ; len(recs) > 0 && recs[0].Rev == n; recs = recs[1:] {
			ops = append(ops, store.Op{Kind: store.Put, Key: recs[0].Key, Value: recs[0].Value, Expect: store.AnyRevision})
		}
		if _, err := s.Commit(bg, ops); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
