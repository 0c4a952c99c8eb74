package enginetest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// testDryRun carries out each step of a history twice dry, then really: the answers and what is held afterwards are equal. One dry
// engine carries out the whole rest of the history first. No dry run makes a commit.
func testDryRun(t *testing.T, open storetest.Open) {
	ctx := context.Background()
	f := faults.NewFaulty(open(t))
	c := &clock{t: start}
	e := newEngine(t, f, c)
	setUp(t, e)
	held := make(map[netip.Addr]string)
	steps := history()
	run := func(e *ipset.Engine, held map[netip.Addr]string, s step) string {
		err := s.do(ctx, e, held)
		var all []alloc.Allocation
		for al, err := range e.Allocations(ctx, netip.Prefix{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, al)
		}
		return fmt.Sprint(err, held, all)
	}
	ahead, aheadHeld := e.DryRun(), make(map[netip.Addr]string)
	var want []string
	f.Reset()
	for _, s := range steps {
		want = append(want, run(ahead, aheadHeld, s))
	}
	for i, s := range steps {
		for range 2 {
			if got := run(e.DryRun(), maps.Clone(held), s); got != want[i] {
				t.Fatalf("dry run of step %d, %s:\n%s\nwant\n%s", i, s.name, got, want[i])
			}
		}
		if n := f.Reset(); n.Commits > 0 {
			t.Fatalf("%s: %d commits of dry runs", s.name, n.Commits)
		}
		if got := run(e, held, s); got != want[i] {
			t.Fatalf("step %d, %s:\n%s\nwant as dry\n%s", i, s.name, got, want[i])
		}
		f.Reset()
	}
	c.add(time.Minute)
	verify(t, e, held)
}
