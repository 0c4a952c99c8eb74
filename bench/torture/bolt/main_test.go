package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	os.Exit(m.Run())
}

// Whenever a process is killed that works on an engine and on allocators with a journal, every operation that it was told is done is there afterwards, nothing is held twice, and
// nothing by nobody.
func TestKillStorm(t *testing.T) {
	kills := 1000
	if testing.Short() {
		kills = 60
	}
	s, err := newStorm(filepath.Join(t.TempDir(), "store.db"), rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range kills {
		if err := s.round(i); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
	}
	t.Log(s)
	if s.acknowledged < kills || s.doubts == 0 {
		t.Errorf("the storm was none: %v", s)
	}
}

// When a disk is full commits fail with an error that says so and change nothing; they go on when there is room.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"limit", "tmpfs"} {
		t.Run(kind, func(t *testing.T) {
			out, err := fullDisk(kind, t.TempDir())
			if errors.Is(err, errCannot) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(out)
		})
	}
}

// A store that was used by many, with watches, and closed, and an engine that is not used any more, leave no goroutine.
func TestNoGoroutineIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := boltstore.Open(context.Background(), path, boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []store.Store{store.NewMemory(), s} {
		e, err := ipset.New(db, ipset.Options{})
		if err == nil {
			err = pools(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var watches, callers sync.WaitGroup
		for range 4 {
			watches.Add(1)
			go func() {
				defer watches.Done()
				for range db.Watch(ctx, 0, "b") {
				}
			}()
		}
		for c := range 16 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for i := range 10 {
					callCtx, stop := context.WithCancel(context.Background())
					if i%3 == 0 {
						go stop() // at some moment of the call
					}
					_, _ = e.AutoAssign(callCtx, ipset.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host", c%4)), Num4: 1, Use: alloc.Workload,
						Claim: alloc.Claim{Handle: fmt.Sprint(c, i)}})
					stop()
				}
			}()
		}
		callers.Wait()
		for _, err := range e.Allocations(context.Background(), netip.Prefix{}) {
			if err != nil {
				t.Error(err)
			}
		}
		cancel()
		watches.Wait()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := boltstore.Open(context.Background(), filepath.Dir(path), boltstore.Options{}); err == nil {
		t.Error("a directory was opened")
	}
}
