package boltstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// put commits one record.
func put(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// contents returns everything in a store.
func contents(t *testing.T, s store.Store) ([]store.Record, uint64) {
	t.Helper()
	recs, rev, err := s.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return recs, rev
}

// Records, their revisions and the store's are there after reopening, and revisions go on from there.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{})
	first := put(t, s, "a", "1")
	second := put(t, s, "b", "2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	s = reopen(t, path, boltstore.Options{NoCreate: true})
	recs, rev := contents(t, s)
	if rev != second || len(recs) != 2 || recs[0] != (store.Record{Key: "a", Value: "1", Rev: first}) || recs[1].Rev != second {
		t.Fatalf("%v at %d", recs, rev)
	}
	for _, err := range s.Watch(t.Context(), first, "a") {
		if !errors.Is(err, ipalloc.ErrOutOfRange) {
			t.Errorf("a watch from before this process: %v", err)
		}
	}
	third := put(t, s, "a", "3")
	for ev, err := range s.Watch(t.Context(), second, "a") {
		if err != nil || ev.Rev != third || third <= second {
			t.Errorf("%v, %v after revision %d", ev, err, second)
		}
		break
	}
}

// A watch that is too late is told so; Options.History says how late that is.
func TestHistory(t *testing.T) {
	s := open(t, boltstore.Options{History: 3, NoSync: true})
	var revs []uint64
	for range 5 {
		revs = append(revs, put(t, s, "a", ""))
	}
	for after, want := range map[uint64]error{revs[0]: ipalloc.ErrOutOfRange, revs[1]: nil} {
		for ev, err := range s.Watch(t.Context(), after, "a") {
			if !errors.Is(err, want) || err == nil && ev.Rev != revs[2] {
				t.Errorf("after %d: %v, %v", after, ev, err)
			}
			break
		}
	}
}

// Everything that is called after Close fails with one error, and whoever waits is told.
func TestClosed(t *testing.T) {
	s := open(t, boltstore.Options{})
	ended := make(chan error)
	go func() {
		for _, err := range s.Watch(context.Background(), 0, "a") {
			ended <- err
		}
	}()
	put(t, s, "b", "") // so that the watch has most likely begun to wait
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("Watch: %v", err)
	}
	ctx := t.Context()
	_, err1 := s.Get(ctx, nil, "a")
	_, _, err2 := s.List(ctx, store.Range{})
	_, err3 := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a"}})
	_, err4 := s.Backup(ctx, &strings.Builder{})
	err5 := s.Compact(ctx, filepath.Join(t.TempDir(), "x"))
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, ipalloc.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if s.Stats() != (boltstore.Stats{}) {
		t.Error(s.Stats())
	}
}

// onWrite is called at each write.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// A second one to open a file gets an error that says who has it, or waits, as it likes.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first := reopen(t, path, boltstore.Options{})
	_, err := boltstore.Open(t.Context(), path, boltstore.Options{})
	var locked *ipalloc.Error
	if !errors.Is(err, boltstore.ErrLocked) || !errors.Is(err, ipalloc.ErrInUse) || !errors.As(err, &locked) || locked.Text != path || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("at once: %v", err)
	}
	if want := fmt.Sprintf("process %d ", os.Getpid()); runtime.GOOS == "linux" && !strings.HasPrefix(locked.Holder, want) {
		t.Errorf("%v, want process %d", err, os.Getpid())
	}
	if _, err = boltstore.Open(t.Context(), path, boltstore.Options{ReadOnly: true}); !errors.Is(err, boltstore.ErrLocked) {
		t.Errorf("a reader beside a writer: %v", err)
	}
	if _, err = boltstore.Open(t.Context(), path, boltstore.Options{LockWait: time.Millisecond}); !errors.Is(err, boltstore.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a while: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	waits := slog.New(slog.NewTextHandler(onWrite(cancel), &slog.HandlerOptions{Level: slog.LevelDebug}))
	try := func(ctx context.Context) {
		s, err := boltstore.Open(ctx, path, boltstore.Options{LockWait: -1, Logger: waits})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}
	go try(ctx) // until it waits, which ends ctx
	if err := <-opened; !errors.Is(err, context.Canceled) || !errors.Is(err, boltstore.ErrLocked) {
		t.Errorf("a context that ends: %v", err)
	}
	go try(t.Context())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("waited: %v", err)
	}
}

