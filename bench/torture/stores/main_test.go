package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestMain(m *testing.M) {
	for name, b := range broken {
		openers[name] = func(ctx context.Context, place string) (opener, error) {
			s, err := boltstore.Open(ctx, place, boltstore.Options{NoSync: true})
			if err != nil {
				return nil, err
			}
			f := faults.NewFaulty(s)
			f.Script(b.script)
			return only(f, nil)
		}
	}
	if childMain() {
		return
	}
	if status, done := contained(); done {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func short(t *testing.T) config {
	c := config{Callers: 2, Hold: 300 * time.Millisecond, Seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", c.Seed)
	return c
}

// TestStorm has each fault of each store once, every answer explained and every unknown outcome settled.
func TestStorm(t *testing.T) {
	c := short(t)
	for name := range subjects {
		t.Run(name, func(t *testing.T) {
			err := storm(t.Context(), name, c, t.Logf)
			if errors.Is(err, servers.ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSetBack has each store set back, in each way that it promises to notice, while calls of all kinds are in flight.
func TestSetBack(t *testing.T) {
	c := short(t)
	for name := range formers {
		if name == "kube" && testing.Short() {
			continue // three starts of an API server: TestSetBackUnderAnotherWriter of kubestore has it in short form
		}
		t.Run(name, func(t *testing.T) {
			err := setBack(t.Context(), name, c, t.Logf)
			if errors.Is(err, servers.ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// broken are stores that break the contract at some commits.
var broken = map[string]struct {
	script func(context.Context, faults.Call) faults.Outcome
	want   string // a part of what the storm says
}{
	"loses a commit that it acknowledged": {func(_ context.Context, c faults.Call) faults.Outcome {
		return faults.Outcome{Lie: c.Kind == faults.Commit && c.Nth%50 == 49}
	}, "which is that of"},
	"makes a commit in spite of a conflict": {func(_ context.Context, c faults.Call) (o faults.Outcome) {
		if c.Kind == faults.Commit && c.Nth%3 == 2 { // so an address is given twice
			for _, op := range c.Ops {
				if op.Kind != store.Guard {
					op.Expect = store.AnyRevision
					o.Ops = append(o.Ops, op)
				}
			}
		}
		return o
	}, "expected"},
	"makes half a commit": {func(_ context.Context, c faults.Call) (o faults.Outcome) {
		if c.Kind == faults.Commit && len(c.Ops) > 3 && c.Nth > 10 {
			o.Ops = c.Ops[1:]
		}
		return o
	}, ""},
}

// TestBrokenStoresAreFound has the storm on stores that break the contract. It says so of each.
func TestBrokenStoresAreFound(t *testing.T) {
	c := short(t)
	c.Duration = time.Second
	for name, b := range broken {
		subjects[name] = func(context.Context) (*subject, error) {
			return &subject{place: filepath.Join(t.TempDir(), "store.db"), processes: 1, close: func() error { return nil }}, nil
		}
		defer delete(subjects, name)
		err := storm(t.Context(), name, c, t.Logf)
		if err == nil || !strings.Contains(err.Error(), b.want) {
			t.Errorf("a store that %s: %v", name, err)
		}
		t.Logf("a store that %s: %.500s", name, fmt.Sprint(err))
	}
}
