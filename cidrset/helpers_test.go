package cidrset_test

import (
	"errors"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

var (
	sinkPrefix netip.Prefix
	sinkCount  uint64
	sinkErr    error
)

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// prefixes parses a list of prefixes separated by spaces.
func prefixes(text string) (ps []netip.Prefix) {
	for _, f := range strings.Fields(text) {
		ps = append(ps, pfx(f))
	}
	return ps
}

func newSet(t testing.TB, pool string, bits int, opts ...cidrset.Option) *cidrset.Set {
	t.Helper()
	s, err := cidrset.New(pfx(pool), bits, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// occupied returns a set in which the listed prefixes are taken.
func occupied(t testing.TB, pool string, bits int, taken string, opts ...cidrset.Option) *cidrset.Set {
	t.Helper()
	s := newSet(t, pool, bits, opts...)
	for _, p := range prefixes(taken) {
		if _, err := s.Occupy(p); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// next takes the next child and wants it to be the given one.
func next(t testing.TB, s *cidrset.Set, want string) {
	t.Helper()
	p, err := s.AllocateNext()
	if err != nil || p != pfx(want) {
		t.Fatalf("AllocateNext() = %v, %v, want %s", p, err, want)
	}
	check(t, s)
}

// occupy and release want the given count.
func occupy(t testing.TB, s *cidrset.Set, p string, want uint64) {
	t.Helper()
	if n, err := s.Occupy(pfx(p)); err != nil || n != want {
		t.Fatalf("Occupy(%s) = %d, %v, want %d", p, n, err, want)
	}
	check(t, s)
}

func release(t testing.TB, s *cidrset.Set, p string, want uint64) {
	t.Helper()
	if n, err := s.Release(pfx(p)); err != nil || n != want {
		t.Fatalf("Release(%s) = %d, %v, want %d", p, n, err, want)
	}
	check(t, s)
}

func check(t testing.TB, s *cidrset.Set) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

func used(t testing.TB, s *cidrset.Set, want uint64) {
	t.Helper()
	if got := s.Stats().Used; got != want {
		t.Fatalf("%d children are used, want %d", got, want)
	}
}

// listed wants the sequence to give the listed prefixes.
func listed(t testing.TB, name string, seq iter.Seq[netip.Prefix], want string) {
	t.Helper()
	if got := slices.Collect(seq); !slices.Equal(got, prefixes(want)) {
		t.Fatalf("%s is %v, want %s", name, got, want)
	}
}

func snapshot(t testing.TB, s *cidrset.Set) []byte {
	t.Helper()
	data, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// refused wants err to be an *Error of the given operation and kind, and its text
// to name all the given words.
func refused(t testing.TB, err error, op string, kind error, words ...string) {
	t.Helper()
	var e *ipalloc.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) || e.Op != op {
		t.Fatalf("error is %v, want an *Error of %s that is %q", err, op, kind)
	}
	for _, w := range append(words, "cidrset: "+op) {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("error is %q, which does not say %q", err, w)
		}
	}
}

// cools wants err to say that children are cooling until the given second.
func cools(t testing.TB, err error, second int64) {
	t.Helper()
	refused(t, err, "allocate", ipalloc.ErrCooling)
	var e *ipalloc.Error
	errors.As(err, &e)
	if !e.Until.Equal(time.Unix(second, 0)) || errors.Is(err, ipalloc.ErrFull) {
		t.Fatalf("error is %v, want cooling until second %d", err, second)
	}
}

// A clock stands at a second until a test moves it.
type clock struct{ second int64 }

func (c *clock) now() time.Time { return time.Unix(c.second, 0) }

// cooldown returns an option and its clock, which starts at second 1000.
func cooldown(seconds int64) (cidrset.Option, *clock) {
	c := &clock{1000}
	return cidrset.Cooldown(time.Duration(seconds)*time.Second, c.now), c
}

// A kind is a combination of options. The clock of those that cool is shared and
// only goes forward.
type kind struct {
	name    string
	options func() []cidrset.Option
}

var (
	kindClock atomic.Int64
	kinds     = []kind{
		{"round robin", func() []cidrset.Option { return nil }},
		{"lowest first", func() []cidrset.Option { return []cidrset.Option{cidrset.LowestFirst()} }},
		{"random", func() []cidrset.Option { return []cidrset.Option{cidrset.Random(rand.NewPCG(1, 2))} }},
		{"cooldown", func() []cidrset.Option { return []cidrset.Option{cidrset.Cooldown(time.Minute, kindNow)} }},
		{"told", func() []cidrset.Option { return []cidrset.Option{cidrset.OnChange(func(cidrset.Change) {})} }},
		{"lowest first, cooldown, told", func() []cidrset.Option {
			return []cidrset.Option{cidrset.LowestFirst(), cidrset.Cooldown(time.Minute, kindNow), cidrset.OnChange(func(cidrset.Change) {})}
		}},
	}
)

func kindNow() time.Time { return time.Unix(kindClock.Load(), 0) }

// wait lets everything cool.
func (kind) wait() { kindClock.Add(60) }
