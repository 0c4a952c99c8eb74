package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	kcidrset "k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// worlds are the sets that a trace may begin with: both accept them.
var worlds = []struct {
	pool  string
	child int
}{
	{"10.0.0.0/24", 28}, {"10.0.0.0/16", 24}, {"127.123.0.0/16", 28}, {"192.168.5.208/28", 32}, {"10.1.2.0/24", 24},
	{"0.0.0.0/0", 8}, {"255.255.255.0/24", 32}, {"10.1.2.3/32", 32},
	{"2001:db8::/32", 40}, {"2001:db8::/48", 64}, {"2001:db8:0:ff00::/56", 68}, {"fd00::/64", 72},
	{"fd00::ff00/120", 128}, {"::/0", 8}, {"2001:db8::/60", 66},
}

const traceOps = 3 // AllocateNext, Occupy, Release

// replay drives both sets with one trace.
type replay struct {
	t     testing.TB
	codec addr.Codec
	k     *kcidrset.CidrSet
	s     *cidrset.Set
	taken []bool         // what both must hold
	count uint64         // of those
	met   map[string]int // divergences, by case
}

func newReplay(t testing.TB, pool netip.Prefix, child int) *replay {
	codec := must(addr.NewCodec(pool, child))
	return &replay{
		t:     t,
		codec: codec,
		k:     must(kcidrset.NewCIDRSet(ipNet(pool), child)),
		s:     must(cidrset.New(pool, child)),
		taken: make([]bool, codec.Last()+1),
		met:   map[string]int{},
	}
}

