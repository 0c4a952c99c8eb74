package etcdstore

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset/enginetest"
	"github.com/ipalloc/ipalloc/ipset/prefixes/prefixestest"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

func newStore(t *testing.T) store.Store { return open(t) }

func TestStore(t *testing.T) { storetest.TestStore(t, newStore) }

// A space of it keeps the same contract, and serves an engine.
func TestInSpace(t *testing.T) {
	storetest.TestStore(t, storetest.InSpace(newStore))
	enginetest.Test(t, storetest.InSpace(newStore))
}

func TestEngine(t *testing.T) { enginetest.Test(t, newStore) }

// An allocator of prefixes on it.
func TestPrefixes(t *testing.T) { prefixestest.Test(t, newStore) }
