package cidrset_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The smallest space that fits, lowest first; the large ones stay whole.
func TestAllocateBestFit(t *testing.T) {
	type step struct {
		do   string // "take", "free" or "occupy"
		bits int
		p    string
	}
	for _, steps := range [][]step{
		{ // large nodes get /23, small ones /26
			{"take", 26, "10.0.0.0/26"}, {"take", 23, "10.0.2.0/23"}, {"take", 26, "10.0.0.64/26"}, {"take", 23, "10.0.4.0/23"},
			{"take", 25, "10.0.0.128/25"}, {"take", 26, "10.0.1.0/26"}, {"take", 23, "10.0.6.0/23"},
			{"take", 23, "10.0.8.0/23"}, {"take", 21, ""}, {"take", 22, "10.0.12.0/22"}, {"take", 24, "10.0.10.0/24"},
			{"free", 0, "10.0.0.0/26"}, {"take", 26, "10.0.0.0/26"}, // a hole of its size comes before lower parts of a larger one
			{"free", 0, "10.0.2.0/23"}, {"free", 0, "10.0.6.0/23"}, {"take", 24, "10.0.11.0/24"}, {"take", 24, "10.0.2.0/24"},
			{"take", 23, "10.0.6.0/23"}, {"take", 23, ""}, {"take", 24, "10.0.3.0/24"},
		},
		{ // the whole, then nothing
			{"take", 20, "10.0.0.0/20"}, {"take", 26, ""}, {"take", 20, ""}, {"free", 0, "10.0.0.0/20"}, {"take", 20, "10.0.0.0/20"},
		},
		{ // a smaller space that is higher comes before a larger one that is lower
			{"occupy", 0, "10.0.8.0/24"}, {"take", 26, "10.0.9.0/26"}, {"occupy", 0, "10.0.15.192/26"}, {"take", 26, "10.0.9.64/26"},
			{"take", 25, "10.0.9.128/25"}, {"take", 26, "10.0.15.128/26"}, {"take", 25, "10.0.15.0/25"}, {"take", 21, "10.0.0.0/21"},
		},
		{ // two halves that are not one block
			{"occupy", 0, "10.0.0.0/22"}, {"occupy", 0, "10.0.12.0/22"}, {"take", 21, ""}, {"take", 22, "10.0.4.0/22"}, {"take", 22, "10.0.8.0/22"},
		},
	} {
		s := newSet(t, "10.0.0.0/20", 26)
		cursor := s.Cursor()
		for i, st := range steps {
			switch st.do {
			case "occupy":
				occupy(t, s, st.p, capacity(26-pfx(st.p).Bits()))
			case "free":
				release(t, s, st.p, capacity(26-pfx(st.p).Bits()))
			default:
				largest := s.Stats().LargestFree
				p, err := s.AllocatePrefix(st.bits)
				if st.p == "" {
					refused(t, err, "allocate", ipalloc.ErrFull, "10.0.0.0/20")
					if largest >= 0 && largest <= st.bits {
						t.Fatalf("step %d: full, but LargestFree is %d", i, largest)
					}
					break
				}
				if err != nil || p != pfx(st.p) {
					t.Fatalf("step %d: AllocatePrefix(%d) = %v, %v, want %s", i, st.bits, p, err, st.p)
				}
				if largest < 0 || largest > st.bits {
					t.Fatalf("step %d: %v, but LargestFree was %d", i, p, largest)
				}
			}
			check(t, s)
			if s.Cursor() != cursor {
				t.Fatalf("step %d moves the cursor to %v", i, s.Cursor())
			}
		}
	}
}

// Mixed sizes for long: nothing overlaps, everything is aligned, and a request
// fails only if no aligned space of its length is free.
func TestAllocateMixedSizes(t *testing.T) {
	for _, c := range []struct {
		pool string
		bits int
	}{{"10.0.0.0/16", 26}, {"fd00::/48", 60}, {"fd00:0:0:8000::/60", 70}} {
		rng := rand.New(rand.NewPCG(3, 7))
		s := newSet(t, c.pool, c.bits)
		cursor := s.Cursor()
		var live []netip.Prefix
		full := 0
		for range 3000 {
			if len(live) > 0 && rng.IntN(9) < 4 {
				i := rng.IntN(len(live))
				release(t, s, live[i].String(), capacity(c.bits-live[i].Bits()))
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				continue
			}
			bits := c.bits - rng.IntN(rng.IntN(c.bits-s.Pool().Bits())+1)
			p, err := s.AllocatePrefix(bits)
			if err != nil {
				full++
				for free := range s.FreePrefixes() {
					if free.Bits() <= bits || !errors.Is(err, ipalloc.ErrFull) {
						t.Fatalf("AllocatePrefix(%d) fails with %v, and %v is free", bits, err, free)
					}
				}
				continue
			}
			for _, q := range live {
				if q.Overlaps(p) {
					t.Fatalf("%v overlaps %v", p, q)
				}
			}
			if p.Bits() != bits || p != p.Masked() || !s.Pool().Contains(p.Addr()) || !s.Has(p) {
				t.Fatalf("AllocatePrefix(%d) gives %v", bits, p)
			}
			live = append(live, p)
		}
		if full == 0 || s.Cursor() != cursor {
			t.Fatalf("%s: full %d times, the cursor at %v", c.pool, full, s.Cursor())
		}
		check(t, s)
	}
}

// As long as the pool is filled with small prefixes only by Allocate, a large
// one is there while its size is free at all: 2^k small ones fill one space of their
// sum before they break the next.
func TestAllocateKeepsLargeOnes(t *testing.T) {
	s := newSet(t, "10.0.0.0/16", 28)
	for i := range 1 << 12 {
		if _, err := s.AllocatePrefix(28); err != nil {
			t.Fatal(err)
		}
		left := 1<<12 - 1 - i
		want := -1
		for k := range 13 {
			if left >= 1<<k {
				want = 28 - k
			}
		}
		if got := s.Stats().LargestFree; got != want {
			t.Fatalf("after %d, the largest free is /%d, want /%d", i+1, got, want)
		}
	}
	check(t, s)
}

// The same set serves cursor and best fit, and neither overlaps the other.
func TestAllocateBesideCursor(t *testing.T) {
	for _, k := range kinds {
		s := newSet(t, "10.0.0.0/18", 26, k.options()...)
		var live []netip.Prefix
		for i := range 400 {
			var p netip.Prefix
			var err error
			if i%3 == 0 {
				p, err = s.AllocateNext()
			} else {
				p, err = s.AllocatePrefix(26 - i%4)
			}
			if errors.Is(err, ipalloc.ErrFull) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, p)
		}
		seen := occupied(t, "10.0.0.0/18", 26, "")
		for _, p := range live {
			occupy(t, seen, p.String(), capacity(26-p.Bits()))
		}
		used(t, s, seen.Stats().Used)
		check(t, s)
	}
}
