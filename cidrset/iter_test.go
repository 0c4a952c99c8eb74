package cidrset_test

import (
	"iter"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// A set of 2^64 children is listed by what is in it, and its counts saturate.
func TestIterateAndCountWide(t *testing.T) {
	for _, c := range []struct {
		pool, first, last, high string
		bits                    int
	}{
		{"fd00::/64", "fd00::/128", "fd00::ffff:ffff:ffff:ffff/128", "fd00::8000:0:0:0/65", 128},
		{"::/0", "::/64", "ffff:ffff:ffff:ffff::/64", "8000::/1", 64},
		{"fd00::/32", "fd00::/96", "fd00:0:ffff:ffff:ffff:ffff::/96", "fd00:0:8000::/33", 96},
	} {
		const all = ^uint64(0)
		s := occupied(t, c.pool, c.bits, c.first+" "+c.last)
		listed(t, "All", s.All(), c.first+" "+c.last)
		if st := s.Stats(); st != (cidrset.Stats{Capacity: all, Used: 2, Free: all - 1, LargestFree: s.Pool().Bits() + 2}) {
			t.Fatalf("two taken: %+v", st)
		}
		n := 0
		var prev netip.Prefix
		for p := range s.FreePrefixes() { // 1, 2, 4 … 2^62, 2^62 … 1
			if n++; prev.IsValid() && (!prev.Addr().Less(p.Addr()) || prev.Overlaps(p)) {
				t.Fatalf("%v after %v", p, prev)
			}
			prev = p
		}
		if n != 126 {
			t.Fatalf("%d free prefixes, want 126", n)
		}
		for p := range s.FreeChildren() {
			if p == pfx(c.first) {
				t.Fatal("a taken child is free")
			}
			break
		}
		release(t, s, c.first, 1)
		if st := s.Stats(); st.Used != 1 || st.Free != all || st.LargestFree != s.Pool().Bits()+1 {
			t.Fatalf("one taken: %+v", st)
		}
		occupy(t, s, c.high, 1<<63-1)
		if st := s.Stats(); st.Used != 1<<63 || st.Free != 1<<63 || st.LargestFree != s.Pool().Bits()+1 {
			t.Fatalf("half taken: %+v", st)
		}
		listed(t, "UsedPrefixes", s.UsedPrefixes(), c.high)
		occupy(t, s, c.pool, 1<<63)
		if st := s.Stats(); st != (cidrset.Stats{Capacity: all, Used: all, LargestFree: -1}) {
			t.Fatalf("full: %+v", st)
		}
		listed(t, "UsedPrefixes", s.UsedPrefixes(), c.pool)
		listed(t, "FreePrefixes", s.FreePrefixes(), "")
		listed(t, "FreeChildren", s.FreeChildren(), "")
		release(t, s, c.last, 1)
		if st := s.Stats(); st != (cidrset.Stats{Capacity: all, Used: all, Free: 1, LargestFree: c.bits}) {
			t.Fatalf("one free: %+v", st)
		}
		listed(t, "FreeChildren", s.FreeChildren(), c.last)
		release(t, s, c.pool, all)
		listed(t, "FreePrefixes", s.FreePrefixes(), c.pool)
	}
}

// The body of a loop may call anything, and leave.
func TestIterateAndChange(t *testing.T) {
	for _, k := range kinds {
		s := occupied(t, "10.0.0.0/20", 32, "10.0.0.0/21", k.options()...)
		for name, seq := range map[string]iter.Seq[netip.Prefix]{
			"All": s.All(), "FreeChildren": s.FreeChildren(), "UsedPrefixes": s.UsedPrefixes(), "FreePrefixes": s.FreePrefixes(),
		} {
			n := 0
			var prev netip.Prefix
			for p := range seq {
				if prev.IsValid() && !prev.Addr().Less(p.Addr()) {
					t.Fatalf("%s, %s: %v after %v", k.name, name, p, prev)
				}
				prev = p
				before := s.Has(p)
				if _, err := s.Occupy(p); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Release(p); err != nil {
					t.Fatal(err)
				}
				if before {
					_, _ = s.Occupy(p)
				}
				k.wait()
				got, err := s.AllocateNext()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Release(got); err != nil {
					t.Fatal(err)
				}
				k.wait()
				for range s.All() {
					break
				}
				_ = s.Stats()
				check(t, s)
				if n++; n == 70 { // beyond a word
					break
				}
			}
		}
	}
	// Freeing all while walking: each child is seen once, in order.
	s := occupied(t, "10.0.0.0/20", 32, "10.0.0.0/20")
	var seen []netip.Prefix
	for p := range s.All() {
		seen = append(seen, p)
		release(t, s, p.String(), 1)
	}
	if len(seen) != 4096 || !slices.IsSortedFunc(seen, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
		t.Fatalf("%d seen", len(seen))
	}
	// What is taken ahead of the loop is seen, what is behind is not.
	s = occupied(t, "10.0.0.0/16", 24, "10.0.64.0/24")
	listed(t, "All", func(yield func(netip.Prefix) bool) {
		for p := range s.All() {
			if p == pfx("10.0.64.0/24") {
				_, _ = s.Occupy(pfx("10.0.0.0/24"))
				_, _ = s.Occupy(pfx("10.0.200.0/24"))
			}
			if !yield(p) {
				return
			}
		}
	}, "10.0.64.0/24 10.0.200.0/24")
}
