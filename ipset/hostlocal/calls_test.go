package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// lossy is a store that loses the answer to one commit of several records, and makes it when told to.
type lossy struct {
	store.Store
	lose bool
	lost []store.Op
}

func (l *lossy) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if l.lose && len(ops) > 1 { // not that of a header alone
		l.lose, l.lost = false, slices.Clone(ops)
		return 0, ipalloc.ErrUnknownOutcome
	}
	return l.Store.Commit(ctx, ops)
}

// TestLostCommit: after an Add with an unknown outcome, Del is final. The lost commit
// fails if it arrives after Del has answered, even if Del found nothing to release.
func TestLostCommit(t *testing.T) {
	for _, boot := range []string{"", "b1"} {
		db := &lossy{Store: store.NewMemory()}
		w := &world{TB: t, store: db}
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29")}, Boot: boot})
		for _, settle := range []func(){
			func() { w.del(eth0("a")) },
			func() { // any other operation settles it as well
				if err := w.Verify(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrNotFound) {
					t.Fatal(err)
				}
			},
			func() {
				if s, err := w.Export(ctx); err != nil || len(s.Holdings) != 0 {
					t.Fatal(s, err)
				}
			},
		} {
			db.lose = true
			if _, err := w.Add(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			settle()
			if _, err := db.Store.Commit(ctx, db.lost); !errors.Is(err, ipalloc.ErrConflict) {
				t.Fatalf("the lost commit was made after Del: %v", err)
			}
			if who, held := holderOf(t, w.Engine, "10.0.0.2"); held {
				t.Fatal("leaked to", who)
			}
		}
		// One that was made in time is released.
		db.lose = true
		if _, err := w.Add(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if _, err := db.Store.Commit(ctx, db.lost); err != nil {
			t.Fatal(err)
		}
		w.del(eth0("a"), "10.0.0.2")
		// An unknown boot is none: leases release nothing of it.
		w.add(eth0("b"), nil, "10.0.0.3")
		if boot == "" {
			w.open(Config{Boot: "b2", Leases: true})
			w.del(eth0("b"), "10.0.0.3")
		}
		w.check()
	}
}

// TestLostStepOfGC: a step of GC whose outcome is unknown cannot be made once the engine has answered another call.
func TestLostStepOfGC(t *testing.T) {
	db := &lossy{Store: store.NewMemory()}
	w := &world{TB: t, store: db}
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29")}})
	w.add(eth0("a"), nil, "10.0.0.2")
	db.lose = true
	if _, err := w.GC(ctx, GCArgs{}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if err := w.Verify(ctx, eth0("a"), addrs("10.0.0.2")...); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Store.Commit(ctx, db.lost); !errors.Is(err, ipalloc.ErrConflict) {
		t.Fatalf("the lost commit was made: %v", err)
	}
	w.check()
}

// TestCallsShareCommits: calls that come while a commit is under way share the next one, each with its own answer.
func TestCallsShareCommits(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/28"))
	open, reached := make(chan struct{}), make(chan struct{})
	db := faults.NewFaulty(w.store)
	e, err := New(db, Config{Network: "net", Sets: []RangeSet{subnets("10.0.0.0/28")}})
	if err != nil {
		t.Fatal(err)
	}
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit && c.Nth == 1 {
			close(reached)
			<-open
		}
		return faults.Outcome{}
	})
	var wg sync.WaitGroup
	errs := make([]error, 20)
	add := func(i int) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, errs[i] = e.Add(ctx, eth0(fmt.Sprint("c", i)))
		}()
	}
	add(0)
	<-reached
	for i := 1; i < len(errs); i++ {
		add(i)
	}
	time.Sleep(10 * time.Millisecond) // some of them wait by now; how many does not change the answers
	close(open)
	wg.Wait()
	full := 0
	for i, err := range errs {
		if errors.Is(err, ipalloc.ErrFull) && own(err).Owner == fmt.Sprintf("c%d/eth0", i) {
			full++
		} else if err != nil {
			t.Error(err)
		}
	}
	s, err := w.Export(ctx)
	if err != nil || full != 7 || len(s.Holdings) != 13 {
		t.Errorf("%d full, %v, %v", full, s.Holdings, err)
	}
	t.Logf("%d commits", db.Counts().Commits)
	w.check()
}
