package fuzz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// cidrPools are the pools a trace may choose from: one child, a few, a page, several
// pages, up to 2^64, both families, across the halves of an IPv6 address, and those
// that hold ::ffff:0:0/96.
var cidrPools = []struct {
	pool string
	bits int
}{
	{"10.0.0.1/32", 32}, {"10.0.0.0/31", 32}, {"192.0.2.0/30", 32}, {"10.0.0.0/28", 32}, {"10.0.0.0/20", 26},
	{"0.0.0.0/0", 7}, {"10.0.0.0/16", 24}, {"fd00::1/128", 128}, {"::/0", 4}, {"fd00:0:0:f0::/60", 68},
	{"::fff0:0:0/92", 100}, {"fd00::/52", 64}, {"10.16.0.0/12", 24},
	{"10.0.0.0/8", 25}, {"10.0.0.0/8", 32}, {"0.0.0.0/0", 32}, {"fd00::/32", 64}, {"fd00::/48", 80},
	{"2001:db8::/56", 76}, {"::/0", 64}, {"::/64", 128}, {"fd00:0:0:7::/64", 128},
}

const cidrOps = 18

// cidrOperands is how many operands an operation of a random trace has; that of more
// prefixes reads what follows as well.
var cidrOperands = [cidrOps]int{2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2, 8: 2, 9: 2, 10: 19, 11: 2, 12: 1, 13: 1, 14: 1, 16: 1, 17: 1}

// cidrReplay holds the sides of a replay: the set, its twin, and a set that hears of
// the first one's changes only.
type cidrReplay struct {
	t       testing.TB
	c       model.CidrConfig
	s       *cidrset.Set
	m       *model.CidrSet
	follow  *cidrset.Set // nil without OnChange
	changes []cidrset.Change
	now     time.Time
	seed    uint64
}

// replayCidrSet runs a trace on both sides and compares every answer.
func replayCidrSet(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	pool := cidrPools[tr.Op(len(cidrPools))]
	r := &cidrReplay{t: t, now: time.Unix(1000, 0)}
	r.c = model.CidrConfig{Pool: netip.MustParsePrefix(pool.pool), Bits: pool.bits}
	var err error
	if tr.Op(2) == 1 {
		if r.follow, err = cidrset.New(r.c.Pool, r.c.Bits); err != nil {
			t.Fatal(err)
		}
	}
	if r.s, err = cidrset.New(r.c.Pool, r.c.Bits, r.options(tr.Op(6))...); err != nil {
		t.Fatal(err)
	}
	r.m = model.NewCidrSet(r.c)
	for tr.More() {
		op := tr.Op(cidrOps)
		r.step(op, tr)
		if err := r.s.Check(); err != nil {
			t.Fatalf("after op %d: %v", op, err)
		}
		r.compare(op)
	}
}

// options returns those of one of six kinds of set, and has the twin's configuration
// say the same.
func (r *cidrReplay) options(kind int) (opts []cidrset.Option) {
	r.c.Policy, r.c.Cooldown = kind%3, time.Duration(kind/3)*10*time.Second
	switch r.c.Policy {
	case model.CidrLowest:
		opts = append(opts, cidrset.LowestFirst())
	case model.CidrRandom: // both draw the same numbers.
		r.seed++
		opts = append(opts, cidrset.Random(rand.NewPCG(r.seed, 7)))
		twin := rand.New(rand.NewPCG(r.seed, 7))
		r.c.Draw = func(n uint64) uint64 {
			if n == 0 {
				return twin.Uint64()
			}
			return twin.Uint64N(n)
		}
	}
	if r.c.Cooldown > 0 {
		opts = append(opts, cidrset.Cooldown(r.c.Cooldown, func() time.Time { return r.now }))
	}
	if r.follow != nil {
		opts = append(opts, cidrset.OnChange(r.hook))
	}
	return opts
}

