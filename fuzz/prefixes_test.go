package fuzz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const prefixesOps = 24

// prefixesPools are the root pools that a trace adds and removes: of one page and of two,
// some that overlap, of both families.
var prefixesPools = []prefixes.Pool{
	{Prefix: netip.MustParsePrefix("10.0.0.0/27"), Sizes: prefixes.Sizes{Shortest: 28, Longest: 32}},
	{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Sizes: prefixes.Sizes{Shortest: 25, Longest: 32}},
	{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Sizes: prefixes.Sizes{Shortest: 26, Longest: 28}},
	{Prefix: netip.MustParsePrefix("10.0.8.0/21"), Sizes: prefixes.Sizes{Shortest: 22, Longest: 29}},
	{Prefix: netip.MustParsePrefix("fd00::/57"), Sizes: prefixes.Sizes{Shortest: 58, Longest: 66}},
}

// prefixesReplay is the two sides of a replay: allocators that share a store, and the model.
type prefixesReplay struct {
	t     testing.TB
	store store.Store
	a     [2]*prefixes.Allocator
	m     *model.Prefixes
}

func (r *prefixesReplay) open(i int) {
	a, err := prefixes.New(r.store, prefixes.Options{Now: func() time.Time { return r.m.Now }})
	if err != nil {
		r.t.Fatal(err)
	}
	r.a[i] = a
}

// replayPrefixes runs a trace of at most so many steps on both sides and compares every
// answer. It compares all that is held after the steps whose number every divides, and at
// the end.
func replayPrefixes(t testing.TB, s store.Store, data []byte, most, every int) {
	tr := model.NewTrace(data)
	r := &prefixesReplay{t: t, store: s, m: model.NewPrefixes()}
	r.open(0)
	r.open(1)
	for i := range []int{1, 3, 4} {
		r.addPool(r.a[0], prefixesPools[i])
	}
	for step := 1; tr.More() && step <= most; step++ {
		op := tr.Op(prefixesOps)
		i := int(tr.Below(2))
		if op == 15 {
			r.open(i)
		}
		r.step(op, r.a[i], tr)
		if step%every == 0 || !tr.More() || step == most {
			r.compare(op, r.a[i])
		}
	}
}

func (r *prefixesReplay) addPool(a *prefixes.Allocator, p prefixes.Pool) {
	want := r.m.AddPool(model.PrefixPool{Prefix: p.Prefix, Shortest: p.Sizes.Shortest, Longest: p.Sizes.Longest})
	r.same(a.AddPool(context.Background(), p), want, "AddPool(%v)", p)
}

