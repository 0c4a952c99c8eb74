package prefixestest

import (
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func TestMemory(t *testing.T) {
	Test(t, func(*testing.T) store.Store { return store.NewMemory() })
}

// The limits are etcd's, and lower ones that still hold a call.
func TestLimited(t *testing.T) {
	for _, ops := range []int{128, 12} {
		Test(t, func(*testing.T) store.Store {
			return faults.NewLimited(store.NewMemory(), store.Limits{Ops: ops, Bytes: 1 << 20})
		})
	}
}

// A space of a store serves allocators.
func TestSpace(t *testing.T) {
	Test(t, storetest.InSpace(func(*testing.T) store.Store { return store.NewMemory() }))
}
