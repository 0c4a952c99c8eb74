package enginetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/fails"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func memory(*testing.T) store.Store { return store.NewMemory() }

func TestMemory(t *testing.T) { Test(t, memory) }

func TestSpace(t *testing.T) { Test(t, storetest.InSpace(memory)) }

// The suite ends contexts: it fails for a store that does not say so.
func TestSilentStore(t *testing.T) {
	fails.Want(t, "^ContextEndsAtEveryCall$", func(t *testing.T) {
		Test(t, func(t *testing.T) store.Store { return faults.Silent{Store: memory(t)} })
	})
}
