package cidrset_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// Free, cooling and taken children between each other.
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

// A request that fails leaves cooling children where they are, although
// some have cooled long enough.
func TestAllocatePrefixThatFailsChangesNothing(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 30, "10.0.0.0/28", opt)
	release(t, s, "10.0.0.4/30", 1)
	clock.second += 10
	release(t, s, "10.0.0.0/30", 1)
	clock.second += 50 // the first has cooled, the second has not
	before := snapshot(t, s)
	_, err := s.AllocatePrefix(29)
	cools(t, err, 1070)
	_, err = s.AllocatePrefix(28)
	cools(t, err, 1070)
	if !bytes.Equal(before, snapshot(t, s)) {
		t.Fatal("the set has changed")
	}
	check(t, s)
	clock.second += 10
	if p, err := s.AllocatePrefix(29); err != nil || p != pfx("10.0.0.0/29") {
		t.Fatalf("AllocatePrefix(29) = %v, %v", p, err)
	}
	_, err = s.AllocatePrefix(29)
	refused(t, err, "allocate", ipalloc.ErrFull, "10.0.0.0/28", "/29")
	check(t, s)
}

// Until is when the last of the children asked for has cooled, so that
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
	refused(t, err, "allocate", ipalloc.ErrFull, "5 children")
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

// Counts of a pool of 2^64, whole or in parts, do not wrap round to 0.
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
	for _, s := range []*cidrset.Set{plain, s} { // in 65 parts, a child last
		_, _ = s.Occupy(s.Pool())
		parts := []netip.Prefix{pfx("fd00::8000:0:0:0/65")}
		for bits := 66; bits <= 128; bits++ {
			b := [16]byte{0: 0xfd}
			binary.BigEndian.PutUint64(b[8:], 1<<(128-bits))
			parts = append(parts, netip.PrefixFrom(netip.AddrFrom16(b), bits))
		}
		parts = append(parts, pfx("fd00::/128"))
		if n, err := s.ReleaseN(parts); err != nil || n != all || s.Stats().Used != 0 {
			t.Fatalf("ReleaseN of all in parts = %d, %v", n, err)
		}
		check(t, s)
	}
}

// Never-used children first, then the released ones, oldest first, none before
// its time.
func TestCooldownOrder(t *testing.T) {
	opt, clock := cooldown(60)
	s := newSet(t, "10.0.0.0/29", 32, opt)
	for range 6 {
		if _, err := s.AllocateNext(); err != nil {
			t.Fatal(err)
		}
	}
	release(t, s, "10.0.0.4/32", 1) // at 1000
	clock.second++
	release(t, s, "10.0.0.1/32", 1) // at 1001
	release(t, s, "10.0.0.0/32", 1) // after it, though lower
	clock.second++
	release(t, s, "10.0.0.2/31", 2) // at 1002
	clock.second = 5000             // all have cooled
	next(t, s, "10.0.0.6/32")
	next(t, s, "10.0.0.7/32")
	cursor := s.Cursor()
	for _, want := range []string{"10.0.0.4/32", "10.0.0.1/32", "10.0.0.0/32", "10.0.0.2/32", "10.0.0.3/32"} {
		if s.Has(pfx(want)) || s.HasAny(pfx(want)) {
			t.Fatalf("%s is taken while it cools", want)
		}
		next(t, s, want)
	}
	if s.Cursor() != cursor {
		t.Fatal("a cooled child moves the cursor")
	}
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) { // nothing cools: bare
		t.Fatal(err)
	}
	release(t, s, "10.0.0.5/32", 1)
	_, err := s.AllocateNext()
	cools(t, err, 5060)
	clock.second = 5059
	_, err = s.AllocateNext()
	cools(t, err, 5060)
	clock.second = 5060 // not before, but then
	next(t, s, "10.0.0.5/32")
	release(t, s, "10.0.0.5/32", 1)
	release(t, s, "10.0.0.5/32", 0) // again: it goes on cooling as it did
	clock.second += 30
	release(t, s, "10.0.0.0/29", 7)
	_, err = s.AllocateNext()
	cools(t, err, 5120)
	if st := s.Stats(); st != (cidrset.Stats{Capacity: 8, Cooling: 8, LargestFree: -1}) {
		t.Fatalf("%+v", st)
	}
}