// hook replays a change on the follower.
func (r *cidrReplay) hook(c cidrset.Change) {
	r.changes = append(r.changes, c)
	for _, p := range c.Prefixes {
		var n uint64
		var err error
		switch c.Op {
		case cidrset.OpRelease:
			n, err = r.follow.Release(p)
		case cidrset.OpAllocate, cidrset.OpOccupy:
			n, err = r.follow.Occupy(p)
		default:
			r.t.Fatalf("a change of kind %v", c.Op)
		}
		if err != nil || n == 0 && c.Op == cidrset.OpAllocate {
			r.t.Fatalf("%v %v changes %d in the follower: %v", c.Op, p, n, err)
		}
	}
}

func (r *cidrReplay) step(op int, tr *model.Trace) {
	switch op {
	case 0, 1:
		want, f := r.m.AllocateNext(r.now)
		got, err := r.s.AllocateNext()
		r.answer("AllocateNext", got, err, want, f, f.Kind == "")
	case 2:
		n := int(tr.Below(70))
		want, f := r.m.AllocateN(n, r.now)
		got := make([]netip.Prefix, n)
		err := r.s.AllocateN(got)
		r.answer("AllocateN", 0, err, 0, f, n > 0 && f.Kind == "")
		if err == nil && !slices.Equal(got, want) {
			r.t.Fatalf("AllocateN(%d) gives %v, want %v", n, got, want)
		}
	case 3, 4:
		bits := r.c.Pool.Bits() - 1 + int(tr.Below(uint64(r.c.Order())+3))
		want, f := r.m.AllocatePrefix(bits, r.now)
		got, err := r.s.AllocatePrefix(bits)
		r.answer("Allocate", got, err, want, f, f.Kind == "")
	case 5:
		p := r.prefix(tr)
		want, f := r.m.Occupy(p)
		got, err := r.s.Occupy(p)
		r.answer("Occupy "+p.String(), got, err, want, f, want > 0)
	case 6:
		p := r.prefix(tr)
		f := r.m.Claim(p)
		r.answer("Claim "+p.String(), 0, r.s.Claim(p), 0, f, f.Kind == "")
	case 7, 8:
		r.release(r.prefix(tr))
	case 9: // what is taken, so that it is not mostly for nothing
		taken, _, _ := r.m.Runs()
		if i, v := tr.Uint(), tr.Uint(); len(taken) > 0 {
			run := taken[i%uint64(len(taken))]
			r.release(r.c.Block(run[0]+v%(max(run[1]-run[0], 1)), 0))
		}
	case 10:
		r.releaseN(tr)
	case 11:
		p := r.prefix(tr)
		if got, want := r.s.Has(p), r.m.Has(p); got != want {
			r.t.Fatalf("Has(%v) is %v", p, got)
		}
		if got, want := r.s.HasAny(p), r.m.HasAny(p); got != want {
			r.t.Fatalf("HasAny(%v) is %v", p, got)
		}
	case 12, 13:
		r.now = r.now.Add(time.Duration(tr.Below(15)) * time.Second)
	case 14: // set back
		r.now = r.now.Add(-time.Duration(tr.Below(30)) * time.Second)
	case 15, 16:
		r.restart(op == 16, tr)
	case 17: // most of the pool, so that full is met in wide ones too
		p := r.c.Block(0, r.c.Order()) // the pool
		if r.c.Order() > 0 && tr.Below(2) == 1 {
			p = r.c.Block(0, r.c.Order()-1)
		}
		want, f := r.m.Occupy(p)
		got, err := r.s.Occupy(p)
		r.answer("Occupy "+p.String(), got, err, want, f, want > 0)
	}
}

func (r *cidrReplay) release(p netip.Prefix) {
	want, f := r.m.Release(p, r.now)
	got, err := r.s.Release(p)
	r.answer("Release "+p.String(), got, err, want, f, want > 0)
}

func (r *cidrReplay) releaseN(tr *model.Trace) {
	var ps []netip.Prefix
	for range tr.Below(6) {
		p := r.prefix(tr)
		if p.IsValid() && tr.Below(8) != 0 { // mostly what may be released
			p = netip.PrefixFrom(p.Addr(), min(max(p.Bits(), r.c.Pool.Bits()), r.c.Bits)).Masked()
		}
		ps = append(ps, p)
	}
	want, f := r.m.ReleaseN(ps, r.now)
	got, err := r.s.ReleaseN(ps)
	r.answer("ReleaseN", got, err, want, f, want > 0)
}

