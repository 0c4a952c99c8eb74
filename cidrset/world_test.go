package cidrset_test

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/test/model"
)

// A world is one state of a small pool: for each child whether it is taken, and the
// cooling ones in their order.
type world struct {
	order  int
	taken  uint
	cold   []int
	cursor int
}

var worldPool = pfx("10.0.0.0/28")

// worlds returns every state of a pool of 2^order children, cursors apart.
func worlds(order int, cooling bool) (out []world) {
	n := 1 << order
	var more func(w world, used uint)
	more = func(w world, used uint) {
		for taken := range uint(1) << n {
			if taken&used == 0 {
				w := w
				w.taken = taken
				out = append(out, w)
			}
		}
		for i := 0; cooling && i < n; i++ {
			if used>>i&1 == 0 {
				more(world{order: order, cold: append(slices.Clone(w.cold), i)}, used|1<<i)
			}
		}
	}
	more(world{order: order}, 0)
	return out
}

// A twinned world is the state on both sides, to be copied for every operation.
type twinned struct {
	world
	data []byte // a snapshot, made by hand
	m    model.CidrSet
}

// twin builds the state on both sides. Child i of the cooling ones has cooled at
// second 1060 + i.
func (w world) twin(t testing.TB) twinned {
	c := model.CidrConfig{Pool: worldPool, Bits: 28 + w.order, Cooldown: time.Minute}
	busy := w.taken
	for _, i := range w.cold {
		busy |= 1 << i
	}
	m := model.NewCidrSet(c)
	m.Cursor = uint64(w.cursor)
	all := newSet(t, worldPool.String(), c.Bits)
	for i := range 1 << w.order {
		child := c.Block(uint64(i), 0)
		if busy>>i&1 != 0 {
			_, _ = all.Occupy(child)
			_, _ = m.Occupy(child)
		}
	}
	var runs []cold
	for k, i := range w.cold {
		until := int64(1060 + k)
		runs = append(runs, cold{lo: uint64(i), second: until})
		if _, f := m.Release(c.Block(uint64(i), 0), time.Unix(until-60, 0)); f.Kind != "" {
			t.Fatal(f)
		}
	}
	return twinned{w, craft(worldPool, c.Bits, uint64(w.cursor), bitmapOf(t, all), runs...), *m}
}

// copies returns a set and its twin of the given policy, at second 0 without
// Cooldown.
func (w twinned) copies(t testing.TB, policy int, now *time.Time) (*cidrset.Set, *model.CidrSet) {
	m := w.m
	taken := *m.Taken // the twin replaces its runs and changes none
	m.Taken, m.Cold = &taken, slices.Clone(m.Cold)
	m.Policy = policy
	var opts []cidrset.Option
	if m.Cooldown = 0; now.Unix() != 0 {
		m.Cooldown = time.Minute
		opts = append(opts, cidrset.Cooldown(time.Minute, func() time.Time { return *now }))
	}
	switch policy {
	case model.CidrLowest:
		opts = append(opts, cidrset.LowestFirst())
	case model.CidrRandom:
		opts = append(opts, cidrset.Random(rand.NewPCG(7, 7)))
		m.Draw = rand.New(rand.NewPCG(7, 7)).Uint64N
	}
	s, err := cidrset.Restore(w.m.Pool, w.m.Bits, w.data, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s, &m
}

// An operation answers in words on either side.
type operation struct {
	name string
	set  func(*cidrset.Set) (any, error)
	twin func(*model.CidrSet, time.Time) (any, model.CidrFailure)
}

// operations returns every operation with every operand that there is in a pool.
func operations(order int) (ops []operation) {
	add := func(name string, set func(*cidrset.Set) (any, error), twin func(*model.CidrSet, time.Time) (any, model.CidrFailure)) {
		ops = append(ops, operation{name, set, twin})
	}
	add("AllocateNext", func(s *cidrset.Set) (any, error) { return s.AllocateNext() },
		func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) { return m.AllocateNext(now) })
	for n := range 1<<order + 2 {
		add(fmt.Sprint("AllocateN ", n), func(s *cidrset.Set) (any, error) {
			dst := make([]netip.Prefix, n)
			err := s.AllocateN(dst)
			return fmt.Sprint(dst), err
		}, func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) {
			dst, f := m.AllocateN(n, now)
			return fmt.Sprint(dst), f
		})
	}
	for length := 27; length <= 29+order; length++ {
		add(fmt.Sprint("Allocate ", length), func(s *cidrset.Set) (any, error) { return s.AllocatePrefix(length) },
			func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) { return m.AllocatePrefix(length, now) })
	}
	for _, p := range blocks(order) {
		add(fmt.Sprint("Occupy ", p), func(s *cidrset.Set) (any, error) { return s.Occupy(p) },
			func(m *model.CidrSet, _ time.Time) (any, model.CidrFailure) { return m.Occupy(p) })
		add(fmt.Sprint("Claim ", p), func(s *cidrset.Set) (any, error) { return nil, s.Claim(p) },
			func(m *model.CidrSet, _ time.Time) (any, model.CidrFailure) { return nil, m.Claim(p) })
		add(fmt.Sprint("Release ", p), func(s *cidrset.Set) (any, error) { return s.Release(p) },
			func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) { return m.Release(p, now) })
		add(fmt.Sprint("Has ", p), func(s *cidrset.Set) (any, error) { return [2]bool{s.Has(p), s.HasAny(p)}, nil },
			func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) {
				return [2]bool{m.Has(p), m.HasAny(p)}, model.CidrFailure{}
			})
		last := netip.PrefixFrom(lastAddr(worldPool), p.Bits()).Masked()
		add(fmt.Sprint("ReleaseN ", last, p), func(s *cidrset.Set) (any, error) { return s.ReleaseN([]netip.Prefix{last, p}) },
			func(m *model.CidrSet, now time.Time) (any, model.CidrFailure) {
				return m.ReleaseN([]netip.Prefix{last, p}, now)
			})
	}
	return ops
}