// Occupy takes cooling children at once, out of the middle of a run too,
// and counts them; the others go on cooling in their order.
func TestOccupyCoolingOnes(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 32, "10.0.0.0/28", opt)
	release(t, s, "10.0.0.0/29", 8)
	clock.second += 10
	release(t, s, "10.0.0.8/29", 8)
	occupy(t, s, "10.0.0.2/32", 1)                         // splits a run
	occupy(t, s, "10.0.0.0/32", 1)                         // its start
	occupy(t, s, "10.0.0.7/32", 1)                         // its end
	occupy(t, s, "10.0.0.8/30", 4)                         // the start of another
	occupy(t, s, "10.0.0.4/30", 3)                         // one of them was taken
	occupy(t, s, "10.0.0.14/31", 2)                        // an end
	listed(t, "FreePrefixes", s.FreePrefixes(), "")        // none of it is free
	if st := s.Stats(); st.Used != 12 || st.Cooling != 4 { // 1, 3, 12, 13
		t.Fatalf("%+v", st)
	}
	_, err := s.AllocateNext()
	cools(t, err, 1060)
	clock.second = 1065
	next(t, s, "10.0.0.1/32")
	next(t, s, "10.0.0.3/32")
	_, err = s.AllocateNext()
	cools(t, err, 1070)
	occupy(t, s, "10.0.0.12/32", 1)
	clock.second = 1070
	next(t, s, "10.0.0.13/32")
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
	// All of it, over runs and free ones between them.
	release(t, s, "10.0.0.3/32", 1)
	release(t, s, "10.0.0.8/29", 8)
	clock.second = 2000
	if p, err := s.AllocatePrefix(29); err != nil || p != pfx("10.0.0.8/29") {
		t.Fatal(p, err)
	}
	release(t, s, "10.0.0.12/30", 4)
	occupy(t, s, "10.0.0.0/28", 5)
}

// A clock that is set back makes children cool longer, never shorter, and keeps
// their order.
func TestCooldownClockSetBack(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/30", 32, "10.0.0.0/30", opt)
	release(t, s, "10.0.0.3/32", 1)
	clock.second = 100
	release(t, s, "10.0.0.0/32", 1) // not before the one it follows
	_, err := s.AllocateNext()
	cools(t, err, 1060)
	clock.second = 1059
	_, err = s.AllocateNext()
	cools(t, err, 1060)
	clock.second = 1060
	next(t, s, "10.0.0.3/32")
	next(t, s, "10.0.0.0/32")
	// With an empty queue there is nothing to follow.
	clock.second = 200
	release(t, s, "10.0.0.1/32", 1)
	_, err = s.AllocateNext()
	cools(t, err, 260)
}

// A batch over children that are fresh and children that have cooled.
func TestAllocateNFreshAndCooled(t *testing.T) {
	opt, clock := cooldown(60)
	s := newSet(t, "10.0.0.0/28", 32, opt)
	if err := s.AllocateN(make([]netip.Prefix, 14)); err != nil {
		t.Fatal(err)
	}
	release(t, s, "10.0.0.9/32", 1)
	clock.second += 10
	release(t, s, "10.0.0.0/30", 4)
	clock.second = 1065
	got := make([]netip.Prefix, 3)
	if err := s.AllocateN(got); err != nil || got[0] != pfx("10.0.0.14/32") || got[1] != pfx("10.0.0.15/32") || got[2] != pfx("10.0.0.9/32") {
		t.Fatal(got, err)
	}
	check(t, s)
	clock.second = 1070
	if err := s.AllocateN(got); err != nil || got[0] != pfx("10.0.0.0/32") || got[2] != pfx("10.0.0.2/32") {
		t.Fatal(got, err)
	}
	if err := s.AllocateN(got[:2]); !errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling) {
		t.Fatal(err)
	}
	next(t, s, "10.0.0.3/32")
}

// Allocate of a length takes what was never used; only if that does not
// fit is what has cooled taken in, all of it, and free from then on.
func TestAllocatePrefixOfCooled(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 32, "10.0.0.0/29", opt)
	release(t, s, "10.0.0.0/30", 4)
	clock.second += 30
	release(t, s, "10.0.0.4/31", 2)
	clock.second = 1075
	if p, err := s.AllocatePrefix(30); err != nil || p != pfx("10.0.0.8/30") { // fresh, though the other fits as well
		t.Fatal(p, err)
	}
	if p, err := s.AllocatePrefix(30); err != nil || p != pfx("10.0.0.12/30") {
		t.Fatal(p, err)
	}
	if st := s.Stats(); st.Cooling != 6 || st.Free != 0 {
		t.Fatalf("%+v", st)
	}
	if p, err := s.AllocatePrefix(31); err != nil || p != pfx("10.0.0.0/31") {
		t.Fatal(p, err)
	}
	if st := s.Stats(); st.Cooling != 4 || st.Free != 0 || st.LargestFree != -1 {
		t.Fatalf("%+v", st)
	}
	check(t, s)
	_, err := s.AllocatePrefix(30)
	cools(t, err, 1090)
	if p, err := s.AllocatePrefix(31); err != nil || p != pfx("10.0.0.2/31") {
		t.Fatal(p, err)
	}
	_, err = s.AllocatePrefix(32)
	cools(t, err, 1090)
	clock.second = 1090
	if p, err := s.AllocatePrefix(32); err != nil || p != pfx("10.0.0.4/32") {
		t.Fatal(p, err)
	}
	next(t, s, "10.0.0.5/32")
	_, err = s.AllocatePrefix(32)
	refused(t, err, "allocate", ipalloc.ErrFull, "/32")
	check(t, s)
}

