package boltstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func openT(t *testing.T, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(key, value string, expect uint64) store.Op {
	return store.Op{Kind: store.Put, Key: key, Value: value, Expect: expect}
}

// hold keeps transactions from beginning until the function that it returns is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	tx, err := s.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// queued waits until n commits wait.
func queued(s *Store, n int) {
	for {
		if s.queue.Waiting() == n {
			return
		}
		runtime.Gosched()
	}
}

// 64 callers that commit at once share one transaction, which is two syncs: 32 commits for each. The transactions are
// those that the file itself counts. One caller's transaction does not wait for company.
func TestCallersShareASync(t *testing.T) {
	const callers = 64
	s := openT(t, Options{})
	before := s.Stats().Transactions
	release := hold(t, s)
	var wg sync.WaitGroup
	revs := make([]uint64, callers)
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if revs[i], err = s.Commit(context.Background(), []store.Op{put(fmt.Sprint(i), "", 0), put("all", fmt.Sprint(i), store.AnyRevision)}); err != nil {
				t.Error(err)
			}
		}()
	}
	queued(s, callers)
	release()
	wg.Wait()
	if n := s.Stats().Transactions - before; n != 1 {
		t.Errorf("%d commits in %d transactions", callers, n)
	}
	slices.Sort(revs)
	if revs = slices.Compact(revs); len(revs) != callers || revs[callers-1] != uint64(callers) {
		t.Errorf("revisions %v", revs)
	}
	for i := range 3 {
		if _, err := s.Commit(t.Context(), []store.Op{put("one", "", store.AnyRevision)}); err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().Transactions - before; n != uint64(2+i) {
			t.Errorf("%d transactions after %d commits of one caller", n-1, 1+i)
		}
	}
}

// Each caller's commit in a shared transaction is checked on its own, against those before it; a conflict of one is not the
// others'. What changes nothing costs no transaction.
func TestSharedTransactionKeepsThemApart(t *testing.T) {
	s := openT(t, Options{})
	before := s.Stats().Transactions
	release := hold(t, s)
	type answer struct {
		rev uint64
		err error
	}
	answers := make([]answer, 5)
	var wg sync.WaitGroup
	for i, ops := range [][]store.Op{
		{put("a", "1", 0)},
		{put("b", "1", 0), put("a", "2", 0)}, // in conflict with the first
		{put("a", "2", 1)},                   // expects what the first writes
		{{Kind: store.Guard, Key: "a", Expect: 2}},
		{{Kind: store.Delete, Key: "a", Expect: 2}, put("c", "", 0)},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			answers[i].rev, answers[i].err = s.Commit(context.Background(), ops)
		}()
		queued(s, i+1)
	}
	release()
	wg.Wait()
	for i, want := range []answer{{1, nil}, {0, ipalloc.ErrConflict}, {2, nil}, {2, nil}, {3, nil}} {
		if answers[i].err == nil && answers[i].rev != want.rev || !errors.Is(answers[i].err, want.err) {
			t.Errorf("commit %d: %v, want %v", i, answers[i], want)
		}
	}
	recs, rev, err := s.List(t.Context(), store.Range{})
	if err != nil || rev != 3 || len(recs) != 1 || recs[0].Key != "c" || s.Stats().Records != 1 {
		t.Errorf("%v at %d, %v", recs, rev, err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Guard, Key: "x"}}); err != nil {
		t.Error(err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{put("c", "", 7)}); !errors.Is(err, ipalloc.ErrConflict) {
		t.Error(err)
	}
	if n := s.Stats().Transactions - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
}

// A context that ends while the commit waits leaves no trace; one that ends while it is under way leaves the outcome
// unknown, and the commit may still be made.
func TestContextEndsDuringCommit(t *testing.T) {
	s := openT(t, Options{})
	release := hold(t, s)
	try := func(key string) (context.CancelFunc, chan error) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, []store.Op{put(key, "", 0)})
			done <- err
		}()
		return cancel, done
	}
	cancel, done := try("waits")
	queued(s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("while it waits: %v", err)
	}
	cancel, done = try("under way")
	queued(s, 1)
	c := s.take()[0] // what the goroutine that waits for the transaction would do next
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("while it is under way: %v", err)
	}
	release()
	s.queue.Do(combine.NewCall(t.Context(), c.Table, c.Ops))
	recs, err := s.Get(t.Context(), nil, "waits", "under way")
	if err != nil || recs[0].Rev != 0 || recs[1].Rev != 1 {
		t.Errorf("%v, %v", recs, err)
	}
}