// blocks returns every aligned prefix from twice the pool to half a child, and the
// pool's neighbour.
func blocks(order int) (out []netip.Prefix) {
	for length := 27; length <= min(29+order, 32); length++ {
		for a := worldPool.Masked().Addr(); worldPool.Contains(a); a = a.Next() {
			if p := netip.PrefixFrom(a, length); p == p.Masked() || length < 28 && a == worldPool.Addr() {
				out = append(out, p.Masked())
			}
		}
	}
	return append(out, pfx("10.0.0.16/28"), pfx("fd00::/28"))
}

var failures = map[string]error{
	model.CidrFull: ipalloc.ErrFull, model.CidrCooling: ipalloc.ErrCooling, model.CidrRange: ipalloc.ErrOutOfRange,
	model.CidrMisaligned: ipalloc.ErrOutOfRange, model.CidrBits: ipalloc.ErrInvalid,
	model.CidrOccupied: ipalloc.ErrOccupied,
}

// Every state of a pool of up to 4 children, cooling in
// every order, with every cursor and policy and at three times, times every operation.
// What is left is compared by draining both sides.
func TestSmallWorld(t *testing.T) {
	for order := range 3 {
		ops := operations(order)
		for i, w := range worlds(order, true) {
			if order == 2 && (testing.Short() || invariant.Enabled) && i%13 != 0 {
				continue
			}
			for w.cursor = range 1 << order {
				w := w.twin(t)
				for policy := range 3 {
					seconds := []int64{1000, 1060, 2000}
					if len(w.cold) == 0 { // without Cooldown, then with it
						seconds = []int64{0, 1000}
					}
					for _, second := range seconds {
						for _, op := range ops {
							inWorld(t, w, policy, second, op)
						}
					}
				}
			}
		}
	}
}