// Releasing 2^20 children is one run, not 2^20 entries, and so is its snapshot.
func TestCooldownHoldsRuns(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/8", 28, "10.0.0.0/8", opt)
	empty := len(snapshot(t, s))
	before := heap()
	release(t, s, "10.0.0.0/8", 1<<20)
	if grown := heap() - before; grown > 64<<10 {
		t.Fatalf("releasing 2^20 children takes %d bytes", grown)
	}
	if grown := len(snapshot(t, s)) - empty; grown > 64 {
		t.Fatalf("releasing 2^20 children makes the snapshot %d bytes longer", grown)
	}
	clock.second = 1060
	next(t, s, "10.0.0.0/28")
	next(t, s, "10.0.0.16/28")
	_, err := s.AllocatePrefix(8)
	refused(t, err, "allocate", ipalloc.ErrFull)
	if p, err := s.AllocatePrefix(9); err != nil || p != pfx("10.128.0.0/9") {
		t.Fatal(p, err)
	}
	check(t, s)
}

// The last child of 2^64 and the first are no neighbours.
func TestCoolingAtTheEndOfUint64(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "fd00::/64", 128, "fd00::/64", opt)
	release(t, s, "fd00::ffff:ffff:ffff:ffff/128", 1)
	release(t, s, "fd00::/128", 1)
	release(t, s, "fd00::1/128", 1)
	clock.second = 1060
	next(t, s, "fd00::ffff:ffff:ffff:ffff/128")
	if p, err := s.AllocatePrefix(127); err != nil || p != pfx("fd00::/127") {
		t.Fatal(p, err)
	}
	if _, err := s.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) {
		t.Fatal(err)
	}
}

// A release that has nothing to give back looks no further than its prefix.
func TestReleaseAmongCoolingIsConstant(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted under the tag invariants only")
	}
	opt, _ := cooldown(60)
	s := newSet(t, "10.0.0.0/8", 28, opt)
	for i := range 4000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i << 5)}), 28)
		if _, err := s.Occupy(p); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Release(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"10.0.0.0/28", "10.0.0.16/28", "10.0.0.0/26"} {
		before := invariant.Steps()
		n, err := s.Release(pfx(p))
		if steps := invariant.Steps() - before; n != 0 || err != nil || steps > 50 {
			t.Fatalf("Release(%s) = %d, %v takes %d steps", p, n, err, steps)
		}
	}
}

// The price of a release is what it cuts: each run once.
func TestReleaseOfManyRunsIsLinear(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted under the tag invariants only")
	}
	steps := func(n int) uint64 { // of releasing n children that are not neighbours
		opt, _ := cooldown(60)
		s := newSet(t, "10.0.0.0/8", 28, opt)
		for i := range n {
			if _, err := s.Occupy(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i << 5)}), 28)); err != nil {
				t.Fatal(err)
			}
		}
		before := invariant.Steps()
		freed, err := s.Release(s.Pool())
		taken := invariant.Steps() - before
		if err != nil || freed != uint64(n) {
			t.Fatal(freed, err)
		}
		check(t, s)
		return taken
	}
	few, many := steps(500), steps(4000)
	if many > 16*few {
		t.Fatalf("500 runs take %d steps, 4000 take %d", few, many)
	}
}