// replayTrace runs a trace to its end and then takes all that is left, which shows
// cursor and free children of both.
func replayTrace(t testing.TB, data []byte) (met map[string]int) {
	tr := model.NewTrace(data)
	w := worlds[tr.Op(len(worlds))]
	r := newReplay(t, netip.MustParsePrefix(w.pool), w.child)
	for tr.More() {
		switch tr.Op(traceOps) {
		case 0:
			r.allocate()
		case 1:
			r.occupy(r.operand(tr))
		case 2:
			r.release(r.operand(tr))
		}
		if err := r.s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for r.allocate() {
	}
	if r.count != r.codec.Last()+1 {
		t.Fatalf("both are full with %d children of %d taken", r.count, r.codec.Last()+1)
	}
	return r.met
}

// operand reads a prefix: a start ordinal, in the pool or in as many children beside
// it, with what is above that flipping low bits of the address; and a number that
// says how long the prefix is (every second time a child), whether host bits stay
// and whether it is of the other family.
func (r *replay) operand(tr *model.Trace) netip.Prefix {
	start, form := tr.Uint(), tr.Uint()
	pool := r.codec.Pool()
	width := pool.Addr().BitLen()
	beside := uint64(2) << r.codec.Order()
	at := addr.U128{Lo: start % beside}.Shl(uint(width - r.codec.ChildBits()))
	at = at.Xor(addr.U128{Lo: start / beside}).Xor(addr.FromAddr(pool.Addr()))
	a := at.Addr6()
	if pool.Addr().Is4() {
		a = at.Addr4()
	}
	bits := r.codec.ChildBits()
	if form&1 != 0 {
		bits = int(form >> 8 % uint64(width+1))
	}
	if form&0xe == 0xe {
		return netip.PrefixFrom(a, bits)
	}
	if form&0xf0 == 0xf0 {
		a = netip.MustParseAddr("10.0.0.0")
		if pool.Addr().Is4() {
			a = netip.MustParseAddr("2001:db8::")
		}
		bits = min(bits, a.BitLen())
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// diverge notes that a case of the table was met.
func (r *replay) diverge(name string) {
	for _, d := range divergences {
		if d.Case == name {
			r.met[name]++
			return
		}
	}
	r.t.Fatalf("%q is not in the table of divergences", name)
}

// allocate compares AllocateNext and reports whether there was a child.
func (r *replay) allocate() bool {
	r.t.Helper()
	n, kerr := r.k.AllocateNext()
	p, err := r.s.AllocateNext()
	if errors.Is(kerr, kcidrset.ErrCIDRRangeNoCIDRsRemaining) && errors.Is(err, ipalloc.ErrFull) {
		return false
	}
	if kerr != nil || err != nil {
		r.t.Fatalf("AllocateNext: Kubernetes %v, %v; ours %v, %v", n, kerr, p, err)
	}
	if want := prefixOfIPNet(n); p != want {
		r.t.Fatalf("AllocateNext: Kubernetes %v, ours %v", want, p)
	}
	i, ok := r.codec.Ordinal(p.Addr())
	if !ok || r.taken[i] {
		r.t.Fatalf("AllocateNext gives %v, which is taken or not in %v", p, r.codec.Pool())
	}
	r.mark(i, i, true)
	return true
}

// overlap returns the children that Kubernetes acts on when it is given p: those
// that p overlaps, but from the one of its address on if it has host bits.
func (r *replay) overlap(p netip.Prefix) (lo, hi uint64, ok bool) {
	lo, hi, rel := r.codec.Locate(p.Masked())
	if rel == addr.Foreign {
		return 0, 0, false
	}
	if p != p.Masked() && rel == addr.Whole && p.Bits() > r.codec.Pool().Bits() {
		lo, _ = r.codec.Ordinal(p.Addr())
	}
	return lo, hi, true
}

// each does the same with every child of [lo, hi] of ours and sums up.
func (r *replay) each(lo, hi uint64, do func(netip.Prefix) (uint64, error)) (sum uint64, err error) {
	for i := lo; ; i++ {
		n, err := do(r.codec.Prefix(i))
		if sum += n; err != nil || i == hi {
			return sum, err
		}
	}
}

// mark sets what both must hold and returns how many children that changes.
func (r *replay) mark(lo, hi uint64, taken bool) (changed uint64) {
	for i := lo; i <= hi; i++ {
		if r.taken[i] != taken {
			r.taken[i] = taken
			changed++
		}
	}
	if taken {
		r.count += changed
	} else {
		r.count -= changed
	}
	return changed
}

// refuses checks that ours returns the wanted error and stays as it was.
func (r *replay) refuses(what string, p netip.Prefix, err, want error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("%s %v: ours %v, want %v", what, p, err, want)
	}
	if used := r.s.Stats().Used; used != r.count {
		r.t.Fatalf("%s %v is refused and changes what is taken from %d to %d", what, p, r.count, used)
	}
}

// occupy compares Occupy.
func (r *replay) occupy(p netip.Prefix) {
	r.t.Helper()
	kerr := r.k.Occupy(ipNet(p))
	taken, err := r.s.Occupy(p)
	lo, hi, ok := r.overlap(p)
	if ok != (kerr == nil) {
		r.t.Fatalf("Occupy %v in %v: Kubernetes %v", p, r.codec.Pool(), kerr)
	}
	if p != p.Masked() {
		r.refuses("Occupy", p, err, ipalloc.ErrInvalid)
		if ok {
			r.diverge(namesUnmasked)
			taken, err = r.each(lo, hi, r.s.Occupy)
		}
	}
	if !ok {
		if p == p.Masked() {
			r.refuses("Occupy", p, err, ipalloc.ErrOutOfRange)
		}
		return
	}
	if want := r.mark(lo, hi, true); err != nil || taken != want {
		r.t.Fatalf("Occupy %v: ours took %d, %v; Kubernetes %d", p, taken, err, want)
	}
}

// release compares Release.
func (r *replay) release(p netip.Prefix) {
	r.t.Helper()
	kerr := r.k.Release(ipNet(p))
	freed, err := r.s.Release(p)
	lo, hi, ok := r.overlap(p)
	if ok != (kerr == nil) {
		r.t.Fatalf("Release %v in %v: Kubernetes %v", p, r.codec.Pool(), kerr)
	}
	name, want := "", error(nil)
	switch {
	case p != p.Masked():
		name, want = namesUnmasked, ipalloc.ErrInvalid
	case !ok:
		r.refuses("Release", p, err, ipalloc.ErrOutOfRange)
		return
	case p.Bits() > r.codec.ChildBits():
		name, want = releasesPart, ipalloc.ErrOutOfRange
	case p.Bits() < r.codec.Pool().Bits():
		name, want = releasesMore, ipalloc.ErrOutOfRange
	}
	if want != nil {
		r.refuses("Release", p, err, want)
		if !ok {
			return
		}
		r.diverge(name)
		freed, err = r.each(lo, hi, r.s.Release) // what Kubernetes did
	}
	if want := r.mark(lo, hi, false); err != nil || freed != want {
		r.t.Fatalf("Release %v: ours freed %d, %v; Kubernetes %d", p, freed, err, want)
	}
}

// kubernetesSeed makes a trace of n operations in a world.
func kubernetesSeed(rng *rand.Rand, world byte, n int) []byte {
	data := []byte{world}
	near := rng.Uint64() // so that operations meet
	for range n {
		op := byte(rng.IntN(traceOps))
		if op == 0 {
			data = model.AppendOp(data, 0)
			continue
		}
		if rng.IntN(8) == 0 {
			near = rng.Uint64() >> rng.IntN(64)
		}
		data = model.AppendOp(data, op, near+rng.Uint64N(16), rng.Uint64N(1<<16))
	}
	return data
}

// FuzzKubernetesCidrSet replays a trace on both.
func FuzzKubernetesCidrSet(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 36))
	for w := range worlds {
		f.Add(kubernetesSeed(rng, byte(w), 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // each end of a trace takes all that is left
		}
		replayTrace(t, data)
	})
}

