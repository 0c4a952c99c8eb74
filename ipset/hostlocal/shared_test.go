package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestStoreSharedWithIPSet verifies that each of the two packages leaves the records of
// the other alone and reports none of them.
func TestStoreSharedWithIPSet(t *testing.T) {
	w := newWorld(t, subnets("10.1.2.0/24"))
	if _, err := w.Add(ctx, Attachment{"c1", "eth0"}); err != nil {
		t.Fatal(err)
	}
	e, err := ipset.New(w.store, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.1.2.0/24"), BlockBits: 26}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Assign(ctx, alloc.HostOwner("node"), "pod"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := e.Operator().Check(ctx, nil); err != nil || len(r.Problems) > 0 || r.Allocations != 1 {
			t.Errorf("ipset's check: %+v, %v", r, err)
		}
		if err := w.Check(ctx); err != nil {
			t.Error(err)
		}
		if freed, err := w.GC(ctx, GCArgs{}); err != nil || len(freed) > 1 {
			t.Errorf("GC: %v, %v", freed, err)
		}
	}
}

// TestSpaces verifies that the same network, ranges and attachments in several spaces of one store know nothing of each other.
func TestSpaces(t *testing.T) {
	db := store.NewMemory()
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engines := make(map[string]*Engine)
	for _, name := range []string{"", "red", "red2"} {
		in := store.Store(db)
		if name != "" {
			if in, err = store.Space(db, name); err != nil {
				t.Fatal(err)
			}
		}
		if engines[name], err = New(in, Config{Network: "net", Sets: []RangeSet{subnets("10.1.2.0/24")}}); err != nil {
			t.Fatal(err)
		}
		got, err := engines[name].Add(ctx, Attachment{"c1", "eth0"})
		if err != nil || len(got) != 1 || got[0].Prefix.Addr() != netip.MustParseAddr("10.1.2.2") {
			t.Errorf("space %q: %v, %v", name, got, err)
		}
	}
	if _, err := engines["red"].Del(ctx, Attachment{"c1", "eth0"}); err != nil {
		t.Fatal(err)
	}
	for name, h := range engines {
		if err := h.Check(ctx); err != nil {
			t.Errorf("space %q: %v", name, err)
		}
		who, held := holderOf(t, h, "10.1.2.2")
		if held != (name != "red") || held && who.Container != "c1" {
			t.Errorf("space %q: held by %v, %v", name, who, held)
		}
	}
	var names []string
	for name, err := range e.Operator().Spaces(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		in, err := e.InSpace(name)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Operator().Check(ctx, nil); err != nil || len(r.Problems) > 0 {
			t.Errorf("ipset's check of %q: %v, %v", name, r.Problems, err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"red", "red2"}) {
		t.Errorf("spaces %q", names)
	}
}

// scoped returns an engine of a node on the store.
func (w *world) scoped(scope string, sets ...RangeSet) *Engine {
	w.Helper()
	e, err := New(w.store, Config{Network: "net", Scope: scope, Sets: sets, Boot: "boot of " + scope, Leases: true})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// TestScopes verifies that nodes share addresses and cursors, and that GC, the end of
// leases and the boot of a node concern its own attachments.
func TestScopes(t *testing.T) {
	w := newWorld(t)
	set := subnets("10.1.2.0/24")
	a, b := w.scoped("a", set), w.scoped("b", subnets("10.9.0.0/24"), set)
	add := func(e *Engine, container string) (got []string) {
		t.Helper()
		as, err := e.Add(ctx, Attachment{container, "eth0"})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range as {
			got = append(got, x.Prefix.Addr().String())
		}
		return got
	}
	for i, want := range [][]string{{"10.1.2.2"}, {"10.9.0.2", "10.1.2.3"}, {"10.1.2.4"}, {"10.9.0.3", "10.1.2.5"}} {
		if got := add([]*Engine{a, b}[i%2], fmt.Sprint("c", i)); !slices.Equal(got, want) {
			t.Errorf("c%d got %v, want %v", i, got, want)
		}
	}
	if freed, err := b.GC(ctx, GCArgs{Valid: []Attachment{{"c1", "eth0"}}}); err != nil || len(freed) != 1 || freed[0].Attachment.Container != "c3" {
		t.Errorf("GC of b released %v, %v", freed, err)
	}
	b2, err := New(w.store, Config{Network: "net", Scope: "b", Boot: "next", Leases: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b2.Export(ctx)
	if err != nil || len(s.Holdings) != 2 || s.Holdings[0].Attachment.Container != "c0" || s.Holdings[1].Attachment.Container != "c2" || len(s.Cursors) != 0 {
		t.Errorf("after a boot of b: %v, %v", s, err)
	}
	if freed, err := b2.Del(ctx, Attachment{"c0", "eth0"}); err != nil || len(freed) != 1 {
		t.Errorf("Del by another node: %v, %v", freed, err)
	}
}

// TestLostCommitOfKilledProcess verifies that a commit which a killed process left in
// flight is not made after Del or GC of another engine with the same scope.
func TestLostCommitOfKilledProcess(t *testing.T) {
	who := Attachment{"c", "eth0"}
	for name, end := range map[string]func(*Engine) error{
		"Del": func(e *Engine) error { _, err := e.Del(ctx, who); return err },
		"GC":  func(e *Engine) error { _, err := e.GC(ctx, GCArgs{}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			late := &lateStore{Store: w.store}
			killed, err := New(late, Config{Network: "net", Scope: "node", Sets: []RangeSet{subnets("10.1.2.0/24")}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := killed.Add(ctx, who); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			e, err := New(w.store, Config{Network: "net", Scope: "node"})
			if err != nil {
				t.Fatal(err)
			}
			if err := end(e); err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Commit(ctx, late.ops); !errors.Is(err, ipalloc.ErrConflict) {
				t.Errorf("the lost commit: %v", err)
			}
		})
	}
}

// lateStore keeps a commit that grants back, as a network does.
type lateStore struct {
	store.Store
	ops []store.Op
}

func (l *lateStore) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if len(ops) == 1 { // that of a header
		return l.Store.Commit(ctx, ops)
	}
	l.ops = slices.Clone(ops)
	return 0, &ipalloc.Error{Package: "test", Op: "commit", Err: ipalloc.ErrUnknownOutcome}
}
