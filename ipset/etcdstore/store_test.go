package etcdstore

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/storetest"
)

func newStore(t *testing.T) ipset.Store { return open(t) }

func TestStore(t *testing.T) { storetest.TestStore(t, newStore) } // ST1, ST2

func TestEngine(t *testing.T) { storetest.TestEngine(t, newStore) } // ST2, ST4, ST5, IP8
