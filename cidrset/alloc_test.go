package cidrset_test

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset"
)

// zeroAlloc wants the call not to allocate in steady state, which it reaches by
// being run a while.
func zeroAlloc(t *testing.T, name string, call func()) {
	t.Helper()
	for range 200 {
		call()
	}
	if n := testing.AllocsPerRun(500, call); n != 0 {
		t.Errorf("%s allocates %v times", name, n)
	}
}

// The promise of the package comment: the hot methods do not allocate, at whatever
// fill, and with every policy.
func TestZeroAllocations(t *testing.T) {
	for _, pool := range []struct {
		pool string
		bits int
	}{{"10.0.0.0/8", 24}, {"10.0.0.0/8", 28}, {"fd00::/48", 64}, {"fd00::/44", 64}} {
		for _, fill := range []float64{0.5, 0.99, 0.9999} {
			for _, k := range kinds[:4] {
				if testing.Short() && pool.bits-pfx(pool.pool).Bits() > 16 {
					continue
				}
				s := newSet(t, pool.pool, pool.bits, k.options()...)
				filled(t, s, fill)
				zeroAllocs(t, k.name+" in "+pool.pool, s, k)
				check(t, s)
			}
		}
	}
}

// filled takes a share of the children, all but some here and there.
func filled(t *testing.T, s *cidrset.Set, share float64) {
	if _, err := s.Occupy(s.Pool()); err != nil {
		t.Fatal(err)
	}
	n := s.Stats().Capacity
	free := n - uint64(share*float64(n))
	ps := make([]netip.Prefix, 0, n)
	for p := range s.All() {
		ps = append(ps, p)
	}
	for i := range free {
		if _, err := s.Release(ps[i*2654435761%n]); err != nil {
			t.Fatal(err)
		}
	}
}

func zeroAllocs(t *testing.T, name string, s *cidrset.Set, k kind) {
	t.Helper()
	k.wait()
	zeroAlloc(t, name+": AllocateNext, Release", func() {
		if sinkPrefix, sinkErr = s.AllocateNext(); sinkErr != nil {
			t.Fatal(sinkErr)
		}
		sinkCount, sinkErr = s.Release(sinkPrefix)
		k.wait()
	})
	held, err := s.AllocateNext()
	if err != nil {
		t.Fatal(err)
	}
	zeroAlloc(t, name+": Release, Occupy, Has", func() {
		sinkCount, sinkErr = s.Release(held)
		sinkCount, sinkErr = s.Occupy(held)
		if !s.Has(held) || !s.HasAny(held) {
			t.Fatal("not taken")
		}
	})
	if _, err := s.Release(held); err != nil {
		t.Fatal(err)
	}
	k.wait()
	// With Cooldown, what has cooled is taken in one call when nothing else is
	// free; that may be on more pages than a bitmap keeps in reserve, which is 64.
	if k.name != "cooldown" || s.Stats().Capacity <= 64<<12 {
		zeroAlloc(t, name+": Allocate, Release", func() {
			if sinkPrefix, sinkErr = s.AllocatePrefix(s.ChildBits()); sinkErr != nil {
				t.Fatal(sinkErr)
			}
			sinkCount, sinkErr = s.Release(sinkPrefix)
			k.wait()
		})
	}
	batch := make([]netip.Prefix, 4)
	zeroAlloc(t, name+": AllocateN, ReleaseN", func() {
		if sinkErr = s.AllocateN(batch); sinkErr != nil {
			t.Fatal(sinkErr)
		}
		sinkCount, sinkErr = s.ReleaseN(batch)
		k.wait()
	})
	zeroAlloc(t, name+": Stats, Cursor", func() {
		sinkCount = s.Stats().Used
		sinkPrefix = s.Cursor()
	})
	half := netip.PrefixFrom(s.Pool().Addr(), s.Pool().Bits()+3)
	zeroAlloc(t, name+": HasAny of much", func() {
		if s.Has(s.Pool()) || !s.HasAny(half) {
			t.Fatal("wrong")
		}
	})
}

// A pool that has room for large ones: they cost no allocation either.
func TestZeroAllocationsOfLargeOnes(t *testing.T) {
	for _, pool := range []struct {
		pool string
		bits int
	}{{"10.0.0.0/8", 28}, {"fd00::/40", 64}} {
		s := newSet(t, pool.pool, pool.bits)
		for i := range 100 {
			if _, err := s.AllocatePrefix(s.ChildBits() - i%7); err != nil {
				t.Fatal(err)
			}
		}
		for k := 0; k <= 14; k += 2 {
			zeroAlloc(t, "Allocate, Release of 2^k", func() {
				if sinkPrefix, sinkErr = s.AllocatePrefix(s.ChildBits() - k); sinkErr != nil {
					t.Fatal(sinkErr)
				}
				sinkCount, sinkErr = s.Release(sinkPrefix)
			})
		}
		big := netip.PrefixFrom(lastAddr(s.Pool()), s.Pool().Bits()+1).Masked()
		zeroAlloc(t, "Occupy, Release of half the pool", func() {
			sinkCount, sinkErr = s.Occupy(big)
			sinkCount, sinkErr = s.Release(big)
		})
	}
}

// A new set costs the same for any size: a few hundred bytes, a few pieces.
func TestNewIsSmall(t *testing.T) {
	var kept [100]*cidrset.Set
	for _, c := range []struct {
		pool string
		bits int
	}{{"10.0.0.1/32", 32}, {"10.0.0.0/16", 24}, {"10.0.0.0/8", 32}, {"fd00::/48", 64}, {"fd00::/64", 128}, {"::/0", 64}} {
		pool := pfx(c.pool)
		if n := testing.AllocsPerRun(100, func() { kept[0], sinkErr = cidrset.New(pool, c.bits) }); n > 5 {
			t.Errorf("New(%s, %d) allocates %v times", c.pool, c.bits, n)
		}
		before := heap()
		for i := range kept {
			kept[i], sinkErr = cidrset.New(pool, c.bits)
		}
		if each := (heap() - before) / int64(len(kept)); each >= 1<<10 {
			t.Errorf("New(%s, %d) takes %d bytes", c.pool, c.bits, each)
		}
		runtime.KeepAlive(&kept)
		kept = [100]*cidrset.Set{}
	}
	// With every option as well it does not grow with the pool.
	size := func(pool string, bits int) int64 {
		before := heap()
		for i := range kept {
			kept[i], sinkErr = cidrset.New(pfx(pool), bits, cidrset.Cooldown(time.Second, time.Now), cidrset.OnChange(func(cidrset.Change) {}))
		}
		each := (heap() - before) / int64(len(kept))
		runtime.KeepAlive(&kept)
		kept = [100]*cidrset.Set{}
		return each
	}
	if small, wide := size("10.0.0.0/30", 32), size("::/0", 64); wide > small+256 || wide > 4<<10 {
		t.Errorf("with options: %d bytes for 4 children, %d for 2^64", small, wide)
	}
}
