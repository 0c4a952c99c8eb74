package ipset_test

import (
	"errors"
	"iter"
	"path/filepath"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// A program that drops the error of Open passes a nil pointer. Every constructor refuses it and names the argument.
func TestNilStore(t *testing.T) {
	for name, db := range map[string]store.Store{"nil": nil, "nil pointer": (*store.Memory)(nil)} {
		for call, f := range map[string]func() error{
			"ipset.New":     func() error { _, err := ipset.New(db, ipset.Options{}); return err },
			"prefixes.New":  func() error { _, err := prefixes.New(db, prefixes.Options{}); return err },
			"hostlocal.New": func() error { _, err := hostlocal.New(db, hostlocal.Config{Network: "n"}); return err },
			"numbers.Open":  func() error { _, err := numbers.Open(t.Context(), db, "n", ipset.Options{}); return err },
			"numbers.New": func() error {
				_, err := numbers.New(t.Context(), db, "n", numbers.Range{First: 1, Last: 2}, ipset.Options{})
				return err
			},
			"numbers.Names":      func() error { return lastOf(numbers.Names(t.Context(), db, ipset.Options{})) },
			"hostlocal.Networks": func() error { return lastOf(hostlocal.Networks(t.Context(), db)) },
			"kept.New":           func() error { _, err := kept.New(db, alloc.HostOwner("h"), ipset.Options{}); return err },
			"limits.Limits.All":  func() error { return lastOf(limits.New(db, ipset.Options{}).All(t.Context())) },
			"limits.Limits.Under": func() error {
				return limits.New(db, ipset.Options{}).Under(t.Context(), limits.Attribute("k", "v", 1), func(store.Store, *ipset.Engine) error { return nil })
			},
			"limits.Limits.Forget": func() error { return limits.New(db, ipset.Options{}).Forget(t.Context(), "k=v") },
			"ipset.SweepAll": func() error {
				_, err := ipset.SweepAll(t.Context(), db, ipset.Options{}, alloc.SweepArgs{})
				return err
			},
			"store.Together":   func() error { return store.Together(t.Context(), db, func(store.Store) error { return nil }) },
			"store.Copy to":    func() error { _, err := store.Copy(t.Context(), db, store.NewMemory()); return err },
			"store.Copy from":  func() error { _, err := store.Copy(t.Context(), store.NewMemory(), db); return err },
			"store.Complete":   func() error { return store.Complete(t.Context(), db) },
			"store.Space":      func() error { _, err := store.Space(db, "x"); return err },
			"store.Spaces":     func() error { return lastOf(store.Spaces(t.Context(), db)) },
			"store.NewOverlay": func() error { _, err := ipset.New(store.NewOverlay(db), ipset.Options{}); return err },
			"remote.Serve":     func() error { return remote.Serve(t.Context(), filepath.Join(t.TempDir(), "s"), db) },
		} {
			var e *ipalloc.Error
			if err := f(); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field == "" {
				t.Errorf("%s of %s: %v, want ErrInvalid with a Field", call, name, err)
			}
		}
	}
}

// lastOf returns the last error of a list.
func lastOf[V any](list iter.Seq2[V, error]) (err error) {
	for _, err = range list {
	}
	return err
}
