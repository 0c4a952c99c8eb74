package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
)

const victims = 12

// TestMain runs the program in place of the tests if the parent asks for it: it kills itself at
// the n-th step of a kind.
func TestMain(m *testing.M) {
	file := os.Getenv("CLOUD_WORLD")
	if file == "" {
		os.Exit(m.Run())
	}
	w, op := newWorld(file), os.Getenv("CLOUD_OP")
	n, _ := strconv.Atoi(os.Getenv("CLOUD_N"))
	seed, _ := strconv.ParseUint(os.Getenv("CLOUD_SEED"), 10, 64)
	var seen atomic.Int64
	w.before = func(at, _ string) error {
		if op == at && seen.Add(1) == int64(n) {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Kill()
			}
			select {}
		}
		if seed > 0 && rand.IntN(5) == 0 && at != "ranges" && at != "add" {
			return errors.New("no answer")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	go func() { // end when all are served
		for ctx.Err() == nil {
			if w.rest() == nil {
				time.Sleep(10 * time.Millisecond)
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	run(ctx, os.Getenv("CLOUD_MODE"), w, (*fakeCloud)(w), 5*time.Millisecond)
	os.Exit(0)
}

// rest returns nil if every record is the range of its machine and no two machines share one.
func (w *world) rest() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := map[netip.Prefix]string{}
	for name, r := range w.Nodes {
		if len(r.Record) == 0 || !slices.Equal(r.Record, w.Machines[name]) {
			return fmt.Errorf("%s: record %v, machine %v", name, r.Record, w.Machines[name])
		}
		if other := of[r.Record[0]]; other != "" {
			return fmt.Errorf("%v is of %s and %s", r.Record, name, other)
		}
		of[r.Record[0]] = name
	}
	return nil
}

func start(t *testing.T, file, mode, op string, n int, seed uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CLOUD_WORLD="+file, "CLOUD_MODE="+mode, "CLOUD_OP="+op, fmt.Sprint("CLOUD_N=", n), fmt.Sprint("CLOUD_SEED=", seed))
	if out, err := cmd.CombinedOutput(); err != nil && op == "" {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestKilled kills the program before an Assign, between the Assign and the write of the record,
// and before a read of the ranges. The next process has more nodes. It completes each record and
// gives no node a range that another machine has.
func TestKilled(t *testing.T) {
	for _, mode := range []string{"cluster", "cloud"} {
		for _, op := range []string{"assign", "write", "ranges"} {
			for n := 1; n <= victims; n += 4 {
				for seed := range uint64(2) {
					t.Run(fmt.Sprintf("%s/%s/%d/%d", mode, op, n, seed), func(t *testing.T) {
						t.Parallel()
						file := filepath.Join(t.TempDir(), "world")
						w := newWorld(file)
						add := func(from, to int) {
							for i := from; i < to; i++ {
								w.add(fmt.Sprintf("n%02d", (i*7)%20))
								if mode == "cloud" {
									w.Machines[fmt.Sprintf("n%02d", (i*7)%20)] = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i%16))}
								}
							}
							w.save()
						}
						add(0, victims)
						start(t, file, mode, op, n, seed)
						w = newWorld(file)
						before := map[string][]netip.Prefix{}
						for name, ps := range w.Machines {
							before[name] = ps
						}
						if mode == "cluster" && op == "write" && w.rest() == nil {
							t.Fatal("it was not killed")
						}
						add(victims, 16)
						start(t, file, mode, "", 0, seed)
						w = newWorld(file)
						if err := w.rest(); err != nil || len(w.Doubles) > 0 {
							t.Fatal(err, w.Doubles)
						}
						for name, ps := range before {
							if len(ps) > 0 && !slices.Equal(ps, w.Machines[name]) {
								t.Errorf("%s had %v before, has %v", name, ps, w.Machines[name])
							}
						}
					})
				}
			}
		}
	}
}

// A range that the cloud gave two machines is written for one node alone.
func TestForeignRange(t *testing.T) {
	w := newWorld("")
	w.add("a")
	w.add("b")
	w.Machines["a"] = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}
	w.Machines["b"] = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")} // by a foreign hand
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := run(ctx, "cloud", w, (*fakeCloud)(w), 5*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if a, b := w.Nodes["a"].Record, w.Nodes["b"].Record; len(a)+len(b) != 1 {
		t.Fatal(a, b)
	}
	if _, err := (*fakeCloud)(w).Ranges(ctx, "x"); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Fatal(err)
	}
}

// A record that is refused after the Assign, by an admission webhook here, does not release the
// range: the machine has it, so the node keeps it and no other node gets it.
func TestRefusedAfterAssign(t *testing.T) {
	w := newWorld("")
	refused := 0
	w.before = func(op, name string) error {
		if op == "write" && name == "a" && refused < 10 {
			refused++
			return fmt.Errorf("admission: %w", ipalloc.ErrConflict)
		}
		return nil
	}
	for _, name := range []string{"a", "b", "c"} {
		w.add(name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil && w.rest() != nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	_ = run(ctx, "cluster", w, (*fakeCloud)(w), 5*time.Millisecond)
	if err := w.rest(); err != nil || refused != 10 || len(w.Doubles) > 0 {
		t.Fatal(err, refused, w.Doubles)
	}
}