// Close fails what waits, which leaves no trace, and waits for what is under way. The
// contexts can end: a caller whose context cannot would run the held transaction itself.
func TestCloseWhileCommitting(t *testing.T) {
	s := openT(t, Options{})
	release := hold(t, s)
	done := make(chan error, 2)
	for i := range 2 {
		go func() {
			_, err := s.Commit(t.Context(), []store.Op{put(fmt.Sprint(i), "", 0)})
			done <- err
		}()
		queued(s, i+1)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for range 2 {
		if err := <-done; !errors.Is(err, ipalloc.ErrClosed) {
			t.Error(err)
		}
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s, err := Open(t.Context(), s.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if recs, _, err := s.List(t.Context(), store.Range{}); err != nil || len(recs) != 0 {
		t.Errorf("%v, %v", recs, err)
	}
}

// A large commit is not made to wait with many small ones in one transaction, nor they for it.
func TestBatchIsBounded(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	before := s.Stats().Transactions
	release := hold(t, s)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := s.Commit(context.Background(), []store.Op{put(fmt.Sprint(i), strings.Repeat("x", batchBytes/2), 0)}); err != nil {
				t.Error(err)
			}
		}()
		queued(s, i+1)
	}
	release()
	wg.Wait()
	if n := s.Stats().Transactions - before; n != 3 {
		t.Errorf("%d transactions", n)
	}
}

// Limits are kept, and nothing is written.
func TestTooLarge(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	big := strings.Repeat("x", limits.Value)
	for name, ops := range map[string][]store.Op{
		"key":    {put(strings.Repeat("k", bbolt.MaxKeySize+1), "", 0)},
		"value":  {put("k", big+"x", 0)},
		"commit": {put("1", big, 0), put("2", big, 0), put("3", big, 0), put("4", big, 0)},
	} {
		if _, err := s.Commit(t.Context(), ops); !errors.Is(err, ipalloc.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := s.Stats(); st.Revision != 0 || st.Records != 0 {
		t.Error(st)
	}
	if _, err := s.Commit(t.Context(), []store.Op{put(strings.Repeat("k", bbolt.MaxKeySize), "", 0)}); err != nil {
		t.Error(err)
	}
}

// When there is no room a commit fails with a clear error and changes nothing, and everything goes on when there is room
// again. A removal needs room, too, which may or may not be there: bbolt writes what it changes to other pages.
func TestNoSpace(t *testing.T) {
	s := openT(t, Options{MaxSize: 2 << 20, NoSync: true})
	want := map[string]string{}
	value := strings.Repeat("x", 2000)
	var err error
	for i := 0; err == nil; i++ {
		key := fmt.Sprint(i)
		if _, err = s.Commit(t.Context(), []store.Op{put(key, value, 0)}); err == nil {
			want[key] = value
		}
	}
	verify := func(when string) {
		t.Helper()
		recs, _, err := s.List(t.Context(), store.Range{})
		have := map[string]string{}
		for _, r := range recs {
			have[r.Key] = r.Value
		}
		if err != nil || len(have) != len(want) || s.Stats().Records != uint64(len(want)) {
			t.Fatalf("%s: %d records, %v, want %d", when, len(recs), err, len(want))
		}
		for k, v := range want {
			if have[k] != v {
				t.Fatalf("%s: %q differs", when, k)
			}
		}
	}
	if !errors.Is(err, ErrNoSpace) || errors.Is(err, ipalloc.ErrUnknownOutcome) || !strings.Contains(err.Error(), s.path) || len(want) < 500 {
		t.Fatalf("after %d records: %v", len(want), err)
	}
	verify("full")
	for range 3 {
		if _, err := s.Commit(t.Context(), []store.Op{put("more", strings.Repeat(value, 100), 0)}); !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
		verify("full still")
	}
	remove := func(key string) error {
		_, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: key, Expect: store.AnyRevision}})
		if err == nil {
			delete(want, key)
		}
		return err
	}
	for i := range 50 {
		if err := remove(fmt.Sprint(i)); err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	verify("removed what could be")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), s.path, Options{MaxSize: 4 << 20, NoSync: true}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := remove(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(t.Context(), []store.Op{put("again", value, 0)}); err != nil {
		t.Fatal(err)
	}
	want["again"] = value
	verify("room again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), s.path, Options{Verify: VerifyAlways}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	verify("reopened")
	if _, err := s.Commit(t.Context(), []store.Op{put("more", strings.Repeat(value, 100), 0)}); err != nil {
		t.Error(err)
	}
}

// A commit that has no room takes none of those down that share its transaction and have it.
func TestNoSpaceForOneOfSeveral(t *testing.T) {
	s := openT(t, Options{MaxSize: 1 << 20, NoSync: true})
	for round := range 10 {
		release := hold(t, s)
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			value := ""
			if i%2 == 1 {
				value = strings.Repeat("x", 2<<20)
			}
			wg.Go(func() {
				_, errs[i] = s.Commit(t.Context(), []store.Op{put(fmt.Sprint(i), value, store.AnyRevision)})
			})
		}
		queued(s, len(errs))
		release()
		wg.Wait()
		for i, err := range errs {
			if i%2 == 1 && !errors.Is(err, ErrNoSpace) || i%2 == 0 && err != nil {
				t.Fatalf("round %d, commit %d: %v", round, i, err)
			}
		}
		if n := s.Stats().Records; n != 3 {
			t.Fatalf("round %d: %d records, want 3", round, n)
		}
	}
}

// TestNoSpaceOfTheSystem: what a system says when there is no room is known by its number, and by its words where bbolt keeps those
// alone.
func TestNoSpaceOfTheSystem(t *testing.T) {
	for _, e := range outOfRoom {
		for _, err := range []error{e, &os.PathError{Op: "write", Path: "x", Err: e}, fmt.Errorf("file resize error: %s", e)} {
			if !noSpace(err) {
				t.Errorf("%v is not taken for a lack of room", err)
			}
		}
	}
	if err := fmt.Errorf("write: %w", syscall.EIO); noSpace(err) {
		t.Errorf("%v is taken for a lack of room", err)
	}
}

// TestReadAsTheStoreCloses: a read that begins before Close, and gets to the file after it, ends as one that comes later.
func TestReadAsTheStoreCloses(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	if err := s.db.Close(); err != nil { // as Close does after it has said so
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), nil, "a"); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("Get: %v", err)
	}
	if _, _, err := s.List(t.Context(), store.Range{}); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("List: %v", err)
	}
}

