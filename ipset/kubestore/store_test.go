package kubestore

import (
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// The contract holds with a log as short as it can be, where every fourth write needs a snapshot first, and with that of most
// stores.
func TestStore(t *testing.T) {
	lengths := []int{minSlots, defaultSlots}
	if testing.Short() {
		lengths = lengths[:1]
	}
	for _, slots := range lengths {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			storetest.TestStore(t, func(t *testing.T) store.Store { return openAt(t, newName(), Options{Slots: slots}) })
		})
	}
}

// A space of it keeps the same contract.
func TestInSpace(t *testing.T) {
	storetest.TestStore(t, storetest.InSpace(func(t *testing.T) store.Store { return openAt(t, newName(), Options{}) }))
}

func TestEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) store.Store { return openAt(t, newName(), Options{Slots: 8}) })
}