// Who waits for a file that is replaced meanwhile, as after Compact, gets the new one.
func TestReplacedWhileWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	put(t, s, "a", "old")
	if err := s.Compact(t.Context(), path+".packed"); err != nil {
		t.Fatal(err)
	}
	c := reopen(t, path+".packed", boltstore.Options{NoSync: true})
	put(t, c, "a", "new")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	logger := slog.New(&onRecord{f: sync.OnceFunc(func() { close(waiting) })})
	opened := make(chan *boltstore.Store)
	go func() {
		s, err := boltstore.Open(context.Background(), path, boltstore.Options{LockWait: -1, Logger: logger})
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	<-waiting
	if err := os.Rename(path+".packed", path); err != nil {
		t.Skip(err) // not while it is open, on some systems
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = <-opened
	defer s.Close()
	if recs, _ := contents(t, s); len(recs) != 1 || recs[0].Value != "new" {
		t.Errorf("%v", recs)
	}
}

// onRecord is a log that calls f.
type onRecord struct {
	slog.Handler
	f func()
}

func (o *onRecord) Enabled(context.Context, slog.Level) bool { return true }

func (o *onRecord) Handle(context.Context, slog.Record) error { o.f(); return nil }

// Several may read at once, and none of them writes.
func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := boltstore.Open(t.Context(), path, boltstore.Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := boltstore.Open(t.Context(), path, boltstore.Options{NoCreate: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	w := reopen(t, path, boltstore.Options{})
	put(t, w, "a", "1")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := reopen(t, path, boltstore.Options{ReadOnly: true})
		if recs, _ := contents(t, s); len(recs) != 1 {
			t.Errorf("%v", recs)
		}
		if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "b"}}); !errors.Is(err, boltstore.ErrReadOnly) {
			t.Errorf("Commit: %v", err)
		}
	}
}

// boltFile makes a bbolt file with some buckets.
func boltFile(t *testing.T, path string, buckets ...string) {
	t.Helper()
	edit(t, path, func(tx *bbolt.Tx) error {
		for _, b := range buckets {
			if _, err := tx.CreateBucket([]byte(b)); err != nil {
				return err
			}
		}
		return nil
	})
}

// edit changes a bbolt file as another program could.
func edit(t *testing.T, path string, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(f); err != nil {
		t.Fatal(err)
	}
}

// makeStore makes a file with one record.
func makeStore(t *testing.T, path string) {
	t.Helper()
	s := reopen(t, path, boltstore.Options{})
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// containing returns what makes a file of some bytes.
func containing(b string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// withState returns what makes a store whose state is changed.
func withState(change func(old string) string) func(*testing.T, string) {
	return edited(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("ipalloc/state"))
		return b.Put([]byte("state"), []byte(change(string(b.Get([]byte("state"))))))
	})
}

// edited returns what makes a store that another program changes.
func edited(f func(*bbolt.Tx) error) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		makeStore(t, path)
		edit(t, path, f)
	}
}

// newerBbolt makes a file of a version of bbolt to come.
func newerBbolt(t *testing.T, path string) {
	boltFile(t, path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := range 2 {
		binary.NativeEndian.PutUint32(b[page*os.Getpagesize()+16+4:], 3)
	}
	containing(string(b))(t, path)
}

// badFiles are what is no store, and what the error says of it.
var badFiles = []struct {
	name string
	make func(*testing.T, string)
	want error
	says string
}{
	{"empty", containing(""), ipalloc.ErrCorrupt, "remove it"},
	{"one byte", containing("x"), boltstore.ErrForeign, "not a bbolt database"},
	{"text", containing(strings.Repeat("a configuration file\n", 1000)), boltstore.ErrForeign, "not a bbolt database"},
	{"zeroes", containing(strings.Repeat("\x00", 1<<16)), ipalloc.ErrCorrupt, "zeroes"},
	{"bbolt, empty", func(t *testing.T, path string) { boltFile(t, path) }, boltstore.ErrForeign, "another program"},
	{"bbolt of another", func(t *testing.T, path string) { boltFile(t, path, "key", "meta") }, boltstore.ErrForeign, "meta"},
	{"bbolt, newer", newerBbolt, ipalloc.ErrVersion, "bbolt"},
	{"a bucket more", func(t *testing.T, path string) { makeStore(t, path); boltFile(t, path, "mine") }, boltstore.ErrForeign, "mine"},
	{"newer format", withState(func(old string) string { return strings.Replace(old, " 1\n", " 2\n", 1) + "more" }), ipalloc.ErrVersion, "format 2"},
	{"state cut", withState(func(old string) string { return old[:len(old)-1] }), ipalloc.ErrCorrupt, "length"},
	{"state changed", withState(func(old string) string { return old[:len(old)-1] + string(old[len(old)-1]^1) }), ipalloc.ErrCorrupt, ""},
	{"state gone", edited(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("ipalloc/state")) }), boltstore.ErrForeign, "another program"},
	{"records gone", edited(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("ipalloc/records")) }), ipalloc.ErrCorrupt, "gone"},
	{"a record changed", edited(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("ipalloc/records")).Put([]byte("a"), []byte("\x00\x00\x00\x00\x00\x00\x00\x01abcd2"))
	}), ipalloc.ErrCorrupt, "checksum"},
	{"a record less", edited(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("ipalloc/records")).Delete([]byte("a"))
	}), ipalloc.ErrCorrupt, "0 records of the 1"},
	{"a directory", func(t *testing.T, path string) {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}, nil, "not a regular file"},
}

