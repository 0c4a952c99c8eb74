package podnet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// builtin returns the built-in traces and pools, and what args change.
func builtin(t *testing.T, args ...string) Config {
	t.Helper()
	var f Flags
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	f.Register(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, place, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Nodes, err = trace.LoadNodes(""); err != nil {
		t.Fatal(err)
	}
	pods, err := trace.LoadPods("", cfg.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Events = trace.Schedule(cfg.Nodes, pods, place)
	return cfg
}

func open(t *testing.T, db store.Store, cfg Config) *Network {
	t.Helper()
	n, err := Open(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// finish runs a network to its end, verifies it and returns what is in the store.
func finish(t *testing.T, n *Network) string {
	t.Helper()
	if err := n.Run(t.Context(), len(n.cfg.Events)); err != nil {
		t.Fatal(err)
	}
	if err := n.Verify(t.Context(), "at the end"); err != nil {
		t.Fatal(err)
	}
	return dump(t, n)
}

// dump returns all blocks, with their owners, addresses, and the free ones in the order in which they
// will be handed out.
func dump(t *testing.T, n *Network) string {
	t.Helper()
	var s strings.Builder
	for _, r := range n.cfg.Ranges {
		for b, err := range n.engine.Operator().Blocks(t.Context(), r.Pool) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&s, "%v of %v:", b.Prefix(), b.Owner())
			for a := range b.All() {
				fmt.Fprintf(&s, " %v %s", a.Address, a.Handle)
			}
			free := 0
			for a := range b.FreeAddresses() {
				if free++; free <= 8 {
					fmt.Fprintf(&s, " %v", a)
				}
			}
			s.WriteByte('\n')
		}
	}
	return s.String()
}

// A network that is given up after any event, and opened again, ends as one that never stopped.
func TestStopAnywhere(t *testing.T) {
	cfg := builtin(t)
	want := finish(t, open(t, store.NewMemory(), cfg))
	step := 3
	if testing.Short() {
		step = 29
	}
	for stop := 0; stop <= len(cfg.Events); stop += step {
		db := store.NewMemory()
		n := open(t, db, cfg)
		if err := n.Run(t.Context(), stop); err != nil {
			t.Fatal(err)
		}
		n = open(t, db, cfg)
		// The pods that come and go by themselves, one after the other, are what it can't know of.
		if n.Next() > stop || n.Next() < stop-alone(cfg.Events[:stop]) {
			t.Fatalf("stopped before event %d, it goes on at %d", stop, n.Next())
		}
		repeats := n.Next() < stop
		if diff := same(want, finish(t, n), repeats); diff != "" {
			t.Fatalf("stopped before event %d (-want +got):\n%s", stop, diff)
		}
	}
}

// same compares two dumps; if pods came and went once more, which moves the free addresses on, it compares the pods.
func same(want, got string, repeats bool) string {
	if repeats {
		return cmp.Diff(pods(want), pods(got))
	}
	return cmp.Diff(want, got)
}

// pods returns the pods of a dump.
func pods(dump string) (names []string) {
	for _, s := range strings.Fields(dump) {
		if strings.Contains(s, "/") && !strings.Contains(s, ".") && !strings.Contains(s, ":") {
			names = append(names, s)
		}
	}
	slices.Sort(names)
	return names
}

// alone returns how many events at the end are pods that come and go within them.
func alone(events []trace.Event) (n int) {
	for i := len(events) - 1; i > 0 && events[i].Pod == events[i-1].Pod; i -= 2 {
		n += 2
	}
	return n
}

// The same for a program that dies in any commit, before it or after.
func TestDieInAnyCommit(t *testing.T) {
	cfg := builtin(t)
	want := finish(t, open(t, store.NewMemory(), cfg))
	step := 3
	if testing.Short() {
		step = 31
	}
	for _, made := range []bool{false, true} {
		for commit, died := 1, true; died; commit += step {
			mem := store.NewMemory()
			db := faults.NewFaulty(mem)
			db.Script(faults.AtCommit(commit, faults.Unknown(made)))
			n, err := Open(t.Context(), db, cfg)
			if err == nil {
				err = n.Run(t.Context(), len(cfg.Events))
			}
			if died = err != nil; died && !errors.Is(err, faults.ErrInjected) {
				t.Fatal(err)
			}
			again := open(t, mem, cfg)
			repeats := n != nil && again.Next() < n.Next()
			if diff := same(want, finish(t, again), repeats); diff != "" {
				t.Fatalf("died in commit %d, made: %v (-want +got):\n%s", commit, made, diff)
			}
		}
	}
}

func TestOpenRefusesAnotherStore(t *testing.T) {
	db := store.NewMemory()
	cfg := builtin(t)
	if err := open(t, db, cfg).Run(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	other := builtin(t, "-place", "most")
	fewer := builtin(t)
	fewer.Events = nil
	for want, cfg := range map[string]Config{
		"the store's pool IPv4 is 10.244.0.0/24 in /29 blocks, not 10.244.0.0/24 in /28": builtin(t, "-block4", "28"),
		"the store's pool IPv4 is 10.244.0.0/24 in /29 blocks, not 10.0.0.0/24 in /29":   builtin(t, "-podpool4", "10.0.0.0/24"),
		"the store has another pool, IPv6 fd00:10:244::/116":                             builtin(t, "-podpool6", "none"),
		`on node "db-02", in this trace it is on "`:                                      other,
		`for pod "shop/web-03", which the trace does not know`:                           fewer,
	} {
		if _, err := Open(t.Context(), db, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

func TestTooSmall(t *testing.T) {
	n := open(t, store.NewMemory(), builtin(t, "-podpool4", "10.0.0.0/27", "-podpool6", "none"))
	err := n.Run(t.Context(), len(n.cfg.Events))
	want := `pod "ml/train-03" on node "web-07", with 32 other pods: `
	if !errors.Is(err, ipalloc.ErrFull) || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("%v\nwant %s", err, want)
	}
	if err := n.Verify(t.Context(), "when it was full"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx, len(n.cfg.Events)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Counts add up: what was claimed and not given back is there.
func TestCounts(t *testing.T) {
	n := open(t, store.NewMemory(), builtin(t))
	dumped := finish(t, n)
	c := n.Counts()
	if left := strings.Count(dumped, "\n"); c.Claimed-c.Returned != left || c.Returned == 0 || c.Borrowed == 0 {
		t.Errorf("%+v, %d blocks are there", c, left)
	}
	n.Describe(io.Discard, "x", "y")
}
