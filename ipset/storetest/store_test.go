package storetest

import (
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
)

func memory(*testing.T) ipset.Store { return ipset.NewMemory() }

func TestMemory(t *testing.T) { TestStore(t, memory) } // ST1, ST2

func TestMemoryThroughFaulty(t *testing.T) {
	TestStore(t, func(t *testing.T) ipset.Store { return NewFaulty(ipset.NewMemory()) })
}

func TestMemoryEngine(t *testing.T) { TestEngine(t, memory) } // ST4, ST5, IP8
