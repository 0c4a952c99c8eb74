package cidrset

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what, op string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Op: op, Is: is, Field: field, Err: err})
	}
	set := func(opts ...Option) *Set {
		s, err := New(netip.MustParsePrefix("10.0.0.0/22"), 24, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refuseConstructors(t, set, add)
	refusePrefixes(set, add)
	refuseState(set, add)
	refusal.Check(t, "cidrset", rows)
}

type addRow func(call, what, op string, is error, field string, err error)

func refuseConstructors(t *testing.T, set func(...Option) *Set, add addRow) {
	p, mp := netip.MustParsePrefix, netip.MustParsePrefix("::ffff:10.0.0.0/104")
	pool := p("10.0.0.0/22")
	data, err := set().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := New(p("10.1.0.0/22"), 24)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := foreign.MarshalBinary()
	for what, in := range map[string]struct {
		pool  netip.Prefix
		bits  int
		opts  []Option
		field string
	}{
		"zero pool":    {netip.Prefix{}, 24, nil, "pool"},
		"host bits":    {p("10.0.0.1/22"), 24, nil, "pool"},
		"4-in-6":       {mp, 112, nil, "pool"},
		"shorter":      {pool, 21, nil, "childBits"},
		"too long":     {pool, 33, nil, "childBits"},
		"negative":     {pool, -1, nil, "childBits"},
		"too many":     {p("::/0"), 65, nil, "childBits"},
		"nil option":   {pool, 24, []Option{nil}, "opts[0]"},
		"two policies": {pool, 24, []Option{LowestFirst(), LowestFirst()}, "LowestFirst"},
		"no source":    {pool, 24, []Option{Random(nil)}, "Random"},
		"no clock":     {pool, 24, []Option{Cooldown(time.Hour, nil)}, "Cooldown"},
		"no function":  {pool, 24, []Option{OnChange(nil)}, "OnChange"},
	} {
		_, err := New(in.pool, in.bits, in.opts...)
		add("New", what, "new", ipalloc.ErrInvalid, in.field, err)
		_, err = Restore(in.pool, in.bits, data, in.opts...)
		add("Restore", what, "restore", ipalloc.ErrInvalid, in.field, err)
	}
	for i := range data {
		_, err := Restore(pool, 24, data[:i])
		add("Restore", "cut", "restore", ipalloc.ErrCorrupt, "", err)
	}
	_, err = Restore(pool, 24, other)
	add("Restore", "another pool", "restore", ipalloc.ErrMismatch, "", err)
}

func refusePrefixes(set func(...Option) *Set, add addRow) {
	p, mp := netip.MustParsePrefix, netip.MustParsePrefix("::ffff:10.0.0.0/104")
	for what, in := range map[string]struct {
		p     netip.Prefix
		is    error
		field string
	}{
		"zero prefix": {netip.Prefix{}, ipalloc.ErrInvalid, "prefix"},
		"host bits":   {p("10.0.0.1/24"), ipalloc.ErrInvalid, "prefix"},
		"4-in-6":      {mp, ipalloc.ErrInvalid, "prefix"},
		"elsewhere":   {p("10.1.0.0/24"), ipalloc.ErrOutOfRange, ""},
		"IPv6":        {p("fd00::/64"), ipalloc.ErrOutOfRange, ""},
		"longer":      {p("10.0.0.0/25"), ipalloc.ErrOutOfRange, ""},
		"larger":      {p("10.0.0.0/8"), ipalloc.ErrOutOfRange, ""},
	} {
		s := set()
		add("Set.Claim", what, "claim", in.is, in.field, s.Claim(in.p))
		if in.is == ipalloc.ErrInvalid || in.is == ipalloc.ErrOutOfRange && what != "larger" && what != "longer" {
			_, err := s.Occupy(in.p)
			add("Set.Occupy", what, "occupy", in.is, in.field, err)
			_, err = s.Release(in.p)
			add("Set.Release", what, "release", in.is, in.field, err)
		}
		_, err := s.ReleaseN([]netip.Prefix{p("10.0.0.0/24"), in.p})
		if what != "longer" && what != "larger" {
			add("Set.ReleaseN", what, "release", in.is, "prefixes[1]", err)
		}
		if what != "larger" {
			add("Set.SetCursor", what, "set cursor", in.is, in.field, s.SetCursor(in.p))
		}
	}
	add("Set.SetCursor", "larger", "set cursor", ipalloc.ErrOutOfRange, "", set().SetCursor(p("10.0.0.0/8")))
}

func refuseState(set func(...Option) *Set, add addRow) {
	pool := netip.MustParsePrefix("10.0.0.0/22")
	cooling := func(op func(s *Set) error) error {
		s := set(Cooldown(time.Hour, time.Now))
		for _, p := range []netip.Prefix{pool} {
			_, _ = s.Occupy(p)
			_, _ = s.Release(p)
		}
		return op(s)
	}
	full := set()
	_, _ = full.Occupy(pool)
	add("Set.Claim", "taken", "claim", ipalloc.ErrOccupied, "", full.Claim(netip.MustParsePrefix("10.0.1.0/24")))
	for _, bits := range []int{-1, 0, 21, 25, 129} {
		_, err := set().AllocatePrefix(bits)
		add("Set.AllocatePrefix", "length", "allocate", ipalloc.ErrInvalid, "bits", err)
	}
	_, err := full.AllocatePrefix(24)
	add("Set.AllocatePrefix", "full", "allocate", ipalloc.ErrFull, "", err)
	_, err = full.AllocateNext()
	add("Set.AllocateNext", "full", "allocate", ipalloc.ErrFull, "", err)
	add("Set.AllocateN", "full", "allocate", ipalloc.ErrFull, "", set().AllocateN(make([]netip.Prefix, 5)))
	add("Set.AllocateNext", "cooling", "allocate", ipalloc.ErrCooling, "", cooling(func(s *Set) error { _, err := s.AllocateNext(); return err }))
	add("Set.AllocatePrefix", "cooling", "allocate", ipalloc.ErrCooling, "", cooling(func(s *Set) error { _, err := s.AllocatePrefix(23); return err }))
	add("Set.AllocateN", "cooling", "allocate", ipalloc.ErrCooling, "", cooling(func(s *Set) error { return s.AllocateN(make([]netip.Prefix, 2)) }))
	broken := set()
	broken.cursor = 5
	add("Set.Check", "a cursor beyond", "check", ipalloc.ErrCorrupt, "", broken.Check())
	_, err = full.MarshalBinary()
	add("Set.MarshalBinary", "never", "", nil, "", err)
}
