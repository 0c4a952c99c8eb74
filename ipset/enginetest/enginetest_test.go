package enginetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func TestMemory(t *testing.T) {
	Test(t, func(*testing.T) store.Store { return store.NewMemory() })
}

func TestSpace(t *testing.T) {
	Test(t, storetest.InSpace(func(*testing.T) store.Store { return store.NewMemory() }))
}
