package bench

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// BenchmarkPair gives back one child and takes the next, at a steady fill.
func BenchmarkPair(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		for _, f := range fills {
			b.Run("full="+f.name, func(b *testing.B) {
				c := churned(order, f.free)
				for b.Loop() {
					c.step()
				}
			})
		}
	})
}

// BenchmarkFar does the same with one free child at the far end.
func BenchmarkFar(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		f := newFar(pool4, order)
		for b.Loop() {
			f.step()
		}
	})
}

// BenchmarkFill takes children one by one until the set is full, and begins again
// with an empty one.
func BenchmarkFill(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		f := newFiller(order)
		for b.Loop() {
			f.take()
		}
	})
}

// BenchmarkFull asks a full set.
func BenchmarkFull(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		s, _ := newSet(order)
		must(s.Occupy(pool4))
		_, full := s.AllocateNext()
		for b.Loop() {
			if _, err := s.AllocateNext(); err != full || err == nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHas asks about children of a set that is half full.
func BenchmarkHas(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		s, win := loaded(order, 2, window)
		x := random(1)
		for b.Loop() {
			if !s.Has(win[x.below(windowBits)]) {
				b.Fatal("a child that was taken is not")
			}
		}
	})
}

// BenchmarkAll goes through the taken children of a set that is half full. It
// reports what one of them takes (ns/child).
func BenchmarkAll(b *testing.B) {
	for _, order := range []int{16, 20} {
		b.Run(size(order), func(b *testing.B) {
			s, _ := loaded(order, 2, 0)
			n := 0
			for b.Loop() {
				for range s.All() {
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/child")
		})
	}
}

// BenchmarkRange occupies and releases many children as one prefix.
func BenchmarkRange(b *testing.B) {
	const order = 24
	for _, part2 := range []int{6, 12, 20} {
		b.Run(fmt.Sprintf("%s/children=2^%d", size(order), part2), func(b *testing.B) {
			s, _ := newSet(order)
			p := partOf(part2)
			for b.Loop() {
				part(s, p, 1<<part2)
			}
		})
	}
}

// partOf returns a prefix of 2^order addresses of pool4.
func partOf(order int) netip.Prefix {
	return netip.PrefixFrom(netip.MustParseAddr("10.16.0.0"), 32-order)
}

// BenchmarkBatch takes 64 children in one call: until the set is full; or after
// having given back the 64 of before, half full. An operation is one child.
func BenchmarkBatch(b *testing.B) {
	b.Run("work=fill/size=2^20", func(b *testing.B) {
		f := newFiller(20)
		dst := make([]netip.Prefix, batch)
		b.ResetTimer()
		for i := 0; i < b.N; i += batch {
			f.takeN(dst)
		}
	})
	b.Run("work=pair/size=2^16/full=50", func(b *testing.B) {
		s, held := loaded(16, 2, batch)
		b.ResetTimer()
		for i := 0; i < b.N; i += batch {
			batchPair(s, held)
		}
	})
}

// batchPair gives back held and takes as many again.
func batchPair(s *cidrset.Set, held []netip.Prefix) {
	if _, err := s.ReleaseN(held); err != nil {
		panic(err)
	}
	if err := s.AllocateN(held); err != nil {
		panic(err)
	}
}

// BenchmarkMixed gives back a prefix and takes one of another length, /20 to /28.
func BenchmarkMixed(b *testing.B) {
	for _, live := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			m := newMixed(live)
			for b.Loop() {
				m.step()
			}
		})
	}
}

// BenchmarkStats asks for the counts, largest free space included, after each pair.
func BenchmarkStats(b *testing.B) {
	each(b, func(b *testing.B, order int) {
		c := churned(order, 100)
		c.s.Stats() // makes the summaries that the ones after it keep up
		for b.Loop() {
			c.step()
			if c.s.Stats().LargestFree < 0 {
				b.Fatal("nothing is free")
			}
		}
	})
}

// BenchmarkNew makes a set.
func BenchmarkNew(b *testing.B) {
	for _, c := range []struct {
		order int
		pool  netip.Prefix
	}{{16, pool4}, {24, pool4}, {40, pool6}, {64, pool6}} {
		b.Run(size(c.order), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cidrset.New(c.pool, c.pool.Bits()+c.order); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
