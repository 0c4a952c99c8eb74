package bitmap_test

import "testing"

// Inner nodes of several levels that come and go in another order each
// time, their order summaries asked for in between.
func TestNodesOfEveryLevelDoNotAllocate(t *testing.T) {
	b := newSet(top)
	b.Set(0) // never empty
	type span struct{ lo, hi uint64 }
	var spans []span
	for i, order := range []uint64{13, 19, 25} {
		lo := uint64(i+1)<<50 + 7
		spans = append(spans, span{lo, lo + 1<<order})
	}
	turn := 0
	zeroAlloc(t, "ranges of three levels", func() {
		for range 50 {
			for i := range spans {
				s := spans[(i+turn)%len(spans)]
				b.SetRange(s.lo, s.hi)
				b.BestFit(3)
			}
			for i := range spans {
				s := spans[(i*2+turn)%len(spans)]
				b.ClearRange(s.lo, s.hi)
				b.BestFit(3)
			}
			turn++
		}
	})
	if err := b.Check(); err != nil || b.Count() != 1 {
		t.Fatalf("%v, count %d", err, b.Count())
	}
}
