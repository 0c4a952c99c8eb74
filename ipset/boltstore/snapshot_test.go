package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// busy is a store of some pieces of a snapshot, whose keys all have the number of the last commit.
type busy struct {
	*boltstore.Store
	path string
	n    int
	rand *rand.Rand
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "busy.db")
	b := &busy{Store: reopen(t, path, boltstore.Options{NoSync: true}), path: path, rand: rand.New(rand.NewPCG(1, 2))}
	ops := make([]store.Op, 3000)
	for i := range ops {
		ops[i] = store.Op{Kind: store.Put, Key: fmt.Sprintf("k%05d", i), Value: strings.Repeat("v", 400), Expect: store.AnyRevision}
	}
	if _, err := b.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	return b
}

// commit changes records all over the file, and two that must always agree.
func (b *busy) commit(t *testing.T) {
	b.n++
	value := fmt.Sprint(b.n)
	ops := []store.Op{{Kind: store.Put, Key: "a", Value: value, Expect: store.AnyRevision}, {Kind: store.Put, Key: "z", Value: value, Expect: store.AnyRevision}}
	for _, i := range b.rand.Perm(3000)[:20] {
		ops = append(ops, store.Op{Kind: store.Put, Key: fmt.Sprintf("k%05d", i), Value: strings.Repeat(value, 1+b.rand.IntN(600/len(value))), Expect: store.AnyRevision})
	}
	if _, err := b.Commit(context.Background(), ops); err != nil {
		t.Error(err)
	}
}

// verify opens a copy, all of which must be of one commit.
func verify(t *testing.T, path string) []store.Record {
	t.Helper()
	s, err := boltstore.Open(t.Context(), path, boltstore.Options{ReadOnly: true, Verify: boltstore.VerifyAlways})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	recs, rev := contents(t, s)
	newest := uint64(0)
	for _, r := range recs {
		newest = max(newest, r.Rev)
	}
	if a, z := recs[0], recs[len(recs)-1]; newest != rev || a.Key != "a" || z.Key != "z" || a.Value != z.Value || a.Rev != rev {
		t.Fatalf("%s: the copy of revision %d has a of %d and z of %d", path, rev, a.Rev, z.Rev)
	}
	return recs
}

// A copy that is made between commits, and while each of its pieces is followed by one, is the state after one of them.
func TestSnapshotBesideCommits(t *testing.T) {
	b := newBusy(t)
	for round, every := range []int{0, 1, 2, 3, 5, 1, 1} {
		b.commit(t)
		to, pieces := filepath.Join(t.TempDir(), "copy.db"), 0
		err := boltstore.SnapshotBetween(t.Context(), b.path, to, func() {
			if pieces++; every > 0 && pieces%every == 0 && pieces < 40 {
				b.commit(t)
			}
		})
		if err != nil {
			t.Fatal(round, err)
		}
		got := verify(t, to)
		again := filepath.Join(t.TempDir(), "again.db") // of a file with no history
		if err := boltstore.Snapshot(t.Context(), to, again); err != nil {
			t.Error(err)
		}
		verify(t, again)
		if want, _ := contents(t, b); every == 0 && !reflect.DeepEqual(got, want) {
			t.Error("the copy of a file at rest is another state")
		}
	}
}

// A writer that does not wait for anyone gets no copy that is torn, and is not called damaged.
func TestSnapshotBesideAWriter(t *testing.T) {
	b := newBusy(t)
	b.commit(t)
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.commit(t)
			}
		}
	})
	dir := t.TempDir()
	for i := range 5 {
		to := fmt.Sprintf("%s/%d.db", dir, i)
		switch err := boltstore.Snapshot(t.Context(), b.path, to); {
		case err == nil:
			verify(t, to)
		case !errors.Is(err, boltstore.ErrLocked):
			t.Error(err)
		}
	}
	close(stop)
	done.Wait()
}

// A copier that misses commits every time gives up with ErrLocked, and leaves nothing.
func TestSnapshotMissesCommits(t *testing.T) {
	b := newBusy(t)
	to, pieces := filepath.Join(t.TempDir(), "copy.db"), 0
	err := boltstore.SnapshotBetween(t.Context(), b.path, to, func() {
		pieces++
		b.commit(t)
		b.commit(t)
	})
	if !errors.Is(err, boltstore.ErrLocked) || errors.Is(err, ipalloc.ErrCorrupt) || strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) || pieces == 0 {
		t.Errorf("%v after %d pieces", err, pieces)
	}
}

// What is wrong with a file is said of it, not of the copying; and a file that is there is not overwritten.
func TestSnapshotRefuses(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	makeStore(t, good)
	for name, c := range map[string]struct {
		from, to string
		want     error
	}{
		"no file":   {dir + "/none", dir + "/x", os.ErrNotExist},
		"exists":    {good, good, os.ErrExist},
		"directory": {good, dir + "/no/x", os.ErrNotExist},
	} {
		if err := boltstore.Snapshot(t.Context(), c.from, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(dir+"/text", []byte(strings.Repeat("text", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Snapshot(t.Context(), dir+"/text", dir+"/x"); !errors.Is(err, boltstore.ErrForeign) {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := boltstore.Snapshot(cancelled, good, dir+"/x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := boltstore.Salvage(cancelled, good, dir+"/x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	file, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	newer := 0
	if transactionOf(file, 1) > transactionOf(file, 0) {
		newer = 1
	}
	file[newer*os.Getpagesize()+40] ^= 1
	if err := os.WriteFile(dir+"/half.db", file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Snapshot(t.Context(), dir+"/half.db", dir+"/x"); err != nil {
		t.Fatal(err)
	}
	_, want := boltstore.Open(t.Context(), dir+"/half.db", boltstore.Options{ReadOnly: true})
	_, got := boltstore.Open(t.Context(), dir+"/x", boltstore.Options{ReadOnly: true})
	if (want == nil) != (got == nil) {
		t.Errorf("the copy is %v, the file is %v", got, want)
	}
}
