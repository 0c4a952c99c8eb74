package journal_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What can't be opened says why; what is dropped begins anew.
func TestJournalRefuses(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	other := func() (err error) { _, err = journal.OpenSet(ctx, s, "set", pool, 25); return err }
	kind := func() (err error) { _, err = journal.OpenRange(ctx, s, "set", pool); return err }
	again := func() (err error) { _, err = journal.OpenSet(ctx, s, "set", pool, 24); return err }
	for i, f := range []func() error{other, kind, again, func() error { return journal.Drop(ctx, s, "set") }} {
		if err := f(); !errors.Is(err, ipalloc.ErrInUse) {
			t.Errorf("%d, while it is open: %v", i, err)
		}
	}
	if _, err := journal.OpenSet(ctx, s, "", pool, 24); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 7); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("a set that can't be: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 24, cidrset.OnChange(func(cidrset.Change) {})); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("a hook: %v", err)
	}
	if _, err := journal.OpenSet(ctx, s, "new", pool, 24); err != nil {
		t.Errorf("after it could not be opened: %v", err)
	}
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s = reopen(t, path, boltstore.Options{ReadOnly: true})
	for i, f := range []func() error{other, kind} {
		if err := f(); !errors.Is(err, ipalloc.ErrMismatch) {
			t.Errorf("%d: %v", i, err)
		}
	}
	j = must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, boltstore.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	j.View(func(a *cidrset.Set) {
		if a.Stats().Used != 1 {
			t.Errorf("read-only: %+v", a.Stats())
		}
	})
	s.Close()
	s = reopen(t, path, boltstore.Options{NoSync: true})
	if err := journal.Drop(ctx, s, "set"); err != nil {
		t.Fatal(err)
	}
	if err := journal.Drop(ctx, s, "nothing"); err != nil {
		t.Fatal(err)
	}
	if names, err := journal.Names(ctx, s); err != nil || !slices.Equal(names, []string{"new"}) {
		t.Errorf("%v, %v", names, err)
	}
	j = must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 25))
	j.View(func(a *cidrset.Set) {
		if a.Stats().Used != 0 {
			t.Errorf("dropped: %+v", a.Stats())
		}
	})
}

// A journal that is closed can be opened again, with other options, and has what was done before; calls that had begun are in
// the file, later ones are refused.
func TestJournalClose(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); errors.Is(err, ipalloc.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				done++
				enough := done == 20
				mu.Unlock()
				if enough {
					go j.Close() // while the others are at it
				}
			}
		}()
	}
	wg.Wait()
	j.Close()
	j.Close()
	if err := j.Drop(ctx); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("drop: %v", err)
	}
	var last uint64
	j.View(func(a *cidrset.Set) {
		last = a.Stats().Used
		_, _ = a.AllocateNext() // a change that goes nowhere
	})
	again := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24, cidrset.LowestFirst()))
	again.View(func(a *cidrset.Set) {
		if used := a.Stats().Used; used != last || used != uint64(done) {
			t.Errorf("%d acknowledged, %d before, %d after", done, last, used)
		}
	})
	if _, err := journal.Do(ctx, again, (*cidrset.Set).AllocateNext); err != nil {
		t.Error(err)
	}
}

// A journal is dropped while it is open, and a new one of its name is empty. If the file refuses that, it is closed and there.
func TestJournalDropOpen(t *testing.T) {
	s, ctx := open(t, boltstore.Options{NoSync: true}), t.Context()
	for range 2 {
		j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
		if p, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); err != nil || p.Addr() != pool.Addr() {
			t.Errorf("%v, %v", p, err)
		}
		if err := j.Drop(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := journal.Do(ctx, j, (*cidrset.Set).AllocateNext); !errors.Is(err, ipalloc.ErrClosed) {
			t.Errorf("dropped: %v", err)
		}
		if names, err := journal.Names(ctx, s); err != nil || len(names) != 0 {
			t.Errorf("%v, %v", names, err)
		}
	}
	j := must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := j.Drop(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if names, err := journal.Names(ctx, s); err != nil || !slices.Equal(names, []string{"set"}) {
		t.Errorf("%v, %v", names, err)
	}
	if err := journal.Drop(ctx, s, "set"); err != nil {
		t.Error(err)
	}
}

// An error or a panic of the caller's function comes back to the caller, and what it changed before is kept; a context that
// has ended keeps it from being called.
func TestJournalCallersCode(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", pool, 24))
	mine := errors.New("mine")
	if err := j.Do(t.Context(), func(a *cidrset.Set) error { _, _ = a.AllocateNext(); return mine }); err != mine {
		t.Errorf("%v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = j.Do(t.Context(), func(a *cidrset.Set) error { _, _ = a.AllocateNext(); panic("mine") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Do(ctx, func(*cidrset.Set) error { t.Error("called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	j.View(func(a *cidrset.Set) { _, _ = a.AllocateNext() }) // against the rules
	if p, err := journal.Do(t.Context(), j, (*cidrset.Set).AllocateNext); err != nil || p != netip.MustParsePrefix("10.0.3.0/24") {
		t.Errorf("%v, %v", p, err)
	}
	k := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), crashed(t, s), "set", pool, 24))
	k.View(func(a *cidrset.Set) {
		if a.Stats().Used != 4 {
			t.Errorf("%+v", a.Stats())
		}
	})
}

