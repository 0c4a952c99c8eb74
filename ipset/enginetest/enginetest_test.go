package enginetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

func TestMemory(t *testing.T) {
	Test(t, func(*testing.T) store.Store { return store.NewMemory() })
}