// What is not a store of this package is refused with an error of its own, and not touched.
func TestBadFiles(t *testing.T) {
	for _, tt := range badFiles {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			tt.make(t, path)
			before, _ := os.ReadFile(path)
			for _, opts := range []boltstore.Options{{}, {ReadOnly: true}} {
				s, err := boltstore.Open(t.Context(), path, opts)
				if err == nil {
					s.Close()
					t.Fatal("opened")
				}
				if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, want %v saying %q", err, tt.want, tt.says)
				}
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

// A path that leads nowhere, and options that can't be.
func TestBadArguments(t *testing.T) {
	dir := t.TempDir()
	if _, err := boltstore.Open(t.Context(), filepath.Join(dir, "no", "store.db"), boltstore.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "link")); err == nil {
		if _, err := boltstore.Open(t.Context(), filepath.Join(dir, "link"), boltstore.Options{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a link to nothing: %v", err)
		}
	}
	// A name that leaves no room for that of the file which becomes the store is an error of its own, not a missing file.
	if _, err := boltstore.Open(t.Context(), filepath.Join(dir, strings.Repeat("x", 250)), boltstore.Options{}); err == nil || runtime.GOOS != "windows" && errors.Is(err, os.ErrNotExist) {
		t.Errorf("a long name: %v", err)
	}
	for _, opts := range []boltstore.Options{{Verify: 4}, {Verify: -1}, {MaxSize: -1}, {History: -1}, {Mode: os.ModeDir}} {
		if _, err := boltstore.Open(t.Context(), filepath.Join(dir, "store.db"), opts); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%+v was taken", opts)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := boltstore.Open(ctx, filepath.Join(dir, "store.db"), boltstore.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "store*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A file is made with the mode asked for, and its making leaves nothing beside it.
func TestMake(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]os.FileMode{0: 0o600, 0o640: 0o640} {
		path := filepath.Join(dir, "store-"+want.String())
		reopen(t, path, boltstore.Options{Mode: mode})
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != want {
			t.Errorf("%v, %v, want %v", info.Mode(), err, want)
		}
	}
	if all, _ := os.ReadDir(dir); len(all) != 2 {
		t.Errorf("%v", all)
	}
}

// Two that make the same file at once get the same store, one after the other.
func TestMakeAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	done := make(chan error)
	for i := range 8 {
		go func() {
			s, err := boltstore.Open(context.Background(), path, boltstore.Options{LockWait: -1})
			if err == nil {
				_, err = s.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: string(rune('a' + i))}})
				err = errors.Join(err, s.Close())
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if recs, _ := contents(t, reopen(t, path, boltstore.Options{})); len(recs) != 8 {
		t.Errorf("%v", recs)
	}
}

// Each error of this package matches the one that its comment names.
func TestErrorsMatch(t *testing.T) {
	for err, is := range map[error]error{
		boltstore.ErrLocked: ipalloc.ErrInUse, boltstore.ErrForeign: ipalloc.ErrMismatch, boltstore.ErrNoSpace: ipalloc.ErrLimit,
		boltstore.ErrReadOnly: ipalloc.ErrMismatch, boltstore.ErrFailed: ipalloc.ErrClosed,
	} {
		if !errors.Is(err, is) {
			t.Errorf("%v is not %v", err, is)
		}
	}
}
