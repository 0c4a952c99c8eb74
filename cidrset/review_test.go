package cidrset_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// CS8, X5: the monotonic part of a clock's reading, which no snapshot can keep, has no
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

// CS8: a batch of neighbours that is released together is one run, whichever call
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

// X5: a receiver that panics loses the change it was called with and no other.
func TestPanicInTheReceiverLosesNoOtherChange(t *testing.T) {
	var seen []netip.Prefix
	bad := netip.MustParsePrefix("10.0.1.0/24")
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24, cidrset.OnChange(func(c cidrset.Change) {
		if c.Prefixes[0] == bad {
			panic("receiver")
		}
		seen = append(seen, c.Prefixes...)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		func() {
			defer func() { _ = recover() }()
			_, _ = set.AllocateNext()
		}()
	}
	if len(seen) != 3 || seen[1] != netip.MustParsePrefix("10.0.2.0/24") {
		t.Errorf("seen %v, want all but %v", seen, bad)
	}
}

type panicSource struct{}

func (panicSource) Uint64() uint64 { panic("source") }

// CS9: the lock is free again after the caller's code panicked.
func TestPanicInTheRandomSourceLeavesTheLock(t *testing.T) {
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24, cidrset.Random(panicSource{}))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = set.AllocateNext()
	}()
	if got := set.Stats().Used; got != 0 {
		t.Errorf("%d children taken", got)
	}
}