func inWorld(t *testing.T, w twinned, policy int, second int64, op operation) {
	now := time.Unix(second, 0)
	s, m := w.copies(t, policy, &now)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s in %+v at %d by policy %d: %s", op.name, w.world, second, policy, fmt.Sprintf(format, args...))
	}
	got, err := op.set(s)
	want, f := op.twin(m, now)
	if f.Kind == "" && (err != nil || got != want) {
		fail("got %v, %v, want %v", got, err, want)
	}
	if f.Kind != "" {
		var e *ipalloc.Error
		if !errors.Is(err, failures[f.Kind]) || !errors.As(err, &e) || !e.Until.Equal(f.Until) || e.InTheWay != f.At {
			fail("got %v, %v, want %+v", got, err, f)
		}
	}
	if err := s.Check(); err != nil {
		fail("%v", err)
	}
	taken, cooling, free := m.Runs()
	st := s.Stats()
	if st.Used != model.SumRuns(taken) || st.Cooling != model.SumRuns(cooling) || st.Free != model.SumRuns(free) {
		fail("%+v, want %v %v %v", st, taken, cooling, free)
	}
	for range 2 {
		for {
			p, err := s.AllocateNext()
			q, f := m.AllocateNext(now)
			if p != q || (err == nil) != (f.Kind == "") {
				fail("draining gives %v, %v, want %v, %v", p, err, q, f)
			}
			if err != nil {
				break
			}
		}
		now = time.Unix(5000, 0)
	}
}

// Every state of a pool of 16 children times every operation,
// with what comes out told by a few bits.
func TestSixteenChildren(t *testing.T) {
	s := newSet(t, "10.0.0.0/28", 32)
	c := model.CidrConfig{Pool: worldPool, Bits: 32}
	var child []netip.Prefix
	for i := range uint64(16) {
		child = append(child, c.Block(i, 0))
	}
	step := 1
	if testing.Short() || invariant.Enabled {
		step = 37
	}
	for pattern := 0; pattern < 1<<16; pattern += step {
		_, _ = s.Release(worldPool)
		fill(t, s, child, uint16(pattern))
		twin := model.NewCidrSet(c)
		for i := range child {
			if pattern>>i&1 == 1 {
				_, _ = twin.Occupy(child[i])
			}
		}
		// Next from a cursor that is anywhere.
		at := slices.Index(child, s.Cursor())
		p, err := s.AllocateNext()
		if free := bits.RotateLeft16(^uint16(pattern), -at); free == 0 {
			if !errors.Is(err, ipalloc.ErrFull) {
				t.Fatalf("%016b: AllocateNext is %v, %v", pattern, p, err)
			}
		} else {
			want := child[(at+bits.TrailingZeros16(free))%16]
			if err != nil || p != want {
				t.Fatalf("%016b: AllocateNext from %d is %v, %v, want %v", pattern, at, p, err, want)
			}
			release(t, s, p.String(), 1)
		}
		for length := 28; length <= 32; length++ {
			want, f := twin.AllocatePrefix(length, time.Time{})
			_, _ = twin.Release(want, time.Time{}) // refused if there was none
			got, err := s.AllocatePrefix(length)
			if got != want || (err == nil) != (f.Kind == "") {
				t.Fatalf("%016b: AllocatePrefix(%d) is %v, %v, want %v", pattern, length, got, err, want)
			}
			if err == nil {
				_, _ = s.Release(got)
			}
		}
		for length := 28; length <= 32; length++ {
			size := 1 << (32 - length)
			for lo := 0; lo < 16; lo += size {
				p := netip.PrefixFrom(child[lo].Addr(), length)
				mask := uint16((1<<size - 1) << lo)
				in := uint64(bits.OnesCount16(uint16(pattern) & mask))
				if s.Has(p) != (in == uint64(size)) || s.HasAny(p) != (in > 0) {
					t.Fatalf("%016b: Has(%v) is %v, HasAny %v", pattern, p, s.Has(p), s.HasAny(p))
				}
				if n, err := s.Occupy(p); err != nil || n != uint64(size)-in || !s.Has(p) {
					t.Fatalf("%016b: Occupy(%v) = %d, %v", pattern, p, n, err)
				}
				if n, err := s.Release(p); err != nil || n != uint64(size) || s.HasAny(p) {
					t.Fatalf("%016b: Release(%v) = %d, %v", pattern, p, n, err)
				}
				fill(t, s, child, uint16(pattern)&mask)
			}
		}
		if got := s.Stats().Used; got != uint64(bits.OnesCount16(uint16(pattern))) {
			t.Fatalf("%016b: %d used", pattern, got)
		}
		check(t, s)
	}
}

func fill(t *testing.T, s *cidrset.Set, child []netip.Prefix, pattern uint16) {
	for ; pattern != 0; pattern &= pattern - 1 {
		if n, err := s.Occupy(child[bits.TrailingZeros16(pattern)]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
}
