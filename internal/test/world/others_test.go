package world

import (
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
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
			a, err := prefixes.New(db, prefixes.Options{})
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
			_, err := a.SetChildren(t.Context(), "named", prefix("172.20.0.0/16"), prefixes.Sizes{Shortest: 18, Longest: 24}, also)
			return err
		}), []string{"prefix 172.20.0.0/16", "own Machine/4", "use of root 172.16.0.0/12"}},
		"ReleaseTree": {plan(func(a *prefixes.Allocator) error {
			gone, err := a.ReleaseTree(t.Context(), "region", prefix("172.16.0.0/16"))
			if len(gone) != 5 {
				t.Errorf("released %v", gone)
			}
			return err
		}), []string{"prefix 172.16.", "use of root 172.16.0.0/12"}},
		"Add": {func(db store.Store) error {
			e, err := hostlocal.New(db, hostlocal.Config{Network: "plain", Sets: sets("1")})
			must(t, err)
			if _, err := e.GC(t.Context(), []hostlocal.Attachment{{Container: "a", Interface: "eth0"}}); err != nil {
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
