package main

import (
	"fmt"
	"runtime"
)

// states are the states in which the memory of a set of 2^20 children is measured.
var states = []struct{ id, title string }{
	{"empty", "no child taken"},
	{"sparse", "one in 4,096 taken, at random"},
	{"half", "half taken, at random"},
	{"full", "all taken"},
}

// memoryOrder is log2 of the children of those sets.
const memoryOrder = 20

// cidrsetMemory measures the memory of all contestants of package cidrset.
func cidrsetMemory() []footprint {
	var list []footprint
	for _, state := range states {
		f := footprint{systemCidrset, fmt.Sprintf("memory for a child of 2^%d, %s", memoryOrder, state.title), map[string]float64{}}
		addMemory(f, oursPeer, state.id)
		addMemory(f, bitsetPeer, state.id)
		addMemory(f, roaringPeer, state.id)
		addMemory(f, ciliumPeer, state.id)
		addMemory(f, kubernetesPeer, state.id)
		list = append(list, f)
	}
	return list
}

func addMemory[H any, S prefixSet[H]](f footprint, p prefixPeer[H, S], state string) {
	copies := 4 // so that what else the heap does is small beside them
	if state == "empty" {
		copies = 64 // a bitset is not small then
	}
	held := make([]S, copies)
	before := liveHeap()
	for i := range held {
		held[i] = inState(p, state)
	}
	after := liveHeap()
	runtime.KeepAlive(held)
	f.bytes[p.name] = max(0, float64(after)-float64(before)) / float64(copies) / (1 << memoryOrder)
}

// inState returns a set in one of the states.
func inState[H any, S prefixSet[H]](p prefixPeer[H, S], state string) S {
	s, codec := newSet(p, memoryOrder)
	n := uint64(0)
	switch state {
	case "sparse":
		n = 1 << memoryOrder >> 12
	case "half":
		n = 1 << memoryOrder >> 1
	case "full":
		must(s.Occupy(p.handle(benchPool)))
	}
	for i := range n {
		must(s.Occupy(p.handle(codec.Prefix(scatter(i, memoryOrder)))))
	}
	return s
}

// liveHeap returns the bytes of the objects that are reachable.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep, and what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
