package cidrset_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

// A batch is what as many single calls give, in that order, by every policy,
// round the end of the pool, across pages.
func TestAllocateNIsSingleCalls(t *testing.T) {
	for _, c := range []struct {
		pool string
		bits int
	}{{"10.0.0.0/28", 32}, {"10.0.0.0/24", 32}, {"10.0.0.0/19", 32}, {"fd00::/48", 61}} {
		for _, k := range kinds {
			rng := rand.New(rand.NewPCG(2, 5))
			one, many := newSet(t, c.pool, c.bits, k.options()...), newSet(t, c.pool, c.bits, k.options()...)
			n := one.Stats().Capacity
			for range 60 {
				p := randomPrefix(rng, one)
				if rng.IntN(2) == 0 {
					_, _ = one.Occupy(p)
					_, _ = many.Occupy(p)
				} else {
					_, _ = one.Release(p)
					_, _ = many.Release(p)
					k.wait()
				}
				size := rng.Uint64N(rng.Uint64N(n+2) + 1)
				got, want := make([]netip.Prefix, size), make([]netip.Prefix, 0, size)
				before := snapshot(t, many)
				err := many.AllocateN(got)
				if st := one.Stats(); size > st.Free+st.Cooling {
					if !errors.Is(err, ipalloc.ErrFull) || !bytes.Equal(before, snapshot(t, many)) {
						t.Fatalf("%s: AllocateN of %d with %+v: %v", k.name, size, st, err)
					}
					continue
				}
				for range size {
					p, err := one.AllocateNext()
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, p)
				}
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s: AllocateN(%d) gives %v, %v, want %v", k.name, size, got, err, want)
				}
				if !bytes.Equal(snapshot(t, one), snapshot(t, many)) {
					t.Fatalf("%s: the sets differ after a batch of %d", k.name, size)
				}
				check(t, many)
			}
		}
	}
}

// A batch of releases is all or nothing and one change; a prefix in it twice
// counts once.
func TestReleaseN(t *testing.T) {
	var told []cidrset.Change
	s := occupied(t, "10.0.0.0/22", 26, "10.0.0.0/22", cidrset.OnChange(func(c cidrset.Change) { told = append(told, c) }))
	told = nil
	ps := prefixes("10.0.0.0/26 10.0.1.0/24 10.0.0.0/26 10.0.1.64/26 10.0.0.128/26")
	if n, err := s.ReleaseN(ps); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if len(told) != 1 || told[0].Op != cidrset.OpRelease || !slices.Equal(told[0].Prefixes, ps) {
		t.Fatalf("told %v", told)
	}
	ps[0] = pfx("10.0.9.0/26") // the receiver's list is its own
	if told[0].Prefixes[0] != pfx("10.0.0.0/26") {
		t.Fatal("the caller's slice was given to the receiver")
	}
	if n, err := s.ReleaseN(ps[1:]); n != 0 || err != nil || len(told) != 1 {
		t.Fatal(n, err, told)
	}
	if n, err := s.ReleaseN(ps); n != 0 || !errors.Is(err, ipalloc.ErrOutOfRange) || len(told) != 1 {
		t.Fatal(n, err, told)
	}
	check(t, s)
	used(t, s, 10)
}
