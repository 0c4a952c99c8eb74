package main

import (
	"fmt"
	"runtime"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
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
func cidrsetMemory() []frame.Fact {
	var list []frame.Fact
	for _, state := range states {
		f := frame.Fact{Section: systemCidrset, ID: "memory/" + state.id, Title: fmt.Sprintf("memory for a child of 2^%d, %s", memoryOrder, state.title),
			Values: map[string]float64{}, Format: func(v float64) string { return fmt.Sprintf("%.4f B", v) }}
		addMemory(f, oursPeer, state.id)
		addMemory(f, bitsetPeer, state.id)
		addMemory(f, roaringPeer, state.id)
		addMemory(f, ciliumPeer, state.id)
		addMemory(f, kubernetesPeer, state.id)
		list = append(list, f)
	}
	return list
}

func addMemory[H any, S prefixSet[H]](f frame.Fact, p prefixPeer[H, S], state string) {
	copies := 4 // so that what else the heap does is small beside them
	if state == "empty" {
		copies = 64 // a bitset is not small then
	}
	held := make([]S, copies)
	before := frame.LiveHeap()
	for i := range held {
		held[i] = inState(p, state)
	}
	after := frame.LiveHeap()
	runtime.KeepAlive(held)
	f.Values[p.name] = max(0, float64(after)-float64(before)) / float64(copies) / (1 << memoryOrder)
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
