package main

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"sync"

	"github.com/ipalloc/ipalloc/cidrset"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// The floor of AllocateNext is the sum of what it cannot do without: lock and
// unlock a mutex that nobody else wants, find and set a clear bit, build a prefix.
// Each is measured alone; and all of it in one function, where a processor overlaps
// some of it with the next call.
const (
	floorLock   = "floor/lock"
	floorFind   = "floor/find"
	floorPrefix = "floor/prefix"
	floorAll    = "floor/all"
	floorPair   = "floor/pair"
)

// floorSet hands out the children of a /18 as one word.
type floorSet struct {
	mu   sync.Mutex
	word uint64
	base uint32
}

//go:noinline
func (s *floorSet) next() netip.Prefix {
	s.mu.Lock()
	i := bits.TrailingZeros64(^s.word)
	if s.word |= 1 << i; s.word == ^uint64(0) {
		s.word = 0
	}
	s.mu.Unlock()
	return floorChild(s.base, i)
}

//go:noinline
func (s *floorSet) release(p netip.Prefix) {
	b := p.Addr().As4()
	i := binary.BigEndian.Uint32(b[:]) >> 8 & 63
	s.mu.Lock()
	s.word &^= 1 << i
	s.mu.Unlock()
}

func floorChild(base uint32, i int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], base|uint32(i)<<8)
	return netip.PrefixFrom(netip.AddrFrom4(b), 24)
}

// sinkPrefix is where a prefix goes whose only purpose is to be built.
var sinkPrefix netip.Prefix

// addFloor adds the works that compare AllocateNext alone, called directly and not
// through the driver, with its floor, which stands in the column of the driver.
func addFloor(ws *frame.Works) {
	_ = sinkPrefix // it is only written otherwise
	for _, order := range []int{16, 20, 24} {
		id := fmt.Sprintf("alone/2^%d", order)
		title := fmt.Sprintf("AllocateNext alone, called directly, 2^%d children until full", order)
		childBits := benchPool.Bits() + order
		ws.Add(id, title, ours, func() *frame.Job {
			s := must(cidrset.New(benchPool, childBits))
			return &frame.Job{N: 1 << order, Reset: func() { must(s.Release(benchPool)) }, Run: func(n int) {
				for range n {
					if _, err := s.AllocateNext(); err != nil {
						panic(err)
					}
				}
			}}
		})
		ws.Add(id, title, flat, func() *frame.Job {
			s := must(bitsetPeer.make(benchPool, childBits))
			return &frame.Job{N: 1 << order, Reset: func() { must(s.Release(benchPool)) }, Run: func(n int) {
				for range n {
					if _, err := s.AllocateNext(); err != nil {
						panic(err)
					}
				}
			}}
		})
	}
	addFloorParts(ws)
	addFloorCalls(ws)
}

// addFloorParts adds what the floor consists of, each alone.
func addFloorParts(ws *frame.Works) {
	ws.Add(floorLock, "floor: lock and unlock a mutex", null, func() *frame.Job {
		var mu sync.Mutex
		return &frame.Job{Run: func(n int) {
			for range n {
				mu.Lock()
				//lint:ignore SA2001 nothing in between is what is measured
				mu.Unlock()
			}
		}}
	})
	ws.Add(floorFind, "floor: find and set a clear bit of a word", null, func() *frame.Job {
		var word uint64
		return &frame.Job{Run: func(n int) {
			for range n {
				if word |= 1 << bits.TrailingZeros64(^word); word == ^uint64(0) {
					word = 0
				}
			}
		}}
	})
	ws.Add(floorPrefix, "floor: build a prefix", null, func() *frame.Job {
		return &frame.Job{Run: func(n int) {
			for i := range n {
				sinkPrefix = floorChild(10<<24, i&0xffff)
			}
		}}
	})
}

// addFloorCalls adds the same as calls.
func addFloorCalls(ws *frame.Works) {
	ws.Add(floorAll, "floor: the three in one call", null, func() *frame.Job {
		s := &floorSet{base: 10 << 24}
		return &frame.Job{Run: func(n int) {
			for range n {
				sinkPrefix = s.next()
			}
		}}
	})
	ws.Add(floorPair, "floor of a pair: that call and one that clears the bit again", null, func() *frame.Job {
		s := &floorSet{base: 10 << 24}
		return &frame.Job{Run: func(n int) {
			for range n {
				s.release(s.next())
			}
		}}
	})
}