// prefix reads a prefix: in the pool, near its ends or a cursor, of about the length
// of a child or of the pool, or something that must be refused.
func (r *cidrReplay) prefix(tr *model.Trace) netip.Prefix {
	v, x := tr.Uint(), tr.Uint()
	last := r.c.Last()
	switch v % 4 {
	case 0:
		x = min(x, last)
	case 1:
		x = last - min(x, last)
	case 2:
		x = min(r.m.Cursor+x%8, last)
	case 3:
		x = x * 0x9E3779B97F4A7C15 & last
	}
	p := r.c.Block(x, 0)
	width := p.Addr().BitLen()
	bits := r.c.Bits
	switch v >> 2 % 8 {
	case 0, 1:
	case 2:
		bits++
	case 3, 4, 5:
		bits -= int(v >> 5 % uint64(r.c.Order()+1))
	case 6:
		bits = r.c.Pool.Bits() - int(v>>5%3)
	case 7:
		bits = int(v>>5) % (width + 1)
	}
	p = netip.PrefixFrom(p.Addr(), min(max(bits, 0), width))
	switch v >> 13 % 16 {
	case 11:
		return p // with host bits, if the length is short of a child's
	case 12:
		return netip.Prefix{}
	case 13:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(x)}), 32)
	case 14:
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(x)}), 128)
	case 15:
		return netip.PrefixFrom(p.Addr(), width+1)
	}
	return p.Masked()
}

var cidrKinds = map[string]error{
	model.CidrFull: ipalloc.ErrFull, model.CidrCooling: ipalloc.ErrCooling, model.CidrRange: ipalloc.ErrOutOfRange,
	model.CidrMisaligned: ipalloc.ErrOutOfRange, model.CidrPrefix: ipalloc.ErrInvalid, model.CidrBits: ipalloc.ErrInvalid,
	model.CidrOccupied: ipalloc.ErrOccupied,
}

// answer compares an answer, its error and whether the set told of a change: once if
// there was one, else not at all.
func (r *cidrReplay) answer(op string, got any, err error, want any, f model.CidrFailure, changed bool) {
	if f.Kind == "" && (err != nil || got != want) {
		r.t.Fatalf("%s = %v, %v, want %v", op, got, err, want)
	}
	if f.Kind != "" {
		var e *ipalloc.Error
		switch is := errors.As(err, &e); {
		case !errors.Is(err, cidrKinds[f.Kind]):
			r.t.Fatalf("%s: error is %v, want %s", op, err, f.Kind)
		case !is && !errors.Is(err, ipalloc.ErrFull):
			r.t.Fatalf("%s: error %v has no type", op, err)
		case is && (e.Pool != r.c.Pool || !e.Until.Equal(f.Until)):
			r.t.Fatalf("%s: error is %v, want until %v", op, err, f.Until)
		case is && e.InTheWay != f.At:
			r.t.Fatalf("%s: error is %v, want %v in the way", op, err, f.At)
		}
	}
	tell := 0
	if changed && r.follow != nil {
		tell = 1
	}
	if len(r.changes) != tell {
		r.t.Fatalf("%s tells %v, want %d changes", op, r.changes, tell)
	}
	r.changes = nil
}

// restart takes a snapshot and goes on with what is restored from it, by the same
// policy or another one.
func (r *cidrReplay) restart(other bool, tr *model.Trace) {
	data, err := r.s.MarshalBinary()
	if err != nil {
		r.t.Fatal(err)
	}
	kind := r.c.Policy + 3*int(r.c.Cooldown/(10*time.Second))
	if other {
		kind = tr.Op(6)
	}
	opts := r.options(kind)
	if r.s, err = cidrset.Restore(r.c.Pool, r.c.Bits, data, opts...); err != nil {
		r.t.Fatal(err)
	}
	again, err := r.s.MarshalBinary()
	if err != nil || r.c.Cooldown > 0 && !bytes.Equal(data, again) {
		r.t.Fatalf("a snapshot reads back as another: %v\n%x\n%x", err, data, again)
	}
	r.m.Restart(r.c)
}

