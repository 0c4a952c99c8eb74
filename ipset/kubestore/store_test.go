package kubestore

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return openAt(t, newName(), Options{}) })
}

// The log is as short as it can be, so that every fourth write needs a snapshot first.
func TestShortLog(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return openAt(t, newName(), Options{Slots: minSlots}) })
}

func TestEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) store.Store { return openAt(t, newName(), Options{Slots: 8}) })
}
