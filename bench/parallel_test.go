package bench

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// together runs f(0) to f(g-1) at once and waits for all.
func together(g int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range g {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(i)
		}()
	}
	wg.Wait()
}

// parallel runs a benchmark with 2 and with 32 goroutines. They are a number of
// the benchmark and not of the machine, unlike those of RunParallel.
func parallel(b *testing.B, f func(b *testing.B, g int)) {
	for _, g := range []int{2, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", g), func(b *testing.B) { f(b, g) })
	}
}

// share returns how many of n operations goroutine i of g does.
func share(n, i, g int) int { return n*(i+1)/g - n*i/g }

// BenchmarkParallelPair is BenchmarkPair from several goroutines on one set.
func BenchmarkParallelPair(b *testing.B) {
	const order = 16
	for _, f := range fills[:2] {
		b.Run(size(order)+"/full="+f.name, func(b *testing.B) {
			parallel(b, func(b *testing.B, g int) {
				s, taken := loaded(order, f.free, g*own)
				b.ResetTimer()
				together(g, func(i int) {
					c := churn[*cidrset.Set]{s: s, win: taken[i*own : (i+1)*own], bits: ownBits, random: random(i)}
					for range share(b.N, i, g) {
						c.step()
					}
				})
			})
		})
	}
}

// BenchmarkParallelBatch is BenchmarkBatch from several goroutines on one set.
func BenchmarkParallelBatch(b *testing.B) {
	b.Run("work=pair/size=2^16/full=50", func(b *testing.B) {
		parallel(b, func(b *testing.B, g int) {
			s, taken := loaded(16, 2, g*batch)
			b.ResetTimer()
			together(g, func(i int) {
				for n := 0; n < share(b.N, i, g); n += batch {
					batchPair(s, taken[i*batch:(i+1)*batch])
				}
			})
		})
	})
}

// BenchmarkParallelHas asks from several goroutines about a set that one more
// churns.
func BenchmarkParallelHas(b *testing.B) {
	const order = 16
	b.Run(size(order)+"/full=50", func(b *testing.B) {
		parallel(b, func(b *testing.B, g int) {
			s, taken := loaded(order, 2, window+own)
			asked := taken[window:]
			c := churn[*cidrset.Set]{s: s, win: taken[:window:window], bits: windowBits}
			stop := make(chan struct{})
			var writer sync.WaitGroup
			writer.Add(1)
			go func() {
				defer writer.Done()
				for {
					select {
					case <-stop:
						return
					default:
						c.step()
					}
				}
			}()
			b.ResetTimer()
			together(g, func(i int) { has(s, asked, share(b.N, i, g), random(i)) })
			b.StopTimer()
			close(stop)
			writer.Wait()
		})
	})
}

func has(s *cidrset.Set, asked []netip.Prefix, n int, x random) {
	for range n {
		if !s.Has(asked[x.below(ownBits)]) {
			panic("a child that is never released is free")
		}
	}
}
