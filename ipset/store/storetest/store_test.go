package storetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

func memory(*testing.T) store.Store { return store.NewMemory() }

func TestMemory(t *testing.T) { TestStore(t, memory) }

// A store in memory has one process and one past.
func TestMemoryPast(t *testing.T) {
	TestPast(t, func(*testing.T) Past {
		s := store.NewMemory()
		open := func(*testing.T) store.Store { return s }
		return Past{Open: open, Many: open}
	})
}