// The traces of fixed seeds meet every divergence that a trace can meet, and no
// other difference.
func TestTracesLikeKubernetes(t *testing.T) {
	met := map[string]int{}
	for seed := range seeds.Each(t, 12, 12) {
		rng := rand.New(rand.NewPCG(seed, 36))
		for w := range worlds {
			for name, n := range replayTrace(t, kubernetesSeed(rng, byte(w), 150)) {
				met[name] += n
			}
		}
	}
	if seeds.Chosen() {
		return
	}
	for _, name := range []string{releasesPart, releasesMore, namesUnmasked} {
		if met[name] < 10 {
			t.Errorf("%q was met %d times", name, met[name])
		}
	}
}

// The largest set that both accept, filled from a cursor in its middle.
func TestFillLikeKubernetes(t *testing.T) {
	r := newReplay(t, netip.MustParsePrefix("2001:db8::/48"), 64)
	r.occupy(netip.MustParsePrefix("2001:db8::/49"))
	for range 100 {
		r.allocate()
	}
	r.release(netip.MustParsePrefix("2001:db8:0:4000::/50"))
	for r.allocate() {
	}
	if r.count != 1<<16 {
		t.Errorf("full with %d children taken", r.count)
	}
}

// Neither accepts nothing at all.
func TestNoPrefixLikeKubernetes(t *testing.T) {
	r := newReplay(t, netip.MustParsePrefix("10.0.0.0/24"), 28)
	for _, c := range []struct {
		op   string
		kerr error
		err  func() error
	}{
		{"occupy", r.k.Occupy(nil), func() error { _, err := r.s.Occupy(netip.Prefix{}); return err }},
		{"release", r.k.Release(nil), func() error { _, err := r.s.Release(netip.Prefix{}); return err }},
	} {
		if err := c.err(); c.kerr == nil || !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%s of no prefix: Kubernetes %v, ours %v", c.op, c.kerr, err)
		}
	}
}