// A request that does not fit says what is free only if waiting does not help: not while children cool, and not of a full set.
func TestReasonOfARequestThatDoesNotFit(t *testing.T) {
	opt, _ := cooldown(60)
	s := occupied(t, "10.0.0.0/30", 32, "10.0.0.0/31 10.0.0.2/32", opt) // 10.0.0.3 is free
	if _, err := s.Release(pfx("10.0.0.2/32")); err != nil {
		t.Fatal(err)
	}
	_, err := s.AllocatePrefix(31)
	if want := "cidrset: allocate /31 in 10.0.0.0/30: cooling until 1970-01-01T00:17:40Z"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %q", err, want)
	}
	for _, s := range []*cidrset.Set{occupied(t, "10.0.0.0/30", 32, "10.0.0.0/30", opt), occupied(t, "10.0.0.0/30", 32, "10.0.0.0/30")} {
		_, err := s.AllocatePrefix(31)
		if want := "cidrset: allocate /31 in 10.0.0.0/30: full"; err == nil || err.Error() != want {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// A request that does not fit looks at a bounded number of runs under one lock, and at
// none that an earlier one has looked at: 2^17 children have cooled, and no two of them
// are neighbours.
func TestRequestThatDoesNotFitIsBounded(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/10", 28, "10.0.0.0/10", opt)
	all := slices.Collect(s.All())
	for i := 0; i < len(all); i += 2 {
		if _, err := s.Release(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	clock.second += 60
	_, err := s.AllocatePrefix(27)
	refused(t, err, "allocate", ipalloc.ErrFull, "largest is /28")
	before := invariant.Steps()
	for range 100 {
		_, err = s.AllocatePrefix(27)
		refused(t, err, "allocate", ipalloc.ErrFull, "largest is /28")
	}
	if steps := invariant.Steps() - before; steps > 100*20 { // 0 without the tag invariants
		t.Errorf("100 requests that do not fit take %d steps", steps)
	}
	clock.second -= 30 // every run is cooling again
	_, err = s.AllocatePrefix(28)
	cools(t, err, 1060)
	clock.second += 30
	if p, err := s.AllocatePrefix(28); err != nil || p != all[0] {
		t.Fatal(p, err)
	}
	next(t, s, all[2].String())
}

// AllocatePrefix takes no more of the cooled children than it returns: the others are
// allocated oldest first.
func TestAllocatePrefixLeavesOtherCooledChildren(t *testing.T) {
	opt, clock := cooldown(60)
	s := occupied(t, "10.0.0.0/28", 32, "10.0.0.0/28", opt)
	for _, p := range []string{"10.0.0.9/32", "10.0.0.4/31", "10.0.0.1/32"} {
		release(t, s, p, capacity(32-pfx(p).Bits()))
		clock.second++
	}
	clock.second += 60
	if p, err := s.AllocatePrefix(31); err != nil || p != pfx("10.0.0.4/31") {
		t.Fatal(p, err)
	}
	next(t, s, "10.0.0.9/32")
	next(t, s, "10.0.0.1/32")
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The clock is called without the lock and once for each call.
func TestCooldownClockIsTheCallers(t *testing.T) {
	calls := 0
	var s *cidrset.Set
	s = newSet(t, "10.0.0.0/28", 32, cidrset.Cooldown(time.Minute, func() time.Time {
		calls++
		if s != nil {
			_ = s.Stats() // would deadlock
		}
		return time.Unix(1000, 0)
	}))
	for i, f := range []func() error{
		func() error { _, err := s.AllocateNext(); return err },
		func() error { return s.AllocateN(make([]netip.Prefix, 3)) },
		func() error { _, err := s.AllocatePrefix(30); return err },
		func() error { _, err := s.Release(pfx("10.0.0.0/32")); return err },
		func() error { _, err := s.ReleaseN(prefixes("10.0.0.1/32 10.0.0.2/31")); return err },
	} {
		calls = 0
		if err := f(); err != nil || calls != 1 {
			t.Fatalf("call %d: the clock is read %d times: %v", i, calls, err)
		}
	}
}

// part in the order of the queue.
func TestCooldownIgnoresTheMonotonicClock(t *testing.T) {
	start := time.Now() // has a monotonic reading
	now := start
	set, err := cidrset.New(netip.MustParsePrefix("192.0.2.0/28"), 32,
		cidrset.Cooldown(time.Minute, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Occupy(set.Pool()); err != nil {
		t.Fatal(err)
	}
	_, _ = set.Release(netip.MustParsePrefix("192.0.2.3/32"))
	_, err = set.AllocatePrefix(32)
	var e *ipalloc.Error
	if !errors.As(err, &e) || e.Until != e.Until.Round(0) || !e.Until.Equal(start.Add(time.Minute)) {
		t.Fatalf("%v: Until carries a monotonic reading or is not %v", err, start.Add(time.Minute))
	}
}

// released it.
func TestReleaseNOfNeighboursIsOneRun(t *testing.T) {
	now := time.Unix(100, 0)
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/8"), 24,
		cidrset.Cooldown(time.Minute, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]netip.Prefix, 1<<12)
	if err := set.AllocateN(batch); err != nil {
		t.Fatal(err)
	}
	if freed, err := set.ReleaseN(batch); freed != 1<<12 || err != nil {
		t.Fatal(freed, err)
	}
	if err := set.Check(); err != nil {
		t.Fatal(err)
	}
	data, err := set.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 100 {
		t.Errorf("a snapshot of one run of cooling children is %d bytes", len(data))
	}
}
