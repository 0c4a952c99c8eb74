package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/fails"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func memory(*testing.T) store.Store { return store.NewMemory() }

func TestMemory(t *testing.T) { Test(t, memory) }

func TestSpace(t *testing.T) { Test(t, storetest.InSpace(memory)) }

// silent is a store that does not say that the context has ended.
type silent struct{ store.Store }

func (s silent) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if ctx.Err() != nil {
		return 0, errors.New("not made")
	}
	return s.Store.Commit(ctx, ops)
}

// The suite ends contexts: it fails for a store that does not say so.
func TestSilentStore(t *testing.T) {
	fails.Want(t, "^ContextEndsAtEveryCall$", func(t *testing.T) {
		Test(t, func(t *testing.T) store.Store { return silent{memory(t)} })
	})
}
