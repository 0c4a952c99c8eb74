package boltstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A backup that is taken while commits are made is a store as of one of them.
func TestBackupWhileRunning(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	stop, begun := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			if i == 1 {
				close(begun)
			}
			select {
			case <-stop:
				return
			default:
			}
			v := fmt.Sprint(i)
			ops := []store.Op{
				{Kind: store.Put, Key: "a", Value: v, Expect: store.AnyRevision}, {Kind: store.Put, Key: "k" + v, Value: strings.Repeat(v, 50)},
				{Kind: store.Put, Key: "z", Value: v, Expect: store.AnyRevision},
			}
			if _, err := s.Commit(context.Background(), ops); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() { close(stop); wg.Wait() }()
	<-begun // there is a first commit to back up
	dir := t.TempDir()
	for i := range 5 {
		put(t, s, "begun", "")
		var copied bytes.Buffer
		n, err := s.Backup(t.Context(), &copied)
		if err != nil || n != int64(copied.Len()) {
			t.Fatalf("%d bytes of %d, %v", n, copied.Len(), err)
		}
		restored, packed := filepath.Join(dir, fmt.Sprint("restored", i)), filepath.Join(dir, fmt.Sprint("packed", i))
		if err := boltstore.Restore(t.Context(), &copied, restored); err != nil {
			t.Fatal(err)
		}
		if err := s.Compact(t.Context(), packed); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{restored, packed} {
			c := reopen(t, path, boltstore.Options{NoCreate: true, NoSync: true, Verify: boltstore.VerifyAlways})
			recs, rev := contents(t, c)
			all := slices.IndexFunc(recs, func(r store.Record) bool { return r.Key == "a" }) == 0
			if !all || recs[0].Value != recs[len(recs)-1].Value || c.Stats().Revision != rev || rev == 0 {
				t.Fatalf("%s: %d records at %d: %v to %v", path, len(recs), rev, recs[0], recs[len(recs)-1])
			}
			if next := put(t, c, "more", ""); next != rev+1 {
				t.Errorf("%s: revision %d after %d", path, next, rev)
			}
		}
	}
}

// A copy has the records, their revisions and that of the store; a compacted one has no free pages.
func TestCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true, Mode: 0o640})
	for i := range 50 {
		put(t, s, fmt.Sprint(i), strings.Repeat("x", 20<<10))
	}
	for i := range 45 {
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: fmt.Sprint(i), Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	to := path + ".packed"
	if err := s.Compact(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	recs, rev := contents(t, s)
	before := s.Stats()
	c := reopen(t, to, boltstore.Options{})
	got, at := contents(t, c)
	after := c.Stats()
	if !slices.Equal(got, recs) || at != rev || after.Records != before.Records {
		t.Errorf("%d records at %d, want %d at %d", len(got), at, len(recs), rev)
	}
	if after.Bytes*4 > before.Bytes || before.Free == 0 {
		t.Errorf("%+v, was %+v", after, before)
	}
	if info, _ := os.Stat(to); info.Mode() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
}

// Nothing is overwritten, nothing is made of a copy that is cut off or of something else, and what is begun is cleared away.
func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, boltstore.Options{NoSync: true})
	for i := range 100 {
		put(t, s, fmt.Sprint(i), strings.Repeat("x", 1000))
	}
	var copied bytes.Buffer
	if _, err := s.Backup(t.Context(), &copied); err != nil {
		t.Fatal(err)
	}
	full := copied.Bytes()
	to := filepath.Join(dir, "to")
	for cut := 0; cut < len(full); cut += len(full)/7 + 1 {
		if err := boltstore.Restore(t.Context(), bytes.NewReader(full[:cut]), to); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", cut, len(full), err)
		}
	}
	if err := boltstore.Restore(t.Context(), strings.NewReader(strings.Repeat("no store ", 10000)), to); !errors.Is(err, boltstore.ErrForeign) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := boltstore.Restore(ctx, bytes.NewReader(full), to); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Compact(ctx, to); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Backup(ctx, &copied); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := boltstore.Restore(t.Context(), bytes.NewReader(full), filepath.Join(dir, "no", "to")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(to, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Restore(t.Context(), bytes.NewReader(full), to); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if err := s.Compact(t.Context(), to); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(to); string(b) != "somebody's" {
		t.Errorf("overwritten: %q", b)
	}
}

// A writer that fails fails the backup with its error.
func TestBackupWriterFails(t *testing.T) {
	s := open(t, boltstore.Options{NoSync: true})
	put(t, s, "a", "1")
	want := errors.New("disk of the backup is full")
	if _, err := s.Backup(t.Context(), failing{want}); !strings.Contains(fmt.Sprint(err), want.Error()) {
		t.Error(err)
	}
	put(t, s, "a", "2")
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// ending is a context that is cancelled when it has been asked a number of times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestListThatIsCancelled: a list of many records looks at its context on the way, and is all of them or an error.
func TestListThatIsCancelled(t *testing.T) {
	b := newBusy(t)
	for n := 0; ; n++ {
		recs, _, err := b.List(&ending{t.Context(), n}, store.Range{})
		switch {
		case err == nil && (n < 3 || len(recs) != 3000):
			t.Fatalf("%d looks at the context for %d records", n, len(recs))
		case err == nil:
			return
		case !errors.Is(err, context.Canceled) || recs != nil:
			t.Fatalf("cancelled after %d looks: %d records, %v", n, len(recs), err)
		}
	}
}

// TestCompactThatIsCancelled: whenever the context ends, Compact leaves a whole file without an error, or no file and an error.
func TestCompactThatIsCancelled(t *testing.T) {
	dir := t.TempDir()
	s := open(t, boltstore.Options{NoSync: true})
	for i := range 10 {
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint("key", i), Value: "v"}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; ; n++ {
		path := filepath.Join(dir, fmt.Sprint("copy", n))
		err := s.Compact(&ending{t.Context(), n}, path)
		if err != nil {
			if _, stat := os.Stat(path); !errors.Is(err, context.Canceled) || !errors.Is(stat, fs.ErrNotExist) {
				t.Fatalf("cancelled after %d looks: %v, %v", n, err, stat)
			}
			continue
		}
		if n < 10 {
			t.Errorf("%d looks at the context for 10 records", n)
		}
		copied, err := boltstore.Open(t.Context(), path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer copied.Close()
		recs, _, err := copied.List(t.Context(), store.Range{})
		if err != nil || len(recs) != 10 {
			t.Errorf("%d records, %v", len(recs), err)
		}
		return
	}
}
