package etcdstore

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func newStore(t *testing.T) store.Store { return open(t) }

func TestStore(t *testing.T) { storetest.TestStore(t, newStore) }

func TestEngine(t *testing.T) { enginetest.Test(t, newStore) }
