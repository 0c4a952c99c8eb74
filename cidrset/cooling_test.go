package cidrset_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
)

// CS6, CS8: free, cooling and taken children between each other.
func TestIterateAmongCooling(t *testing.T) {
	opt, _ := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 32, "10.0.0.0/32 10.0.0.2/31 10.0.0.6/31 10.0.0.15/32", opt)
	release(t, s, "10.0.0.0/32", 1)
	release(t, s, "10.0.0.2/32", 1)
	release(t, s, "10.0.0.7/32", 1)
	listed(t, "All", s.All(), "10.0.0.3/32 10.0.0.6/32 10.0.0.15/32")
	listed(t, "UsedPrefixes", s.UsedPrefixes(), "10.0.0.3/32 10.0.0.6/32 10.0.0.15/32")
	listed(t, "FreePrefixes", s.FreePrefixes(), "10.0.0.1/32 10.0.0.4/31 10.0.0.8/30 10.0.0.12/31 10.0.0.14/32")
	release(t, s, "10.0.0.0/28", 3)
	listed(t, "All", s.All(), "")
	listed(t, "UsedPrefixes", s.UsedPrefixes(), "")
}

// X1, CS8: a request that fails leaves cooling children where they are, although
// some have cooled long enough.
func TestAllocateThatFailsThawsNothing(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 30, "10.0.0.0/28", opt)
	release(t, s, "10.0.0.4/30", 1)
	clock.second += 10
	release(t, s, "10.0.0.0/30", 1)
	clock.second += 50 // the first has cooled, the second has not
	before := snapshot(t, s)
	_, err := s.Allocate(29)
	cools(t, err, 1070)
	_, err = s.Allocate(28)
	cools(t, err, 1070)
	if !bytes.Equal(before, snapshot(t, s)) {
		t.Fatal("the set has changed")
	}
	check(t, s)
	clock.second += 10
	if p, err := s.Allocate(29); err != nil || p != pfx("10.0.0.0/29") {
		t.Fatalf("Allocate(29) = %v, %v", p, err)
	}
	_, err = s.Allocate(29)
	refused(t, err, "allocate", cidrset.ErrFull, "10.0.0.0/28", "/29")
	check(t, s)
}

// CS8, CS10: Until is when the last of the children asked for has cooled, so that
// a caller who waits until then does not wait in vain; without so many, it is full.
func TestAllocateNSaysWhenEnoughHaveCooled(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 30, "10.0.0.0/29 10.0.0.12/30", opt)
	for _, p := range []string{"10.0.0.12/30", "10.0.0.0/30", "10.0.0.4/30"} {
		release(t, s, p, 1)
		clock.second += 10
	}
	before := snapshot(t, s)
	for _, c := range []struct {
		n     int
		until int64
	}{{2, 1060}, {3, 1070}, {4, 1080}} {
		cools(t, s.AllocateN(make([]netip.Prefix, c.n)), c.until)
	}
	err := s.AllocateN(make([]netip.Prefix, 5))
	refused(t, err, "allocate", cidrset.ErrFull, "5 children")
	if !bytes.Equal(before, snapshot(t, s)) {
		t.Fatal("the set has changed")
	}
	clock.second = 1070
	got := make([]netip.Prefix, 3)
	if err := s.AllocateN(got); err != nil || got[0] != pfx("10.0.0.8/30") || got[1] != pfx("10.0.0.12/30") || got[2] != pfx("10.0.0.0/30") {
		t.Fatalf("AllocateN gives %v, %v", got, err)
	}
	_, err = s.AllocateNext()
	cools(t, err, 1080)
}

// CS8: counts of a pool of 2^64, whole or in parts, do not wrap round to 0.
func TestCoolingCountsSaturate(t *testing.T) {
	const all = ^uint64(0)
	opt, _ := cooldown(60)
	s := newSet(t, "fd00::/64", 128, opt)
	occupy(t, s, "fd00::/128", 1)
	release(t, s, "fd00::/128", 1)
	occupy(t, s, "fd00::/64", all) // one of them was cooling
	release(t, s, "fd00::5/128", 1)
	if st := s.Stats(); st.Used != all || st.Cooling != 1 || st.Free != 0 || st.Capacity != all {
		t.Fatalf("one cooling: %+v", st)
	}
	release(t, s, "fd00::/64", all)
	if st := s.Stats(); st.Used != 0 || st.Cooling != all || st.Free != 0 {
		t.Fatalf("all cooling: %+v", st)
	}
	if s.Has(pfx("fd00::/64")) || s.HasAny(pfx("fd00::/64")) {
		t.Fatal("a cooling child is taken")
	}
	occupy(t, s, "fd00::7/128", 1)
	if !s.HasAny(pfx("fd00::/64")) || s.Has(pfx("fd00::/64")) {
		t.Fatal("HasAny and Has of one taken among 2^64 - 1 cooling")
	}
	occupy(t, s, "fd00::/64", all)

	plain := occupied(t, "fd00::/64", 128, "fd00::/64")
	if n, err := plain.ReleaseN(prefixes("fd00::/65 fd00::8000:0:0:0/65")); err != nil || n != all {
		t.Fatalf("ReleaseN of both halves = %d, %v", n, err)
	}
}
