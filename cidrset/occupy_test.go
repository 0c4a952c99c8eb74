package cidrset_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// Prefixes that a method has to refuse, for the pools of the next test.
var (
	bad = []netip.Prefix{
		{}, netip.PrefixFrom(netip.Addr{}, 24), netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), -1),
		netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33), netip.PrefixFrom(netip.MustParseAddr("fd00::"), 129),
		netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 24), netip.PrefixFrom(netip.MustParseAddr("10.0.1.0"), 16),
		netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 8), netip.PrefixFrom(netip.MustParseAddr("fd00::1"), 64),
		netip.PrefixFrom(netip.MustParseAddr("fd00::1"), 48), netip.PrefixFrom(netip.MustParseAddr("fd00:0:0:1::"), 32),
		netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 120), netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 128),
		netip.PrefixFrom(netip.MustParseAddr("::ffff:0:0"), 96), netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 24),
	}
	foreign = prefixes("9.255.255.0/24 10.1.0.0/24 10.1.0.0/16 10.1.0.1/32 11.0.0.0/8 128.0.0.0/1 " +
		"fcff:ffff:ffff:ffff::/64 fd00:0:1::/64 fd00:0:1::/48 fd00:0:1::/128 fe00::/7 ::/96 2001:db8::/32")
)

// Every method refuses, by type, and nothing changes, not a byte.
func TestRefusalsChangeNothing(t *testing.T) {
	for _, pool := range []struct {
		pool, taken, alien string
		bits               int
		small, large       []netip.Prefix
	}{
		{"10.0.0.0/16", "10.0.0.0/24 10.0.7.0/24 10.0.64.0/18", "fd00::/48 ::/0 fd00::/64", 24,
			prefixes("10.0.0.0/25 10.0.7.255/32 10.0.9.128/25"), prefixes("10.0.0.0/15 0.0.0.0/0 10.0.0.0/8")},
		{"fd00::/48", "fd00::/64 fd00:0:0:7::/64 fd00:0:0:8000::/49", "10.0.0.0/16 0.0.0.0/0 10.0.0.0/24", 64,
			prefixes("fd00::/65 fd00:0:0:7::1/128"), prefixes("fd00::/47 ::/0 fc00::/7")},
	} {
		for _, k := range kinds {
			s := occupied(t, pool.pool, pool.bits, pool.taken, k.options()...)
			if _, err := s.AllocateNext(); err != nil { // a cursor that is not 0
				t.Fatal(err)
			}
			release(t, s, prefixes(pool.taken)[0].String(), 1)
			before := snapshot(t, s)
			unchanged := func(what string) {
				t.Helper()
				if !bytes.Equal(before, snapshot(t, s)) {
					t.Fatalf("%s: %s changes the set", k.name, what)
				}
				check(t, s)
			}
			refuse := func(p netip.Prefix, occupies bool, kind error) {
				t.Helper()
				words := []string{pool.pool}
				if p != (netip.Prefix{}) {
					words = append(words, p.String())
				}
				if occupies {
					n, err := s.Occupy(p)
					refused(t, err, "occupy", kind, words...)
					about(t, err, s.Pool(), p)
					if n != 0 {
						t.Fatalf("Occupy(%v) = %d", p, n)
					}
					if s.HasAny(p) {
						t.Fatalf("HasAny(%v)", p)
					}
				}
				n, err := s.Release(p)
				refused(t, err, "release", kind, words...)
				about(t, err, s.Pool(), p)
				if n != 0 {
					t.Fatalf("Release(%v) = %d", p, n)
				}
				for _, ps := range [][]netip.Prefix{{p}, {s.Pool(), p}, {p, s.Pool()}, {s.Pool(), p, s.Pool()}} {
					n, err := s.ReleaseN(ps)
					refused(t, err, "release", kind, words...)
					about(t, err, s.Pool(), p)
					if n != 0 {
						t.Fatalf("ReleaseN(%v) = %d", ps, n)
					}
				}
				if !slices.Contains(pool.small, p) && s.Has(p) {
					t.Fatalf("Has(%v)", p)
				}
				unchanged(p.String())
			}
			for _, p := range bad {
				refuse(p, true, ipalloc.ErrInvalid)
			}
			for _, p := range slices.Concat(foreign, prefixes(pool.alien)) {
				refuse(p, true, ipalloc.ErrOutOfRange)
			}
			for _, p := range pool.small {
				refuse(p, false, ipalloc.ErrOutOfRange)
			}
			for _, p := range pool.large {
				refuse(p, false, ipalloc.ErrOutOfRange)
			}
			for _, bits := range []int{math.MinInt, -1, 0, s.Pool().Bits() - 1, pool.bits + 1, 32, 33, 128, 129, math.MaxInt} {
				if bits >= s.Pool().Bits() && bits <= pool.bits {
					continue
				}
				p, err := s.AllocatePrefix(bits)
				refused(t, err, "allocate", ipalloc.ErrInvalid, pool.pool, fmt.Sprintf("/%d", bits))
				about(t, err, s.Pool(), netip.Prefix{})
				if p.IsValid() {
					t.Fatalf("AllocatePrefix(%d) gives %v", bits, p)
				}
				unchanged("Allocate")
			}
			if err := s.AllocateN(make([]netip.Prefix, 1<<16+1)); !errors.Is(err, ipalloc.ErrFull) {
				t.Fatal(err)
			}
			unchanged("AllocateN")
			if p, err := s.AllocatePrefix(s.Pool().Bits()); err == nil || p.IsValid() {
				t.Fatal("the pool is free")
			}
			unchanged("Allocate")
			if err := s.AllocateN(nil); err != nil {
				t.Fatal(err)
			}
			if n, err := s.ReleaseN(nil); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			unchanged("an empty batch")
		}
	}
}

// about wants the error to carry the pool and the prefix.
func about(t *testing.T, err error, pool, p netip.Prefix) {
	t.Helper()
	var e *ipalloc.Error
	if !errors.As(err, &e) || e.Pool != pool || e.Prefix != p || !e.Until.IsZero() {
		t.Fatalf("error %v carries %v and %v", err, e.Pool, e.Prefix)
	}
}
