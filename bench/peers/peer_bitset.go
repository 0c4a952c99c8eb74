package main

import (
	"net/netip"
	"sync"

	"github.com/bits-and-blooms/bitset"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// flat is the name of github.com/bits-and-blooms/bitset among the contestants.
const flat = "bitset"

// bitsetSet is the least that makes an allocator of a plain bitset: the mutex and
// the codec that ours has, a bit for a child, a cursor. It counts nothing and
// checks only that a prefix is in the pool.
type bitsetSet struct {
	codec  addr.Codec
	mu     sync.Mutex
	taken  *bitset.BitSet
	cursor uint
}

var bitsetPeer = prefixPeer[netip.Prefix, *bitsetSet]{
	name: flat,
	make: func(pool netip.Prefix, bits int) (*bitsetSet, error) {
		codec, err := addr.NewCodec(pool, bits)
		if err != nil {
			return nil, err
		}
		return &bitsetSet{codec: codec, taken: bitset.New(uint(codec.Last() + 1))}, nil
	},
	handle: func(p netip.Prefix) netip.Prefix { return p },
	prefix: func(p netip.Prefix) netip.Prefix { return p },
}

func (s *bitsetSet) AllocateNext() (netip.Prefix, error) {
	s.mu.Lock()
	i, ok := s.taken.NextClear(s.cursor)
	if !ok {
		if i, ok = s.taken.NextClear(0); !ok {
			s.mu.Unlock()
			return netip.Prefix{}, ipalloc.ErrFull
		}
	}
	s.taken.Set(i)
	s.cursor = (i + 1) & uint(s.codec.Last())
	s.mu.Unlock()
	return s.codec.Prefix(uint64(i)), nil
}

func (s *bitsetSet) Occupy(p netip.Prefix) (uint64, error) {
	if i, ok := s.codec.Child(p); ok {
		s.mu.Lock()
		s.taken.Set(uint(i))
		s.mu.Unlock()
		return 0, nil
	}
	lo, hi, rel := s.codec.Locate(p)
	if rel == addr.Foreign {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	s.taken.SetRange(uint(lo), uint(hi+1))
	s.mu.Unlock()
	return 0, nil
}

func (s *bitsetSet) Release(p netip.Prefix) (uint64, error) {
	if i, ok := s.codec.Child(p); ok {
		s.mu.Lock()
		s.taken.Clear(uint(i))
		s.mu.Unlock()
		return 0, nil
	}
	lo, hi, rel := s.codec.Locate(p)
	if rel == addr.Foreign {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	s.taken.SetRange(uint(lo), uint(hi+1)) // there is no ClearRange
	s.taken.FlipRange(uint(lo), uint(hi+1))
	s.mu.Unlock()
	return 0, nil
}
