package cidrset

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/bitmap"
)

// X7: each thing that is derived, broken by hand, is found.
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
		{"previous is", func(s *Set) { s.cooling.runs[s.cooling.tail].prev = none }},
		{"ready before", func(s *Set) { s.cooling.runs[s.cooling.head].until = time.Unix(9999, 0) }},
		{"not in the index", func(s *Set) { s.cooling.starts.Clear(2) }},
		{"not in the index", func(s *Set) { delete(s.cooling.at, 8) }},
		{"2 runs, 1 in the index", func(s *Set) { delete(s.cooling.at, 2) }},
		{"is not one", func(s *Set) { s.cooling.runs[s.cooling.head].hi = 1 }},
		{"is not one", func(s *Set) { s.cooling.runs[s.cooling.head].hi = 16 }},
		{"overlaps", func(s *Set) { s.cooling.runs[s.cooling.head].hi = 8 }},
		{"2 runs, 2 in the index, 3 starts", func(s *Set) { s.cooling.starts.Set(5) }},
		{"2 runs, 3 in the index, 2 starts", func(s *Set) { s.cooling.at[5] = 0 }},
		{"cooling:", func(s *Set) { s.cooling.set.Set(5) }},
		{"cooling:", func(s *Set) { s.cooling.set.Clear(8) }},
		{"cooling:", func(s *Set) { s.cooling.tail = s.cooling.head }},
		{"cooling:", func(s *Set) { s.cooling.head = none }},
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
		var e *Error
		if err == nil || !errors.As(err, &e) || e.Op != "check" || !strings.Contains(err.Error(), c.word) {
			t.Errorf("Check() = %v, want %q", err, c.word)
		}
	}
}
