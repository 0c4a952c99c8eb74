package cidrset

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
)

// Each thing that is derived, broken by hand, is found.
func TestCheckFinds(t *testing.T) {
	for _, c := range []struct {
		word string
		harm func(*Set)
	}{
		{"want 15", func(s *Set) { s.busy = *bitmap.New(8) }},
		{"want 15", func(s *Set) { s.busy = *bitmap.New(0) }},
		{"cursor 16 beyond 15", func(s *Set) { s.cursor = 16 }},
		{"cursor", func(s *Set) { s.cursor = math.MaxUint64 }},
		{"is free", func(s *Set) { s.busy.Clear(3) }},
		{"is free", func(s *Set) { s.busy.ClearRange(0, 15) }},
		{"which disagree", func(s *Set) { s.cooling.runs[s.cooling.runs[0].prev].prev = 0 }},
		{"ready before", func(s *Set) { s.cooling.runs[s.cooling.runs[0].next].until = time.Unix(9999, 0) }},
		{"not in the index", func(s *Set) { s.cooling.starts.Clear(2) }},
		{"not in the index", func(s *Set) { delete(s.cooling.at, 8) }},
		{"not in the index", func(s *Set) { delete(s.cooling.at, 2) }},
		{"is not one", func(s *Set) { s.cooling.runs[s.cooling.runs[0].next].hi = 1 }},
		{"is not one", func(s *Set) { s.cooling.runs[s.cooling.runs[0].next].hi = 16 }},
		{"overlaps", func(s *Set) { s.cooling.runs[s.cooling.runs[0].next].hi = 8 }},
		{"2 runs, 2 in the index, 3 starts", func(s *Set) { s.cooling.starts.Set(5) }},
		{"2 runs, 3 in the index, 2 starts", func(s *Set) { s.cooling.at[5] = 0 }},
		{"0 spare ones of 3", func(s *Set) { s.cooling.runs = append(s.cooling.runs, run{}) }},
		{"1 spare ones of 2", func(s *Set) { s.cooling.spare = s.cooling.runs[0].prev }},
		{"cooling:", func(s *Set) { s.cooling.taken.Clear(5) }},
		{"cooling:", func(s *Set) { s.cooling.taken.Set(8) }},
		{"which disagree", func(s *Set) { s.cooling.runs[0].prev = s.cooling.runs[0].next }},
		{"cooling:", func(s *Set) { s.cooling.runs[0].next = 0 }},
		{"hot", func(s *Set) { s.cooling.edge = 0 }},
		{"hot", func(s *Set) { s.cooling.edge = s.cooling.runs[0].prev }},
		{"hot", func(s *Set) { s.cooling.hot.Clear(0) }},
	} {
		s, err := New(netip.MustParsePrefix("10.0.0.0/28"), 32, Cooldown(time.Minute, func() time.Time { return time.Unix(1000, 0) }))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"10.0.0.0/28", "10.0.0.2/31", "10.0.0.8/31"} { // [2, 3] and [8, 9] cool
			q := netip.MustParsePrefix(p)
			if p == "10.0.0.0/28" {
				_, err = s.Occupy(q)
			} else {
				_, err = s.Release(q)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		c.harm(s)
		err = s.Check()
		var e *ipalloc.Error
		if err == nil || !errors.As(err, &e) || e.Op != "check" || !strings.Contains(err.Error(), c.word) {
			t.Errorf("Check() = %v, want %q", err, c.word)
		}
	}
}

// Many runs that have cooled are looked at in portions, with the lock given back in
// between, and only once; a clock that is set back is followed in the same way.
func TestCooledRunsAreSeenInPortions(t *testing.T) {
	const runs = 3*ripenStep + 1
	now := time.Unix(1000, 0)
	s, err := New(netip.MustParsePrefix("10.0.0.0/16"), 32, Cooldown(time.Minute, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	s.take(0, 2*runs)
	for i := range uint64(runs) {
		s.cooling.release(2*i, 2*i, now)
	}
	for _, moved := range []time.Duration{time.Minute, -time.Second, time.Hour} {
		now = now.Add(moved)
		portions := 0
		for !s.cooling.ripen(now) {
			portions++
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if portions != 3 || !s.cooling.ripen(now) {
			t.Errorf("%d portions for %d runs of %d each", portions, runs, ripenStep)
		}
	}
}

// A queue that runs are put into and taken out of for long does not grow.
func TestCoolingReusesRuns(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(netip.MustParsePrefix("10.0.0.0/24"), 32, Cooldown(time.Minute, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Occupy(s.Pool()); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		lo := s.codec.PrefixOf(uint64(i%32*8), 29)
		if _, err := s.Release(lo); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Occupy(s.codec.Prefix(uint64(i%32*8 + 3))); err != nil { // cuts it in two
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		for range 7 {
			if _, err := s.AllocateNext(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(s.cooling.runs) - 1; n > 2 {
		t.Fatalf("%d runs were needed, want 2", n)
	}
}

// Neighbours that are released at the same time are one run, also one by one;
// those of another time are not.
func TestCoolingJoinsNeighbours(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(netip.MustParsePrefix("10.0.0.0/24"), 32, Cooldown(time.Minute, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Occupy(s.Pool()); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		child uint64
		later time.Duration
		runs  int
	}{{10, 0, 1}, {11, 0, 1}, {12, 0, 1}, {14, 0, 2}, {13, 0, 3}, {9, 0, 4}, {10, 0, 4}, {15, 0, 5}, {16, time.Second, 6}, {17, 0, 6}, {255, 0, 7}, {0, 0, 8}} {
		now = now.Add(c.later)
		if _, err := s.Release(s.codec.Prefix(c.child)); err != nil {
			t.Fatal(err)
		}
		if n := len(s.cooling.at); n != c.runs {
			t.Fatalf("after release %d there are %d runs, want %d", i, n, c.runs)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// The times kept are those that a snapshot keeps.
func TestCoolingKeepsNoMonotonicReading(t *testing.T) {
	s, err := New(netip.MustParsePrefix("10.0.0.0/30"), 32, Cooldown(time.Hour, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.AllocateNext()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Release(p); err != nil {
		t.Fatal(err)
	}
	if until := s.cooling.runs[0].until; until != until.Round(0) {
		t.Fatalf("%v has a monotonic reading", until)
	}
}