// demonstrations shows each divergence of the table on both sides: the function
// reports whether Kubernetes does what the table says, and what ours answers.
var demonstrations = map[string]struct {
	shows func() (kubernetes bool, ours error)
	want  error
}{
	releasesPart: {func() (bool, error) {
		k, s := bothFull()
		err := k.Release(ipNet(netip.MustParsePrefix("10.0.0.4/30")))
		n, _ := k.AllocateNext()
		_, ours := s.Release(netip.MustParsePrefix("10.0.0.4/30"))
		return err == nil && n != nil && n.String() == "10.0.0.0/28", ours
	}, ipalloc.ErrOutOfRange},
	releasesMore: {func() (bool, error) {
		k, s := bothFull()
		err := k.Release(ipNet(netip.MustParsePrefix("0.0.0.0/0")))
		n := 0
		for ; err == nil; n++ {
			_, err = k.AllocateNext()
		}
		_, ours := s.Release(netip.MustParsePrefix("0.0.0.0/0"))
		return n == 16+1, ours
	}, ipalloc.ErrOutOfRange},
	namesUnmasked: {func() (bool, error) {
		k, s := bothFull()
		err := k.Release(ipNet(netip.MustParsePrefix("10.0.0.17/28")))
		n, _ := k.AllocateNext()
		_, ours := s.Release(netip.MustParsePrefix("10.0.0.17/28"))
		return err == nil && n != nil && n.String() == "10.0.0.16/28", ours
	}, ipalloc.ErrInvalid},
	poolUnmasked: {func() (bool, error) {
		pool := netip.MustParsePrefix("10.0.5.0/16")
		_, ours := cidrset.New(pool, 24)
		distinct := drain(must(kcidrset.NewCIDRSet(ipNet(pool), 24)))
		return len(distinct) == 64, ours
	}, ipalloc.ErrInvalid},
	poolMapped: {func() (bool, error) {
		k := must(kcidrset.NewCIDRSet(&net.IPNet{IP: net.ParseIP("10.0.0.0"), Mask: net.CIDRMask(16, 32)}, 24))
		n, err := k.AllocateNext()
		_, ours := cidrset.New(netip.MustParsePrefix("::ffff:10.0.0.0/112"), 120)
		return err == nil && n.String() == "0.0.0.0/24", ours
	}, ipalloc.ErrInvalid},
	poolLargeIPv6: {func() (bool, error) {
		pool := netip.MustParsePrefix("2001:db8::/47")
		_, err := kcidrset.NewCIDRSet(ipNet(pool), 64)
		_, ours := cidrset.New(pool, 64)
		return errors.Is(err, kcidrset.ErrCIDRSetSubNetTooBig), ours
	}, nil},
	poolWholeIPv4: {func() (bool, error) {
		pool, part := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/8")
		k, s := must(kcidrset.NewCIDRSet(ipNet(pool), 32)), must(cidrset.New(pool, 32))
		_, ours := s.Occupy(part)
		return k.Occupy(ipNet(part)) != nil, ours
	}, nil},
	childTooShort: {func() (bool, error) {
		pool := netip.MustParsePrefix("10.0.0.0/24")
		k, kerr := kcidrset.NewCIDRSet(ipNet(pool), 16)
		_, ours := cidrset.New(pool, 16)
		if kerr != nil {
			return false, ours
		}
		_, kerr = k.AllocateNext()
		return errors.Is(kerr, kcidrset.ErrCIDRRangeNoCIDRsRemaining), ours
	}, ipalloc.ErrInvalid},
	childTooLong: {func() (bool, error) {
		pool := netip.MustParsePrefix("10.0.0.0/24")
		k, kerr := kcidrset.NewCIDRSet(ipNet(pool), 33)
		_, ours := cidrset.New(pool, 33)
		if kerr != nil {
			return false, ours
		}
		n, kerr := k.AllocateNext()
		return kerr == nil && n.Mask == nil, ours
	}, ipalloc.ErrInvalid},
}

// bothFull returns a full set of 16 children of each kind.
func bothFull() (*kcidrset.CidrSet, *cidrset.Set) {
	pool := netip.MustParsePrefix("10.0.0.0/24")
	k, s := must(kcidrset.NewCIDRSet(ipNet(pool), 28)), must(cidrset.New(pool, 28))
	if err := k.Occupy(ipNet(pool)); err != nil {
		panic(err)
	}
	must(s.Occupy(pool))
	return k, s
}

// drain returns how often each child is handed out.
func drain(k *kcidrset.CidrSet) map[string]int {
	got := map[string]int{}
	for {
		n, err := k.AllocateNext()
		if err != nil {
			return got
		}
		got[n.String()]++
	}
}

func TestDivergences(t *testing.T) {
	listed := map[string]bool{}
	for _, d := range divergences {
		if d.Kubernetes == "" || d.Ours == "" || d.Reason == "" || listed[d.Case] {
			t.Errorf("%q is incomplete or listed twice", d.Case)
		}
		listed[d.Case] = true
		demo, ok := demonstrations[d.Case]
		if !ok {
			t.Errorf("%q is listed and not shown", d.Case)
			continue
		}
		kubernetes, ours := demo.shows()
		if !kubernetes {
			t.Errorf("%q: Kubernetes no longer does what is listed: %s", d.Case, d.Kubernetes)
		}
		if !errors.Is(ours, demo.want) || demo.want == nil && ours != nil {
			t.Errorf("%q: ours answers %v, listed is %s", d.Case, ours, d.Ours)
		}
	}
	for name := range demonstrations {
		if !listed[name] {
			t.Errorf("%q is shown and not listed", name)
		}
	}
}
