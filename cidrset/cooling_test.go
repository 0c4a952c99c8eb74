package cidrset_test

import (
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

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
