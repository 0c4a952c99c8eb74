package main

import (
	"net/netip"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// compressed is the name of github.com/RoaringBitmap/roaring among the contestants.
const compressed = "roaring"

// roaringSet is an allocator around a compressed bitmap of the free children, of
// which it finds the next one faster than the next absent one among those taken.
type roaringSet struct {
	codec  addr.Codec
	mu     sync.Mutex
	free   *roaring.Bitmap
	cursor uint32
}

var roaringPeer = prefixPeer[netip.Prefix, *roaringSet]{
	name: compressed,
	make: func(pool netip.Prefix, bits int) (*roaringSet, error) {
		codec, err := addr.NewCodec(pool, bits)
		if err != nil {
			return nil, err
		}
		s := &roaringSet{codec: codec, free: roaring.New()}
		s.free.AddRange(0, codec.Last()+1)
		return s, nil
	},
	handle: func(p netip.Prefix) netip.Prefix { return p },
	prefix: func(p netip.Prefix) netip.Prefix { return p },
}

func (s *roaringSet) AllocateNext() (netip.Prefix, error) {
	s.mu.Lock()
	i := s.free.NextValue(s.cursor)
	if i < 0 {
		if i = s.free.NextValue(0); i < 0 {
			s.mu.Unlock()
			return netip.Prefix{}, ipalloc.ErrFull
		}
	}
	s.free.Remove(uint32(i))
	s.cursor = (uint32(i) + 1) & uint32(s.codec.Last())
	s.mu.Unlock()
	return s.codec.Prefix(uint64(i)), nil
}

func (s *roaringSet) Occupy(p netip.Prefix) (uint64, error) {
	if i, ok := s.codec.Child(p); ok {
		s.mu.Lock()
		s.free.Remove(uint32(i))
		s.mu.Unlock()
		return 0, nil
	}
	lo, hi, rel := s.codec.Locate(p)
	if rel == addr.Foreign {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	s.free.RemoveRange(lo, hi+1)
	s.mu.Unlock()
	return 0, nil
}

func (s *roaringSet) Release(p netip.Prefix) (uint64, error) {
	if i, ok := s.codec.Child(p); ok {
		s.mu.Lock()
		s.free.Add(uint32(i))
		s.mu.Unlock()
		return 0, nil
	}
	lo, hi, rel := s.codec.Locate(p)
	if rel == addr.Foreign {
		return 0, ipalloc.ErrOutOfRange
	}
	s.mu.Lock()
	s.free.AddRange(lo, hi+1)
	s.mu.Unlock()
	return 0, nil
}
