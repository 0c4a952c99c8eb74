package storetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/store"
)

func memory(*testing.T) store.Store { return store.NewMemory() }

func TestMemory(t *testing.T) { TestStore(t, memory) }