// Do returns when its context ends, at each place where it waits: before its function is called, which is then not called, and while
// the calls of its commit are made.
func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, boltstore.Options{NoSync: true})
		defer s.Close()
		j := must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", pool, 24))
		block := func(leave chan struct{}) func(*cidrset.Set) error {
			return func(*cidrset.Set) error { <-leave; return nil }
		}
		start := func(ctx context.Context, f func(*cidrset.Set) error) chan error {
			answer := make(chan error, 1)
			go func() { answer <- j.Do(ctx, f) }()
			synctest.Wait()
			return answer
		}
		ended := func(answer chan error) error {
			synctest.Wait()
			select {
			case err := <-answer:
				return err
			default:
				t.Error("Do waits past the end of its context")
				return <-answer
			}
		}
		first, second := make(chan struct{}), make(chan struct{})
		defer close(second)
		ahead := start(context.Background(), block(first))
		waiting, stopWaiting := context.WithCancel(t.Context())
		turn := start(waiting, func(*cidrset.Set) error { t.Error("called"); return nil })
		writing, stopWriting := context.WithCancel(t.Context())
		change := start(writing, func(a *cidrset.Set) error { _, err := a.AllocateNext(); return err })
		start(context.Background(), block(second))
		stopWaiting()
		if err := ended(turn); !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("before the call: %v", err)
		}
		close(first)
		if err := <-ahead; err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the change, and for the call after it to begin
		stopWriting()
		if err := ended(change); !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Errorf("after the call: %v", err)
		}
	})
}

// A journal of another version is refused, whichever part of it says so, and nothing of it is changed.
func TestJournalOfAnotherVersion(t *testing.T) {
	batch := func(s string) store.Op {
		return store.Op{Kind: store.Put, Key: "log\x00\x00\x00\x00\x00\x00\x00\x00", Value: s, Expect: store.AnyRevision}
	}
	for name, tt := range map[string]struct {
		op   store.Op
		want error
	}{
		"kind":             {store.Op{Kind: store.Put, Key: "kind", Value: "2 cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrVersion},
		"batch":            {batch(`{"version":2,"changes":[]}`), ipalloc.ErrVersion},
		"kind, unreadable": {store.Op{Kind: store.Put, Key: "kind", Value: "cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"kind, version 0":  {store.Op{Kind: store.Put, Key: "kind", Value: "0 cidrset.Set", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"batch, deeds":     {batch(`{"version":2,"deeds":[7]}`), ipalloc.ErrVersion},
		"batch, no number": {batch(`{"changes":[]}`), ipalloc.ErrCorrupt},
		"batch, cut":       {batch(`{"version":1,"chan`), ipalloc.ErrCorrupt},
		"field":            {batch(`{"version":1,"changes":[{"op":"allocate","prefixes":["10.0.0.0/24"],"until":5}],"cursor":"10.0.1.0/24"}`), ipalloc.ErrCorrupt},
		"change":           {batch(`{"version":1,"changes":[{"op":"lend","prefixes":["10.0.0.0/24"]}],"cursor":"10.0.1.0/24"}`), ipalloc.ErrVersion},
		"key of the log":   {store.Op{Kind: store.Put, Key: "log\x00", Value: `{"version":1,"changes":[]}`, Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"key of a part":    {store.Op{Kind: store.Put, Key: "part\x00", Value: "x", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"no parts":         {store.Op{Kind: store.Put, Key: "snapshot", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"other parts":      {store.Op{Kind: store.Put, Key: "snapshot", Value: "16 bytes of none", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
		"snapshot":         {store.Op{Kind: store.Put, Key: "snapshot", Value: "nothing", Expect: store.AnyRevision}, ipalloc.ErrCorrupt},
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		s := reopen(t, path, boltstore.Options{NoSync: true})
		must[*cidrset.Set](t)(journal.OpenSet(t.Context(), s, "set", pool, 24))
		s.Close()
		s = reopen(t, path, boltstore.Options{NoSync: true})
		table, err := s.OpenTable("journal/set")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Commit(t.Context(), []store.Op{tt.op}); err != nil {
			t.Fatal(err)
		}
		before, _, _ := table.List(t.Context(), store.Range{})
		table.Close()
		for range 2 {
			var e *ipalloc.Error
			if _, err := journal.OpenSet(t.Context(), s, "set", pool, 24); !errors.Is(err, tt.want) || !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
		}
		table, err = s.OpenTable("journal/set")
		if err != nil {
			t.Fatal(err)
		}
		if after, _, _ := table.List(t.Context(), store.Range{}); !slices.Equal(before, after) {
			t.Errorf("%s: the journal was changed", name)
		}
	}
}
