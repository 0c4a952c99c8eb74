package ipset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// lateCommit is a store whose next commit has an unknown outcome and is never made by it.
type lateCommit struct {
	store.Store
	mu   sync.Mutex
	hold bool
	ops  []store.Op
}

func (l *lateCommit) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold && l.ops == nil {
		l.ops = append(l.ops, ops...)
		return 0, ipalloc.ErrUnknownOutcome
	}
	return l.Store.Commit(ctx, ops)
}

// requested is an assignment of n addresses under a request key.
func requested(n int) alloc.AssignArgs {
	a := want("h", n, "pod")
	a.Request = "add pod"
	return a
}

// An assignment takes nothing under a request that was withdrawn: not by a commit that arrives late, not by a call that begins later.
func TestWithdrawnRequestTakesNothing(t *testing.T) {
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprint("made ", made), func(t *testing.T) {
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
			w.assign(want("h", 1, "first")) // the block exists, so the late commit rests on it alone
			l := &lateCommit{Store: w.store, hold: true}
			ctx, cancel := context.WithCancel(bg)
			e := w.engine(l)
			done := make(chan error)
			go func() { _, err := e.AutoAssign(ctx, requested(2)); done <- err }()
			for {
				l.mu.Lock()
				began := l.ops != nil
				l.mu.Unlock()
				if began {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
			<-done
			if made {
				if _, err := w.store.Commit(bg, l.ops); err != nil {
					t.Skip("the engine has settled it")
				}
			}
			gone, err := w.Withdraw(bg, "add pod")
			if want := map[bool]int{true: 2}[made]; err != nil || len(gone) != want {
				t.Errorf("withdrew %v, %v, want %d addresses", gone, err, want)
			}
			if _, err := w.store.Commit(bg, l.ops); !errors.Is(err, ipalloc.ErrConflict) {
				t.Errorf("the late commit: %v", err)
			}
			for _, e := range []*Engine{e, w.Engine, w.engine(w.store)} {
				if got, err := e.AutoAssign(bg, requested(2)); !errors.Is(err, ipalloc.ErrMismatch) {
					t.Errorf("%v, %v", got, err)
				}
			}
			if gone, err := w.Withdraw(bg, "add pod"); err != nil || len(gone) != 0 {
				t.Errorf("again: %v, %v", gone, err)
			}
			if als, err := w.IPsByHandle(bg, "pod"); err != nil || len(als) != 0 {
				t.Errorf("held: %v, %v", als, err)
			}
		})
	}
}

// A withdrawn request is listed, and forgotten at the age of every request key; what the handle got otherwise stays.
func TestWithdrawnRequestIsForgotten(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 30))
	w.assign(want("h", 1, "pod"))
	w.assign(requested(2))
	moved := w.assign(requested(2)).V4[0] // released and assigned anew: no longer of the request
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: moved.Address}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: moved.Address, Owner: alloc.HostOwner("h"), Handle: "pod"}); err != nil {
		t.Fatal(err)
	}
	if gone, err := w.Withdraw(bg, "add pod"); err != nil || len(gone) != 1 {
		t.Errorf("%v, %v", gone, err)
	}
	for r, err := range w.Operator().Remembered(bg) {
		if err != nil || r.Kind != alloc.RememberedWithdrawn || r.Name != "add pod" || len(r.Addresses) != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if als, err := w.IPsByHandle(bg, "pod"); err != nil || len(als) != 2 {
		t.Errorf("held: %v, %v", als, err)
	}
	w.releaseHandle("pod")
	w.clock.add(25 * time.Hour)
	swept, err := w.Operator().Sweep(bg, alloc.SweepArgs{IdleAfter: time.Hour})
	if err != nil || swept.Requests != 1 {
		t.Errorf("%+v, %v", swept, err)
	}
	if left := w.records("m") + w.records("t"); left != 0 {
		t.Errorf("%d records of requests are left", left)
	}
	if got, err := w.AutoAssign(bg, requested(2)); err != nil || len(got.V4) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// An answer that no commit can release at once is released in steps, the key ended in the first of them.
func TestWithdrawInSteps(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 32))
	w.assign(requested(40))
	e := w.engine(limitedStore{w.store, store.Limits{Ops: 24}})
	if gone, err := e.Withdraw(bg, "add pod"); err != nil || len(gone) != 40 {
		t.Errorf("%d, %v", len(gone), err)
	}
	if als, err := w.IPsByHandle(bg, "pod"); err != nil || len(als) != 0 {
		t.Errorf("held: %v, %v", als, err)
	}
}