// compare compares the whole state.
func (r *cidrReplay) compare(op int) {
	taken, cooling, free := r.m.Runs()
	want := cidrset.Stats{
		Capacity: model.SumRuns([][2]uint64{{0, r.c.Last()}}), LargestFree: -1,
		Used: model.SumRuns(taken), Cooling: model.SumRuns(cooling), Free: model.SumRuns(free),
	}
	blocks := r.cover(free)
	for _, p := range blocks {
		if want.LargestFree < 0 || p.Bits() < want.LargestFree {
			want.LargestFree = p.Bits()
		}
	}
	if got := r.s.Stats(); got != want {
		r.t.Fatalf("after op %d: Stats() = %+v, want %+v", op, got, want)
	}
	if got, want := r.s.Cursor(), r.c.Block(r.m.Cursor, 0); got != want {
		r.t.Fatalf("after op %d: the cursor is at %v, want %v", op, got, want)
	}
	r.sequence(op, "FreePrefixes", r.s.FreePrefixes(), blocks)
	r.sequence(op, "UsedPrefixes", r.s.UsedPrefixes(), r.cover(taken))
	r.start(op, "All", r.s.All(), taken)
	r.start(op, "FreeChildren", r.s.FreeChildren(), free)
	if r.follow != nil {
		r.sequence(op, "UsedPrefixes of the follower", r.follow.UsedPrefixes(), r.cover(taken))
	}
}

// cover returns the fewest prefixes that are the runs: halves of halves of the pool,
// until one is in a run or in none.
func (r *cidrReplay) cover(runs [][2]uint64) (out []netip.Prefix) {
	var split func(lo uint64, k int)
	split = func(lo uint64, k int) {
		hi := lo | ^uint64(0)>>(64-k)
		for _, run := range runs {
			switch {
			case run[0] <= lo && hi <= run[1]:
				out = append(out, r.c.Block(lo, k))
				return
			case run[0] <= hi && lo <= run[1]:
				split(lo, k-1)
				split(lo|1<<(k-1), k-1)
				return
			}
		}
	}
	split(0, r.c.Order())
	return out
}

func (r *cidrReplay) sequence(op int, name string, seq iter.Seq[netip.Prefix], want []netip.Prefix) {
	if got := slices.Collect(seq); !slices.Equal(got, want) {
		r.t.Fatalf("after op %d: %s is %v, want %v", op, name, got, want)
	}
}

// start compares the first children of a sequence, all of a small pool.
func (r *cidrReplay) start(op int, name string, seq iter.Seq[netip.Prefix], runs [][2]uint64) {
	const most = 150
	var want []netip.Prefix
	for _, run := range runs {
		for i := run[0]; len(want) < most; i++ {
			if want = append(want, r.c.Block(i, 0)); i == run[1] {
				break
			}
		}
	}
	i := 0
	for p := range seq {
		if i == most {
			return
		}
		if i >= len(want) || p != want[i] {
			r.t.Fatalf("after op %d: %d of %s is %v, want %v", op, i, name, p, want[min(i, len(want)):])
		}
		i++
	}
	if i != len(want) {
		r.t.Fatalf("after op %d: %s has %d children, want %v", op, name, i, want)
	}
}

// randomCidrTrace returns a trace of n operations on the given pool with mostly
// small operands.
func randomCidrTrace(rng *rand.Rand, pool byte, n int) []byte {
	data := []byte{pool, byte(rng.UintN(256)), byte(rng.UintN(256))}
	for range n {
		op := byte(rng.UintN(cidrOps))
		data = append(data, op)
		for range cidrOperands[op] {
			data = binary.AppendUvarint(data, rng.Uint64()>>rng.UintN(64))
		}
	}
	return data
}

func TestCidrSetAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 6, 20) {
		for pool := range cidrPools {
			replayCidrSet(t, randomCidrTrace(rand.New(rand.NewPCG(seed, 1)), byte(pool), 60))
		}
	}
}

func FuzzCidrSet(f *testing.F) {
	for pool := range cidrPools {
		f.Add(randomCidrTrace(rand.New(rand.NewPCG(uint64(pool), 2)), byte(pool), 20))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // the twins are quadratic
		}
		replayCidrSet(t, data)
	})
}
