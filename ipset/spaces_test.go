package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// spaceNames are the space without a name and two whose names begin alike.
var spaceNames = []string{"", "red", "red2"}

// inSpace returns the engine of a space; "" is that without a name.
func inSpace(t testing.TB, e *Engine, name string) *Engine {
	t.Helper()
	if name == "" {
		return e
	}
	in, err := e.InSpace(name)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// keysOutside returns the records of a store that are not of a space.
func keysOutside(t testing.TB, db store.Store, name string) []store.Record {
	t.Helper()
	recs, _, err := db.List(bg, store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(recs, func(r store.Record) bool {
		in, _, _ := store.SpaceOf(r.Key)
		return in == name
	})
}

// Everything that is done in one space leaves every record of the others as it was, and is seen in that space alone, by two
// engines on one store whose spaces have the same pools, hosts, handles and request keys.
func TestSpacesNothingCrosses(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	engines := []*Engine{w.Engine, w.engine(w.store)}
	for n, name := range spaceNames {
		e := inSpace(t, engines[n%2], name)
		if e.Space() != name {
			t.Errorf("space %q, want %q", e.Space(), name)
		}
		before := keysOutside(t, w.store, name)
		if err := e.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
			t.Fatal(err)
		}
		if err := e.Operator().SetConfig(bg, alloc.Config{MaxBlocksPerHost: 2 + n, Strict: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Operator().SetReservations(bg, reservations(ranges(fmt.Sprintf("10.0.0.%d/32", 16*n)))); err != nil {
			t.Fatal(err)
		}
		a := want("h", 2+n, "pod")
		a.Request, a.Sticky = "request", true
		if _, err := e.AutoAssign(bg, a); err != nil {
			t.Fatal(err)
		}
		if _, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.77"), Owner: alloc.HostOwner("h2"), Handle: fmt.Sprint("of ", name), TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if after := keysOutside(t, w.store, name); !slices.Equal(before, after) {
			t.Errorf("space %q wrote outside of it", name)
		}
	}
	for n, name := range spaceNames {
		for _, first := range engines {
			spaceIs(t, inSpace(t, first, name), n)
		}
	}
	var names []string
	for name, err := range engines[1].Operator().Spaces(bg) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, spaceNames[1:]) {
		t.Errorf("spaces %q", names)
	}
	// What is given back in one space stays held in the others.
	if got, err := inSpace(t, engines[0], "red").ReleaseByHandle(bg, "pod"); err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for n, name := range spaceNames {
		als, err := inSpace(t, engines[1], name).IPsByHandle(bg, "pod")
		if want := 2 + n; err != nil || name == "red" && len(als) != 0 || name != "red" && len(als) != want {
			t.Errorf("space %q: %v, %v", name, als, err)
		}
	}
}

// spaceIs verifies what the queries of an engine say of the nth space.
func spaceIs(t *testing.T, e *Engine, n int) {
	t.Helper()
	if cfg, err := e.Operator().Config(bg); err != nil || cfg.MaxBlocksPerHost != 2+n {
		t.Errorf("space %d: %+v, %v", n, cfg, err)
	}
	if rs, err := e.Operator().Reservations(bg); err != nil || len(rs) != 1 || rangeOf(rs[0]) != fmt.Sprintf("10.0.0.%d/32", 16*n) {
		t.Errorf("space %d: %v, %v", n, rs, err)
	}
	if als, err := e.IPsByHandle(bg, "pod"); err != nil || len(als) != 2+n {
		t.Errorf("space %d: %v, %v", n, als, err)
	}
	if als, err := e.IPsByHost(bg, alloc.HostOwner("h")); err != nil || len(als) != 2+n {
		t.Errorf("space %d: %v, %v", n, als, err)
	}
	if al, err := e.Lookup(bg, ip("10.0.0.77")); err != nil || al.Handle != fmt.Sprint("of ", spaceNames[n]) {
		t.Errorf("space %d: %v, %v", n, al, err)
	}
	held, blocks := 0, 0
	for _, err := range e.Allocations(bg, netip.Prefix{}) {
		if held++; err != nil {
			t.Error(err)
		}
	}
	for _, err := range e.Operator().Blocks(bg, netip.Prefix{}) {
		if blocks++; err != nil {
			t.Error(err)
		}
	}
	if held != 3+n || blocks != 2 {
		t.Errorf("space %d: %d allocations in %d blocks", n, held, blocks)
	}
	if rep, err := e.Operator().Check(bg, nil); err != nil || len(rep.Problems) > 0 || rep.Allocations != 3+n || rep.Blocks != 2 {
		t.Errorf("space %d: %+v, %v", n, rep, err)
	}
	a := want("h", 2+n, "pod")
	a.Request, a.Sticky = "request", true
	if got, err := e.AutoAssign(bg, a); err != nil || len(got.V4) != 2+n {
		t.Errorf("space %d: the repeated request got %v, %v", n, got, err)
	}
}

// A commit of unknown outcome in one space is fenced by the engine of that space, and delays no other.
func TestSpacesUnknownOutcome(t *testing.T) {
	mem := store.NewMemory()
	f := faults.NewFaulty(mem)
	e, err := New(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	red, blue := inSpace(t, e, "red"), inSpace(t, e, "blue")
	for _, s := range []*Engine{e, red, blue} {
		if err := s.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
			t.Fatal(err)
		}
	}
	land := make(chan struct{})
	f.Script(faults.AtCommit(1, faults.Late(land)))
	if _, err := red.AutoAssign(bg, want("h", 2, "pod")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	before := f.Counts()
	if _, err := blue.AutoAssign(bg, want("h", 2, "pod")); err != nil {
		t.Fatal(err)
	}
	if n := f.Counts(); n.Commits != before.Commits+1 {
		t.Errorf("%d commits in the other space", n.Commits-before.Commits)
	}
	if got, err := red.ReleaseByHandle(bg, "pod"); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
	close(land)
	f.Settle()
	for _, s := range []*Engine{red, blue} {
		rep, err := s.Operator().Check(bg, nil)
		if want := map[string]int{"red": 0, "blue": 2}[s.Space()]; err != nil || len(rep.Problems) > 0 || rep.Allocations != want {
			t.Errorf("space %q: %+v, %v", s.Space(), rep, err)
		}
	}
}

// Follow drops what another engine changes in the same space, and hears nothing of others.
func TestSpacesFollow(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	f := faults.NewFaulty(w.store)
	mine, err := New(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other := w.engine(w.store)
	for _, name := range spaceNames {
		if err := inSpace(t, other, name).AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
			t.Fatal(err)
		}
	}
	red := inSpace(t, mine, "red")
	if _, err := red.AutoAssign(bg, want("h", 1, "pod")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- red.Follow(ctx, alloc.HostOwner("h")) }()
	for f.Counts().Watches == 0 {
		runtime.Gosched()
	}
	assign := func(name string) {
		if _, err := inSpace(t, other, name).AutoAssign(bg, want("h", 1, "other")); err != nil {
			t.Fatal(err)
		}
	}
	assign("")
	assign("red2")
	assign("red")
	for f.Counts().Changes == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := f.Counts().Changes; n != 1 {
		t.Errorf("the watch saw %d changes, want that of its own space", n)
	}
}

// Records of other programs are left alone in every space, by Check and by everything else.
func TestSpacesForeign(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	w.leaves(audit.Damaged)
	for _, name := range spaceNames {
		e := inSpace(t, w.Engine, name)
		if err := e.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.core.Store.Commit(bg, []store.Op{{Kind: store.Put, Key: "Mine/1"}, {Kind: store.Put, Key: "Z"}}); err != nil {
			t.Fatal(err)
		}
		if rep, err := e.Operator().Check(bg, nil); err != nil || len(rep.Problems) > 0 {
			t.Errorf("space %q: %v, %v", name, rep.Problems, err)
		}
	}
	// A key that is no record of this package, of another program or of a space is damage.
	for _, key := range []string{"y", "z", "\xff", "~", "mine"} {
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	if rep, err := w.Operator().Check(bg, nil); err != nil || len(rep.Problems) != 5 {
		t.Errorf("%v, %v", rep.Problems, err)
	}
}

// The engine of a space is one, beside those of other spaces, with the options of the first; a bad name is refused.
func TestInSpace(t *testing.T) {
	w := newWorld(t, alloc.Config{})
	red := inSpace(t, w.Engine, "red")
	if inSpace(t, w.Engine, "red") != red || inSpace(t, red, "red") != red || inSpace(t, w.Engine, "blue") == red {
		t.Error("several engines of one space")
	}
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("n", 256)} {
		var e *ipalloc.Error
		if _, err := w.InSpace(name); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if recs, _, err := w.store.List(bg, store.Range{From: "x"}); err != nil || len(recs) > 0 {
		t.Errorf("engines alone wrote %v, %v", recs, err)
	}
}

// An engine of a space takes at most 4 kB until it is used.
func TestManySpacesAreSmall(t *testing.T) {
	const n = 10_000
	w := newWorld(t, alloc.Config{})
	before := liveHeap()
	for i := range n {
		inSpace(t, w.Engine, fmt.Sprint("tenant ", i))
	}
	after := liveHeap()
	if each := (after - before) / n; each > 4096 {
		t.Errorf("%d bytes for the engine of a space", each)
	}
	runtime.KeepAlive(w)
}

// A tenant with the engine of a space neither lists the spaces of others, nor enters or removes one, also in a dry run.
func TestTenantsKeepToTheirSpace(t *testing.T) {
	e, err := New(store.NewMemory(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenant, other := inSpace(t, e, "tenant").Operator(), inSpace(t, e, "other")
	if err := other.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	if err := tenant.RemoveSpace(bg, "other"); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error("removes another's space:", err)
	}
	for _, own := range []*Engine{tenant.e, tenant.e.DryRun()} {
		if _, err := own.InSpace("other"); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Error("enters another's space:", err)
		}
		if in, err := own.InSpace("tenant"); err != nil || in != own {
			t.Error("its own space:", err)
		}
	}
	if err := last(tenant.Spaces(bg)); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error("lists the spaces:", err)
	}
	var names []string
	for name, err := range e.Operator().Spaces(bg) {
		names = append(names, name)
		if err != nil {
			t.Error(err)
		}
	}
	if len(names) != 1 || names[0] != "other" {
		t.Error("spaces", names)
	}
}
