package bands

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// Zones of one band that touch or overlap become one, closed ones go first, static ones
// next; up to the last position of 2^64.
func TestMerge(t *testing.T) {
	const top = ^uint64(0)
	z := func(lo, hi uint64, b ID) Zone { return Zone{Span{lo, hi}, b} }
	for what, tt := range map[string]struct{ zones, want []Zone }{
		"none":           {nil, nil},
		"touching":       {[]Zone{z(0, 4, Dynamic), z(5, 9, Dynamic)}, []Zone{z(0, 9, Dynamic)}},
		"overlapping":    {[]Zone{z(0, 6, Static), z(3, 9, Static)}, []Zone{z(0, 9, Static)}},
		"apart":          {[]Zone{z(5, 9, Dynamic), z(0, 3, Dynamic)}, []Zone{z(0, 3, Dynamic), z(5, 9, Dynamic)}},
		"static first":   {[]Zone{z(0, 9, Dynamic), z(2, 3, Static)}, []Zone{z(0, 1, Dynamic), z(2, 3, Static), z(4, 9, Dynamic)}},
		"closed first":   {[]Zone{z(0, 9, Static), z(0, 9, Dynamic), z(4, 20, Closed)}, []Zone{z(0, 3, Static)}},
		"twice":          {[]Zone{z(1, 9, Dynamic), z(1, 9, Dynamic)}, []Zone{z(1, 9, Dynamic)}},
		"the last":       {[]Zone{z(7, top, Dynamic), z(top, top, Static)}, []Zone{z(7, top-1, Dynamic), z(top, top, Static)}},
		"the last again": {[]Zone{z(7, top, Dynamic), z(9, top, Dynamic)}, []Zone{z(7, top, Dynamic)}},
	} {
		if got := Merge(tt.zones); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", what, got, tt.want)
		}
	}
}

// A space of random zones against a list of all its positions: the bands, the picks of
// both kinds, runs, and the counts, with everything recomputed after each step.
func TestSpaceAgainstAList(t *testing.T) {
	const size = 70
	for seed := range seeds.Each(t, 300, 300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var zones []Zone
		for range rng.IntN(6) {
			lo := rng.Uint64N(size)
			zones = append(zones, Zone{Span{lo, min(lo+rng.Uint64N(30), size-1)}, ID(rng.IntN(3))})
		}
		s := New(size-1, Merge(zones))
		twin := &model.ServiceSet[uint64]{Held: map[uint64]bool{}, NeverSpill: seed%2 == 0}
		for x := range uint64(size) {
			covered := map[ID]bool{}
			for _, z := range zones {
				covered[z.Band] = covered[z.Band] || z.Has(x)
			}
			b := Closed
			switch {
			case covered[Closed]:
			case covered[Static]:
				b = Static
			case covered[Dynamic]:
				b = Dynamic
			}
			twin.Members, twin.Band = append(twin.Members, x), append(twin.Band, int(b))
			if got := s.BandOf(x); got != b {
				t.Fatalf("%v: %d is %v, want %v", zones, x, got, b)
			}
		}
		for range 60 {
			x, u := rng.Uint64N(size), rng.Uint64()
			switch rng.IntN(4) {
			case 0:
				if s.Take(x) == twin.Held[x] {
					t.Fatal("take")
				}
				twin.Held[x] = true
			case 1:
				if s.Drop(x) != twin.Held[x] {
					t.Fatal("drop")
				}
				delete(twin.Held, x)
			case 2:
				n := rng.Uint64N(8)
				k, ok := s.Share(n, !twin.NeverSpill)
				run, _, fits := twin.Run(int(n), u)
				if ok != fits {
					t.Fatalf("%v: room for %d is %v", zones, n, ok)
				}
				got := make([]uint64, n)
				for _, part := range []struct {
					b   ID
					dst []uint64
				}{{Dynamic, got[:k]}, {Static, got[k:]}} {
					if bd := s.Band(part.b); ok && len(part.dst) > 0 {
						s.TakeRun(part.b, bd.At(Scale(u, bd.Size)), part.dst)
					}
				}
				if ok && !slices.Equal(got, run) {
					t.Fatalf("%v: %v, want %v", zones, got, run)
				}
			}
			if err := s.Check(Merge(zones)); err != nil {
				t.Fatal(err)
			}
			choice := twin.Choose()
			got, b := s.Next(u, twin.NeverSpill)
			if int(b) != choice || b != Closed && got != twin.Pick(choice, u) {
				t.Fatalf("%v: next is %d, %v", zones, got, b)
			}
			for _, b := range []ID{Static, Dynamic} {
				if free := s.Band(b).Free(); free > 0 {
					if got, want := s.FreeAt(s.Band(b), Scale(u, free)), twin.PickFree(int(b), u); got != want {
						t.Fatalf("%v: %v free of %v, want %v", zones, got, b, want)
					}
				}
			}
		}
	}
}
