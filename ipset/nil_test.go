package ipset_test

import (
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
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
			"store.Together": func() error { return store.Together(t.Context(), db, func(store.Store) error { return nil }) },
		} {
			var e *ipalloc.Error
			if err := f(); !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field == "" {
				t.Errorf("%s of %s: %v, want ErrInvalid with a Field", call, name, err)
			}
		}
	}
}