// prefixesWord turns an error into what the model says of it.
func prefixesWord(err error) string {
	for word, sentinel := range map[string]error{
		"exists": ipalloc.ErrExists, "full": ipalloc.ErrFull, "occupied": ipalloc.ErrOccupied,
		"out of range": ipalloc.ErrOutOfRange, "not found": ipalloc.ErrNotFound, "not held": ipalloc.ErrNotHeld, "in use": ipalloc.ErrInUse, "invalid": ipalloc.ErrInvalid,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (r *prefixesReplay) same(err error, want, format string, args ...any) {
	r.t.Helper()
	if got := prefixesWord(err); got != want {
		r.t.Fatalf("%s: %v, want %q", fmt.Sprintf(format, args...), err, want)
	}
}

// pool returns a root pool, a holding, or a prefix that is neither.
func (r *prefixesReplay) pool(tr *model.Trace) netip.Prefix {
	held := r.m.Sorted()
	n := tr.Below(uint64(len(prefixesPools) + 3*len(held) + 1))
	switch {
	case n < uint64(len(prefixesPools)):
		return prefixesPools[n].Prefix
	case n < uint64(len(prefixesPools)+3*len(held)):
		return held[(n-uint64(len(prefixesPools)))/3]
	}
	return netip.MustParsePrefix("10.0.0.128/26")
}

// prefix returns a prefix in or at a pool, or a holding.
func (r *prefixesReplay) prefix(tr *model.Trace) netip.Prefix {
	if held := r.m.Sorted(); len(held) > 0 && tr.Below(2) == 0 {
		return held[tr.Below(uint64(len(held)))]
	}
	p := prefixesPools[tr.Below(uint64(len(prefixesPools)))].Prefix
	at := p.Addr().AsSlice()
	n := tr.Uint()
	for i := range 2 { // the bits that the pools leave are in these two bytes
		at[p.Bits()/8-1+i] ^= byte(n >> (8 * i) & 0x0f * 0x11)
	}
	a, _ := netip.AddrFromSlice(at)
	q, _ := a.Prefix(min(p.Bits()+int(tr.Below(11)), a.BitLen()))
	return q
}

func (r *prefixesReplay) step(op int, a *prefixes.Allocator, tr *model.Trace) {
	ctx := context.Background()
	owner := string(rune('a' + tr.Below(4)))
	switch op {
	case 0, 1, 2, 3, 4, 5, 6:
		r.request(op, a, owner, 0, tr)
	case 16, 17, 18: // 0, 3 or 6 for a lease
		r.request(3*(op-16), a, owner, time.Duration(1+tr.Below(60))*time.Second, tr)
	case 7, 8:
		at := r.prefix(tr)
		if h, ok := r.m.Held[at]; ok && op == 7 {
			owner = h.Owner
		}
		r.same(a.Release(ctx, at, owner), r.m.Release(owner, at), "Release(%s, %v)", owner, at)
	case 9:
		want, why := r.m.ReleaseByOwner(owner)
		got, err := a.ReleaseByOwner(ctx, owner)
		r.same(err, why, "ReleaseByOwner(%s)", owner)
		if fmt.Sprint(prefixesOf(got)) != fmt.Sprint(want) {
			r.t.Fatalf("ReleaseByOwner(%s) = %v, want %v", owner, got, want)
		}
	case 10:
		at, to := r.prefix(tr), string(rune('a'+tr.Below(4)))
		want := r.m.Change(at, owner, to, r.m.Held[at].Attributes)
		_, err := a.Transfer(ctx, at, owner, to)
		r.same(err, want, "Transfer(%v, %s, %s)", at, owner, to)
	case 11:
		at, text := r.prefix(tr), fmt.Sprint(tr.Below(3))
		_, err := a.SetAttributes(ctx, at, owner, text)
		r.same(err, r.m.Change(at, owner, owner, text), "SetAttributes(%s, %v)", owner, at)
	case 12:
		r.addPool(a, prefixesPools[tr.Below(uint64(len(prefixesPools)))])
	case 13:
		pool := r.pool(tr)
		r.same(a.RemovePool(ctx, pool), r.m.RemovePool(pool), "RemovePool(%v)", pool)
	case 14:
		at := r.prefix(tr)
		path, err := a.Path(ctx, at)
		if want := r.m.Path(at); err != nil || fmt.Sprint(prefixesOf(path)) != fmt.Sprint(want) {
			r.t.Fatalf("Path(%v) = %v, %v, want %v", at, path, err, want)
		}
	case 19, 20:
		at, n := r.prefix(tr), tr.Below(80)
		ttl, within := time.Duration(n%40)*time.Second, n >= 40
		if h, ok := r.m.Held[at]; ok && op == 19 {
			owner = h.Owner
		}
		h, err := a.Renew(ctx, at, owner, prefixes.RenewArgs{TTL: ttl, WithinRules: within})
		r.same(err, r.m.Renew(at, owner, ttl, within), "Renew(%s, %v, %v, within rules %v)", owner, at, ttl, within)
		if err == nil && !h.Until.Equal(r.m.End(ttl)) {
			r.t.Fatalf("Renew(%s, %v, %v) = %+v", owner, at, ttl, h)
		}
	case 21:
		at, sizes := r.prefix(tr), prefixes.Sizes{}
		if longest := at.Addr().BitLen(); tr.Below(3) > 0 && at.Bits() < longest {
			sizes = prefixes.Sizes{Shortest: at.Bits() + 1, Longest: min(at.Bits()+3, longest)}
		}
		owner = cmp.Or(r.m.Held[at].Owner, owner)
		_, err := a.SetChildren(ctx, at, owner, sizes)
		r.same(err, r.m.SetChildren(at, owner, sizes.Shortest, sizes.Longest), "SetChildren(%s, %v, %v)", owner, at, sizes)
	case 22:
		r.m.Pass(time.Duration(tr.Below(40)) * time.Second)
	case 23:
		r.sweep(a)
	}
}

// sweep sweeps: what it returns has ended, and no more is left to sweep. The model does not know which ends an earlier call has written.
func (r *prefixesReplay) sweep(a *prefixes.Allocator) {
	ended, err := a.Sweep(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range ended {
		if h.Until.IsZero() || h.Until.After(r.m.Now) {
			r.t.Fatalf("Sweep at %v: %+v", r.m.Now, h)
		}
	}
	if rep, err := a.Check(context.Background()); err != nil || rep.Holdings != len(r.m.Held) {
		r.t.Fatalf("Sweep at %v: %v; then %+v, %v", r.m.Now, ended, rep, err)
	}
}

func prefixesOf(hs []prefixes.Holding) (at []netip.Prefix) {
	for _, h := range hs {
		at = append(at, h.Prefix)
	}
	return at
}

// request allocates, assigns, occupies or asks what fits.
func (r *prefixesReplay) request(op int, a *prefixes.Allocator, owner string, ttl time.Duration, tr *model.Trace) {
	ctx := context.Background()
	q := prefixes.Request{Pool: r.pool(tr), Owner: owner, Attributes: fmt.Sprint(tr.Below(3)), TTL: ttl}
	longest := q.Pool.Addr().BitLen()
	q.Bits = min(q.Pool.Bits()+1+int(tr.Below(10)), longest)
	if q.Bits == q.Pool.Bits() {
		return
	}
	at := netip.PrefixFrom(q.Pool.Addr(), q.Bits)
	if op == 6 {
		if at = r.prefix(tr); at.Bits() <= q.Pool.Bits() && at.Overlaps(q.Pool) || at.Addr().Is4() != q.Pool.Addr().Is4() {
			return // an invalid request
		}
		q.Bits = at.Bits()
	}
	plain := uint64(2)
	if ttl > 0 {
		plain = 8 // with Children it is refused
	}
	if tr.Below(plain) == 0 && q.Bits < longest {
		q.Children.Shortest = q.Bits + 1
		q.Children.Longest = min(q.Children.Shortest+int(tr.Below(9)), longest)
	}
	h := model.PrefixHolding{Owner: owner, Pool: q.Pool, Shortest: q.Children.Shortest, Longest: q.Children.Longest, Attributes: q.Attributes, Until: r.m.End(ttl)}
	var got prefixes.Holding
	var err error
	var want netip.Prefix
	var why string
	switch op {
	case 0, 1, 2:
		want, why = r.m.Allocate(q.Bits, h)
		got, err = a.Allocate(ctx, q)
	case 3, 4:
		want, why = r.m.Assign(q.Bits, h)
		got, err = a.Assign(ctx, q)
	case 5:
		want, why = r.m.Fits(q.Pool, q.Bits)
		got.Prefix, err = a.Fits(ctx, q.Pool, q.Bits)
	case 6:
		var inTheWay netip.Prefix
		want = at
		why, inTheWay = r.m.Occupy(at, h)
		got, err = a.Occupy(ctx, at, q)
		var e *ipalloc.Error
		if why == "occupied" && (!errors.As(err, &e) || e.InTheWay != inTheWay || e.Holder != r.m.Held[inTheWay].Owner) {
			r.t.Fatalf("Occupy(%v, %+v): %v, want %v in the way", at, q, err, inTheWay)
		}
	}
	r.same(err, why, "op %d, %+v", op, q)
	if why == "" && (got.Prefix != want || op != 5 && got.Owner != owner) {
		r.t.Fatalf("op %d, %+v: %+v, want %v", op, q, got, want)
	}
}

// compare compares all that is held, by owner too, and what is free.
func (r *prefixesReplay) compare(op int, a *prefixes.Allocator) {
	ctx := context.Background()
	all := r.m.Sorted()
	var got []netip.Prefix
	owned := map[string][]netip.Prefix{}
	for h, err := range a.All(ctx, netip.Prefix{}) {
		want := r.m.Held[h.Prefix]
		if err != nil || h.Owner != want.Owner || h.Pool != want.Pool || h.Attributes != want.Attributes || !h.Until.Equal(want.Until) ||
			h.Children != (prefixes.Sizes{Shortest: want.Shortest, Longest: want.Longest}) || h.Level != len(r.m.Path(h.Prefix)) {
			r.t.Fatalf("after op %d: held %+v, %v, want %+v", op, h, err, want)
		}
		got = append(got, h.Prefix)
		owned[h.Owner] = append(owned[h.Owner], h.Prefix)
	}
	if !slices.Equal(got, all) {
		r.t.Fatalf("after op %d: held %v, want %v", op, got, all)
	}
	for _, owner := range []string{"a", "b", "c", "d"} {
		held, err := a.Owned(ctx, owner)
		if err != nil || !slices.Equal(prefixesOf(held), owned[owner]) {
			r.t.Fatalf("after op %d: %s owns %v, %v, want %v", op, owner, held, err, owned[owner])
		}
	}
	if rep, err := a.Check(ctx); err != nil || len(rep.Problems) > 0 || rep.Holdings < len(all) || rep.Pools != len(r.m.Roots) {
		r.t.Fatalf("after op %d: %+v, %v", op, rep, err)
	}
	for _, p := range r.m.Roots {
		u, err := a.Utilization(ctx, p.Prefix)
		if err != nil {
			r.t.Fatal(err)
		}
		want := prefixes.Utilization{}
		want.Pools[p.Prefix.Bits()] = 1
		for _, f := range r.m.Free(p.Prefix) {
			want.Free[f.Bits()]++
		}
		for at, h := range r.m.Held {
			if h.Pool == p.Prefix {
				want.Held[at.Bits()]++
			}
		}
		if *u != want {
			r.t.Fatalf("after op %d: utilization of %v:\n%v\nwant\n%v", op, p.Prefix, *u, want)
		}
	}
}

func randomPrefixesTrace(rng *rand.Rand, n int) (data []byte) {
	for range n {
		data = model.AppendOp(data, byte(rng.UintN(256)), rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40, rng.Uint64()>>40)
	}
	return data
}

func TestPrefixesAgainstModel(t *testing.T) {
	for seed := range seeds.Each(t, 50, 300) {
		s := store.Store(store.NewMemory())
		if seed%3 == 0 {
			s = faults.NewLimited(s, store.Limits{Ops: 16})
		}
		replayPrefixes(t, s, randomPrefixesTrace(rand.New(rand.NewPCG(seed, 1)), 120), 200, 1)
	}
}

func FuzzPrefixes(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomPrefixesTrace(rand.New(rand.NewPCG(seed, 2)), 20))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		replayPrefixes(t, store.NewMemory(), data, 60, 10) // the model is slow
	})
}
