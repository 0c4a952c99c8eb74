package bench

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/bitmap"
)

// A side is something that can be done n times, as one half of a comparison.
type side func(n int)

// steps makes a side of a step.
func steps(step func()) side {
	return func(n int) {
		for range n {
			step()
		}
	}
}

// run does n steps.
func (c *churn[S]) run(n int) {
	for range n {
		c.step()
	}
}

// pair is the side of BenchmarkPair.
func pair(order int, free uint64) side { return churned(order, free).run }

// pair50 is what most others are compared with.
func pair50() side { return pair(16, 2) }

// fill is the side of BenchmarkFill.
func fill() side { return steps(newFiller(16).take) }

// rangeOf is the side of BenchmarkRange.
func rangeOf(order int) side {
	s, _ := newSet(24)
	p := partOf(order)
	return steps(func() { part(s, p, 1<<order) })
}

// rangeOf6 is the side of BenchmarkIPv6Range.
func rangeOf6(order int) side {
	s, codec := newSet6(64)
	p := codec.PrefixOf(1<<60, codec.ChildBits()-order)
	return steps(func() { part(s, p, 1<<order) })
}

// batches is the side of BenchmarkBatch/work=pair: once is one child.
func batches() side {
	s, held := loaded(16, 2, batch)
	return func(n int) {
		for i := 0; i < n; i += batch {
			batchPair(s, held)
		}
	}
}

// batchFill is the side of BenchmarkBatch/work=fill: once is one child.
func batchFill() side {
	f := newFiller(16)
	dst := make([]netip.Prefix, batch)
	return func(n int) {
		for i := 0; i < n; i += batch {
			f.takeN(dst)
		}
	}
}

// full is the side of BenchmarkFull.
func full(order int) side {
	s, _ := newSet(order)
	must(s.Occupy(pool4))
	_, full := s.AllocateNext()
	return steps(func() {
		if _, err := s.AllocateNext(); err != full || err == nil {
			panic(err)
		}
	})
}

// asked is the side of BenchmarkHas.
func asked() side {
	s, win := loaded(16, 2, window)
	x := random(1)
	return steps(func() {
		if !s.Has(win[x.below(windowBits)]) {
			panic("a child that was taken is not")
		}
	})
}

// stats is the side of BenchmarkStats, one pair included.
func stats(order int) side {
	c := churned(order, 100)
	c.s.Stats() // makes the summaries that the ones after it keep up
	return steps(func() {
		c.step()
		if c.s.Stats().LargestFree < 0 {
			panic("nothing is free")
		}
	})
}

// query is the side of a benchmark of package bitmap: f at ordinals anywhere.
func query(order int, free uint64, f func(*bitmap.Bitmap, uint64) (uint64, bool)) side {
	m, at := loadedBitmap(order, free)
	x := random(1)
	return func(n int) {
		sum := uint64(0)
		for range n {
			got, _ := f(m, at[x.below(windowBits)])
			sum += got
		}
		sink = sum
	}
}

func rank(m *bitmap.Bitmap, x uint64) (uint64, bool) { return m.Rank(x), true }

func selected(m *bitmap.Bitmap, x uint64) (uint64, bool) { return m.Select(x / 2) }

// releases is ReleaseN of prefixes of many children and of one, which Occupy takes
// again: once is one call.
func releases() side {
	s, held := loaded(16, 2, 4)
	held = append(held, netip.MustParsePrefix("10.16.0.0/18"), netip.MustParsePrefix("10.17.0.0/23"))
	for _, p := range held {
		must(s.Occupy(p))
	}
	return steps(func() {
		must(s.ReleaseN(held))
		for _, p := range held {
			must(s.Occupy(p))
		}
	})
}