// A file that is cut off while it is open gives an error, not a crash, and the store takes no more commits.
func TestCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is mapped can't be cut there")
	}
	s := openT(t, Options{NoSync: true})
	for i := range 100 {
		if _, err := s.Commit(t.Context(), []store.Op{put(fmt.Sprint(i), strings.Repeat("x", 1000), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(s.path, int64(2*s.db.Info().PageSize)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.List(t.Context(), store.Range{}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("List: %v", err)
	}
	if _, err := s.Get(t.Context(), nil, "1"); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{put("1", "", store.AnyRevision)}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("Commit: %v", err)
	}
	if _, err := s.Commit(t.Context(), []store.Op{put("1", "", store.AnyRevision)}); !errors.Is(err, ErrFailed) || !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("second Commit: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("Close hangs")
	}
}

// Whatever is done, the store is what a plain map would be, and the file verifies.
func TestAgainstAMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := openT(t, Options{NoSync: true})
	want := map[string]store.Record{}
	rev := uint64(0)
	for step := range 2000 {
		var ops []store.Op
		ok := true
		for i := range 1 + rnd.IntN(4) {
			op := store.Op{Kind: store.Kind(rnd.IntN(3)), Key: fmt.Sprintf("%d%02d", i, rnd.IntN(60)), Expect: store.AnyRevision}
			if op.Kind == store.Put {
				op.Value = strings.Repeat(op.Key, rnd.IntN(300))
			}
			if op.Kind == store.Guard || rnd.IntN(2) == 0 {
				op.Expect = want[op.Key].Rev
				if rnd.IntN(20) == 0 {
					op.Expect, ok = op.Expect+1, false
				}
			}
			ops = append(ops, op)
		}
		got, err := s.Commit(t.Context(), ops)
		if ok != (err == nil) || !ok && !errors.Is(err, ipalloc.ErrConflict) {
			t.Fatalf("step %d: %v", step, err)
		}
		if ok && slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind != store.Guard }) {
			rev++
			for _, op := range ops {
				switch op.Kind {
				case store.Put:
					want[op.Key] = store.Record{Key: op.Key, Value: op.Value, Rev: rev}
				case store.Delete:
					delete(want, op.Key)
				}
			}
		}
		if ok && got != rev {
			t.Fatalf("step %d: revision %d, want %d", step, got, rev)
		}
		if step%100 != 0 {
			continue
		}
		if step%500 == 0 {
			s.Close()
			if s, err = Open(t.Context(), s.path, Options{NoSync: true, Verify: VerifyAlways}); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		recs, at, err := s.List(t.Context(), store.Range{})
		if err != nil || at != rev || len(recs) != len(want) {
			t.Fatalf("step %d: %d records at %d, %v, want %d at %d", step, len(recs), at, err, len(want), rev)
		}
		for _, r := range recs {
			if want[r.Key] != r {
				t.Fatalf("step %d: %v, want %v", step, r, want[r.Key])
			}
		}
	}
	s.Close()
}

// When bbolt says that a transaction failed which the file shows nevertheless, as after a sync that failed, the outcome is
// unknown, and no more commits are made until the file is opened again; reads go on.
func TestSyncFails(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	if _, err := s.Commit(t.Context(), []store.Op{put("a", "1", 0)}); err != nil {
		t.Fatal(err)
	}
	last := int(s.Stats().Transactions)
	if fatal, answer := s.undone(last+1, syscall.EIO); fatal != nil || errors.Is(answer, ipalloc.ErrUnknownOutcome) || !errors.Is(answer, syscall.EIO) {
		t.Errorf("not written: %v, %v", fatal, answer)
	}
	fatal, answer := s.undone(last, syscall.EIO)
	if fatal == nil || !errors.Is(answer, ipalloc.ErrUnknownOutcome) || !errors.Is(answer, syscall.EIO) {
		t.Errorf("written: %v, %v", fatal, answer)
	}
	s.fail(fatal)
	if _, err := s.Commit(t.Context(), []store.Op{put("a", "2", 1)}); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("Commit: %v", err)
	}
	if recs, err := s.Get(t.Context(), nil, "a"); err != nil || recs[0].Value != "1" {
		t.Errorf("Get: %v, %v", recs, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
