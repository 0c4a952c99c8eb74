package world

import (
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A change of a plan of prefixes, and the end of a network, change what they are about and leave addresses, other trees, other
// networks and other spaces as they were.
func TestPlansAndNetworksLeaveOthersAlone(t *testing.T) {
	w := New(t)
	before := w.Look(t, w.DB)
	plan := func(do func(a *prefixes.Allocator) error) func(store.Store) error {
		return func(db store.Store) error {
			a, err := prefixes.New(db, prefixes.Options{})
			must(t, err)
			return do(a)
		}
	}
	also := store.Op{Kind: store.Put, Key: "Machine/4", Value: "changed", Expect: store.AnyRevision}
	for name, c := range map[string]struct {
		do  func(store.Store) error
		may []string
	}{
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
		"Remove": {func(db store.Store) error {
			e, err := hostlocal.New(db, hostlocal.Config{Network: "plain"})
			must(t, err)
			for _, a := range []hostlocal.Attachment{{Container: "old"}, {Container: "a", Interface: "eth0"}, {Container: "b", Interface: "eth0"}} {
				_, err := e.Del(t.Context(), a)
				must(t, err)
			}
			return e.Remove(t.Context())
		}, []string{"attachment plain ", "cursors plain"}},
	} {
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
