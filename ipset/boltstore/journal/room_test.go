package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// noise returns n bytes of which no part is like another.
func noise(n int) string {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = src.Read(b)
	return string(b)
}

// stale returns how many parts a journal that is not open has that its snapshot does not name.
func stale(t *testing.T, s *boltstore.Store, name string) (n int) {
	t.Helper()
	recs := recordsOf(t, s, name)
	for key := range recs {
		if digest, ok := strings.CutPrefix(key, "part"); ok && !strings.Contains(recs["snapshot"], digest) {
			n++
		}
	}
	return n
}

// fill writes into another table of the store until less than about n bytes are left.
func fill(t *testing.T, s *boltstore.Store, n int) {
	t.Helper()
	for i := 0; ; i++ {
		_, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint("fill", n, "-", i), Value: noise(n), Expect: store.AnyRevision}})
		if errors.Is(err, boltstore.ErrNoSpace) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// In a file that is always nearly full, a snapshot that does not fit leaves nothing behind, neither when it fails nor when the
// journal is opened. Owners come and go in the log that there is room for, every release succeeds, of all that was ever
// held, and what is in the file is what was answered.
func TestNearlyFullFile(t *testing.T) {
	journal.Parts(t, 8000)
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "store.db")
	opts := boltstore.Options{NoSync: true, MaxSize: 2 << 20}
	openIt := func(s *boltstore.Store) *journal.Journal[*servicealloc.Registry] {
		return must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 65535}, servicealloc.LowestFirst()))
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	held := map[string]bool{}
	allocate := func(j *journal.Journal[*servicealloc.Registry], i int) error {
		owner := fmt.Sprintf("%05d-%x", i, rnd.Uint64()) + strings.Repeat("n", rnd.IntN(300))
		err := j.Do(ctx, func(r *servicealloc.Registry) error {
			_, err := r.Allocate(owner, servicealloc.Request{Ports: []servicealloc.Port{{}}})
			return err
		})
		if err == nil {
			held[owner] = true
		} else if !errors.Is(err, boltstore.ErrNoSpace) {
			t.Fatal(err)
		}
		return err
	}
	release := func(j *journal.Journal[*servicealloc.Registry]) {
		for owner := range held {
			if err := j.Do(ctx, func(r *servicealloc.Registry) error { _, err := r.Release(owner, 0); return err }); err != nil {
				t.Fatalf("a release, with %d owners left: %v", len(held), err)
			}
			delete(held, owner)
			return
		}
	}
	s := reopen(t, path, opts)
	j := openIt(s)
	n := 0
	for ; n < 600; n++ {
		if err := allocate(j, n); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, s, 10_000)
	for round := range 6 {
		refused := 0
		for range 200 {
			if n++; rnd.IntN(3) == 0 {
				release(j)
			} else if allocate(j, n) != nil {
				refused++
			}
		}
		want := snapshotOf(t, j)
		j.Close()
		if left := stale(t, s, "owners"); left > 0 {
			t.Errorf("round %d: %d parts left over", round, left)
		}
		s.Close()
		s = reopen(t, path, opts)
		j = openIt(s)
		if !bytes.Equal(want, snapshotOf(t, j)) {
			t.Fatalf("round %d: not the same when opened again", round)
		}
		j.View(func(r *servicealloc.Registry) {
			for g := range r.All() {
				if !held[g.Owner] {
					t.Errorf("%q holds %v", g.Owner, g.Ports)
				}
			}
			if p := r.Stats().Ports; p.Static.Used+p.Dynamic.Used != uint64(len(held)) {
				t.Errorf("%d ports in use, want %d", p.Static.Used+p.Dynamic.Used, len(held))
			}
		})
		t.Logf("round %d: %d owners, %d calls refused", round, len(held), refused)
	}
	for len(held) > 0 {
		release(j)
	}
	if err := allocate(j, n); err != nil {
		t.Errorf("with all given back: %v", err)
	}
}

// A release is made in a full file, also when it shares a commit with an allocation, which is refused.
func TestReleaseBesideAnAllocationInAFullFile(t *testing.T) {
	ctx := t.Context()
	s := reopen(t, filepath.Join(t.TempDir(), "store.db"), boltstore.Options{NoSync: true, MaxSize: 2 << 20})
	j := must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 65535}))
	allocate := func(owner string) error {
		return j.Do(ctx, func(r *servicealloc.Registry) error {
			_, err := r.Allocate(owner, servicealloc.Request{Ports: []servicealloc.Port{{}}})
			return err
		})
	}
	release := func(owner string) error {
		return j.Do(ctx, func(r *servicealloc.Registry) error { _, err := r.Release(owner, 0); return err })
	}
	for i := range 500 {
		if err := allocate(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{10_000, 1_000, 10} {
		fill(t, s, n)
	}
	for i := 0; allocate(fmt.Sprint("more", i, noise(400))) == nil; i++ {
	}
	for i := range 50 {
		var group sync.WaitGroup
		refused, released := make([]error, 3), make([]error, 3)
		err := j.Do(ctx, func(*servicealloc.Registry) error { // the others wait for this one, and share the next commit
			for k := range released {
				group.Go(func() { refused[k] = allocate(fmt.Sprint("new", i, k, noise(200_000))) })
				group.Go(func() { released[k] = release(fmt.Sprint(3*i + k)) })
			}
			time.Sleep(5 * time.Millisecond)
			return nil
		})
		group.Wait()
		if err != nil || errors.Join(released...) != nil {
			t.Fatalf("round %d: %v, releases %v", i, err, errors.Join(released...))
		}
		for _, err := range refused {
			if !errors.Is(err, boltstore.ErrNoSpace) {
				t.Fatalf("round %d: an allocation in a full file: %v", i, err)
			}
		}
	}
	want := snapshotOf(t, j)
	j.Close()
	j = must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 65535}))
	if !bytes.Equal(want, snapshotOf(t, j)) {
		t.Error("not the same when opened again")
	}
	j.View(func(r *servicealloc.Registry) {
		for i := range 150 {
			if _, ok := r.Get(fmt.Sprint(i)); ok {
				t.Errorf("%d is held", i)
			}
		}
	})
}

// A journal can be dropped, open or not, from a file that is full to the last page, and a journal of its name is then new.
func TestDropFromAFullFile(t *testing.T) {
	for _, open := range []bool{true, false} {
		ctx := t.Context()
		s := reopen(t, filepath.Join(t.TempDir(), "store.db"), boltstore.Options{NoSync: true, MaxSize: 16 << 20})
		j := must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 65535}))
		owners := make([]servicealloc.Grant, 4000)
		for i := range owners {
			owners[i] = servicealloc.Grant{Owner: fmt.Sprint(i) + noise(900), Ports: []servicealloc.Port{{Number: uint16(1 + i)}}}
		}
		if err := j.Do(ctx, func(r *servicealloc.Registry) error { r.Load(owners); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{10_000, 1_000, 10} {
			fill(t, s, n)
		}
		var err error
		if open {
			err = j.Drop(ctx)
		} else {
			j.Close()
			err = journal.Drop(ctx, s, "owners")
		}
		if err != nil {
			t.Errorf("open %v: %v", open, err)
		}
		if names, err := journal.Names(ctx, s); err != nil || len(names) != 0 {
			t.Errorf("open %v: %v, %v", open, names, err)
		}
	}
}
