package world

import (
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// changeOfOthers is a change by package prefixes or hostlocal, and the beginnings of the names of what it may change.
type changeOfOthers struct {
	do  func(store.Store) error
	may []string
}

func changesOfOthers(t *testing.T) map[string]changeOfOthers {
	plan := func(do func(a *prefixes.Allocator) error) func(store.Store) error {
		return func(db store.Store) error {
			a, err := prefixes.New(db, prefixes.Options{Now: func() time.Time { return start.Add(10 * time.Minute) }})
			must(t, err)
			return do(a)
		}
	}
	also := store.Op{Kind: store.Put, Key: "Machine/4", Value: "changed", Expect: store.AnyRevision}
	return map[string]changeOfOthers{
		"SetSizes": {plan(func(a *prefixes.Allocator) error {
			return a.SetSizes(t.Context(), prefix("172.16.0.0/12"), prefixes.Sizes{Shortest: 13, Longest: 20})
		}), []string{"root 172.16.0.0/12", "use of root 172.16.0.0/12"}},
		"SetChildren": {plan(func(a *prefixes.Allocator) error {
			_, err := a.SetChildren(t.Context(), prefix("172.20.0.0/16"), "named", prefixes.Sizes{Shortest: 18, Longest: 24}, also)
			return err
		}), []string{"prefix 172.20.0.0/16", "own Machine/4", "use of root 172.16.0.0/12"}},
		"ReleaseTree": {plan(func(a *prefixes.Allocator) error {
			gone, err := a.ReleaseTree(t.Context(), prefix("172.16.0.0/16"), "region")
			if len(gone) != 5 {
				t.Errorf("released %v", gone)
			}
			return err
		}), []string{"prefix 172.16.", "use of root 172.16.0.0/12"}},
		"Add": {func(db store.Store) error {
			later := func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }
			e, err := hostlocal.New(db, hostlocal.Config{Network: "plain", Sets: sets("1"), Now: later})
			must(t, err)
			if _, err := e.GC(t.Context(), hostlocal.GCArgs{Valid: []hostlocal.Attachment{{Container: "a", Interface: "eth0"}}}); err != nil {
				return err
			}
			_, err = e.Add(t.Context(), hostlocal.Attachment{Container: "c", Interface: "eth0"})
			return err
		}, []string{"attachment plain ", "cursors plain"}},
		"Remove": {func(db store.Store) error {
			e, err := hostlocal.New(db, hostlocal.Config{Network: "plain"})
			must(t, err)
			for _, a := range []hostlocal.Attachment{{Container: "old"}, {Container: "a", Interface: "eth0"}, {Container: "b", Interface: "eth0"}} {
				_, err := e.Del(t.Context(), a)
				must(t, err)
			}
			return e.Remove(t.Context())
		}, []string{"attachment plain ", "cursors plain"}},
	}
}

// A change of a plan of prefixes, and the end of a network, change what they are about and leave addresses, other trees, other
// networks and other spaces as they were.
func TestPlansAndNetworksLeaveOthersAlone(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB)
	for name, c := range changesOfOthers(t) {
		w := w.Copy(t)
		in, err := In(w.DB, "blue")
		must(t, err)
		must(t, c.do(in))
		lines := Diff(before, w.Look(t, w.DB))
		if len(lines) == 0 {
			t.Errorf("%s changes nothing", name)
		}
		for _, line := range lines {
			space, what := Key(line)
			allowed := false
			for _, m := range c.may {
				allowed = allowed || strings.HasPrefix(what, m)
			}
			if space != "blue" || !allowed {
				t.Errorf("%s changes %s", name, line)
			}
		}
	}
}

// A change of a plan or of a network in store.Together changes what it does by itself, in one commit.
func TestPlansAndNetworksTogether(t *testing.T) {
	w := New(t)
	for name, c := range changesOfOthers(t) {
		if name == "Remove" { // refused
			continue
		}
		alone, w := w.Copy(t), w.Copy(t)
		must(t, c.do(alone.DB))
		db := faults.NewFaulty(w.DB)
		must(t, store.Together(t.Context(), db, c.do))
		if n := db.Counts().Commits; n != 1 {
			t.Errorf("%s: %d commits", name, n)
		}
		for _, line := range Diff(alone.Look(t, alone.DB), w.Look(t, w.DB)) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// A call of a set of numbers changes the address of that number, the block and the count that it is in, and the memo of its owner.
func TestNumbersLeaveOthersAlone(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB)
	for name, c := range map[string]struct {
		do  func(n *numbers.Numbers) error
		may string
	}{
		"Assign":   {func(n *numbers.Numbers) error { _, err := n.Assign(t.Context(), "e"); return err }, "address fd00::65 e"},
		"Occupy":   {func(n *numbers.Numbers) error { return n.Occupy(t.Context(), "e", 9) }, "address fd00::9 e"},
		"Release":  {func(n *numbers.Numbers) error { _, err := n.Release(t.Context(), "d"); return err }, "address fd00::fa0 d"},
		"Transfer": {func(n *numbers.Numbers) error { return n.Transfer(t.Context(), 4000, "d", "e") }, "address fd00::fa0 "},
	} {
		w := w.Copy(t)
		must(t, c.do(w.openNumbers(t, numbers.Range{First: 100, Last: 4094})))
		lines, met := Diff(before, w.Look(t, w.DB)), false
		for _, line := range lines {
			space, what := Key(line)
			met = met || strings.HasPrefix(what, c.may)
			if space != Numbers || !strings.HasPrefix(what, c.may) && !strings.HasPrefix(what, "memo q") && !strings.HasPrefix(what, "block ") && what != "utilization numbers" {
				t.Errorf("%s changes %s", name, line)
			}
		}
		if !met {
			t.Errorf("%s does not change %s", name, c.may)
		}
	}
	grown := w.Copy(t)
	must(t, grown.openNumbers(t, numbers.Range{First: 100, Last: 4094}).SetRange(t.Context(), numbers.Range{First: 50, Last: 60}))
	for _, line := range Diff(before, grown.Look(t, grown.DB)) {
		if space, what := Key(line); space != Numbers || what != "pool numbers" && what != "utilization numbers" && !strings.HasPrefix(what, "block ") {
			t.Errorf("another range changes %s", line)
		}
	}
}
