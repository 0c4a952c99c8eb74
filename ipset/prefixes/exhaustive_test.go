package prefixes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// states returns every way to hold prefixes of a prefix, itself or parts of it down to
// single addresses.
func states(p netip.Prefix) [][]netip.Prefix {
	if p.IsSingleIP() {
		return [][]netip.Prefix{nil, {p}}
	}
	lo, hi := split(p)
	all := [][]netip.Prefix{{p}}
	for _, l := range states(lo) {
		for _, h := range states(hi) {
			all = append(all, append(append([]netip.Prefix(nil), l...), h...))
		}
	}
	return all
}

// inside returns a prefix and all that lie in it.
func inside(p netip.Prefix) []netip.Prefix {
	if p.IsSingleIP() {
		return []netip.Prefix{p}
	}
	lo, hi := split(p)
	return append(append([]netip.Prefix{p}, inside(lo)...), inside(hi)...)
}

// world is an allocator and its twin in one state.
type world struct {
	t     *testing.T
	pool  Pool
	store *store.Memory
	m     *model.Prefixes
}

func (w *world) allocator() *Allocator {
	a, err := New(w.store, Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// same compares an answer with the twin's, by the sentinel that the word stands for.
func (w *world) same(what string, got netip.Prefix, err error, want netip.Prefix, why string) {
	w.t.Helper()
	sentinel := map[string]error{
		"full": ipalloc.ErrFull, "occupied": ipalloc.ErrOccupied, "not held": ipalloc.ErrNotHeld,
	}[why]
	if !errors.Is(err, sentinel) || why == "" && (err != nil || got != want) {
		w.t.Fatalf("%s in %v: %v, %v, want %v, %q", what, w.m.Sorted(), got, err, want, why)
	}
	held := 0
	for h, err := range w.allocator().All(w.t.Context(), netip.Prefix{}) {
		if held++; err != nil || w.m.Held[h.Prefix].Owner != h.Owner {
			w.t.Fatalf("%s: held %v, %v; the twin has %v", what, h, err, w.m.Held)
		}
	}
	if rep, err := w.allocator().Check(w.t.Context()); err != nil || len(rep.Problems) > 0 || rep.Holdings != held || held != len(w.m.Held) {
		w.t.Fatalf("%s: %+v, %v; held %d, the twin has %d", what, rep, err, held, len(w.m.Held))
	}
}

// back makes the store and the twin what they were.
func (w *world) back(was map[netip.Prefix]model.PrefixHolding) {
	w.t.Helper()
	for at, h := range w.m.Held {
		if _, ok := was[at]; !ok {
			if err := w.allocator().Release(w.t.Context(), at, h.Owner); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for at, h := range was {
		if _, ok := w.m.Held[at]; !ok {
			if _, err := w.allocator().Occupy(w.t.Context(), at, Request{Pool: w.pool.Prefix, Owner: h.Owner}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.m.Held = was
}

// every carries out every operation of the state, each with an allocator that has cached
// nothing and from the same state.
func (w *world) every(part netip.Prefix) {
	ctx := context.Background()
	was := maps.Clone(w.m.Held)
	try := func(op func(a *Allocator)) {
		op(w.allocator())
		if !maps.Equal(was, w.m.Held) {
			w.back(maps.Clone(was))
		}
	}
	for n := w.pool.Sizes.Shortest - 1; n <= w.pool.Sizes.Longest; n++ {
		for _, owner := range []string{"a", "b"} {
			r, h := Request{Pool: w.pool.Prefix, Owner: owner, Bits: n}, model.PrefixHolding{Owner: owner, Pool: w.pool.Prefix}
			if n == w.pool.Prefix.Bits() {
				continue
			}
			try(func(a *Allocator) {
				want, why := w.m.Assign(n, h)
				got, err := a.Assign(ctx, r)
				w.same(fmt.Sprint("Assign /", n, " ", owner), got.Prefix, err, want, why)
			})
			try(func(a *Allocator) {
				fits, _ := a.Fits(ctx, r.Pool, n)
				want, why := w.m.Allocate(n, h)
				got, err := a.Allocate(ctx, r)
				w.same(fmt.Sprint("Allocate /", n), got.Prefix, err, want, why)
				if fits != want {
					w.t.Fatalf("Fits(/%d) = %v, want %v", n, fits, want)
				}
			})
		}
	}
	for _, at := range inside(part) {
		if at == w.pool.Prefix {
			continue
		}
		for _, owner := range []string{"a", "b"} {
			try(func(a *Allocator) {
				why, inTheWay := w.m.Occupy(at, model.PrefixHolding{Owner: owner, Pool: w.pool.Prefix})
				got, err := a.Occupy(ctx, at, Request{Pool: w.pool.Prefix, Owner: owner})
				w.same(fmt.Sprint("Occupy ", at), got.Prefix, err, at, why)
				var e *ipalloc.Error
				if errors.As(err, &e) && (e.InTheWay != inTheWay || e.Holder != "a" && inTheWay.IsValid()) {
					w.t.Fatalf("Occupy(%v): %v, want %v in the way", at, err, inTheWay)
				}
			})
			try(func(a *Allocator) {
				why := w.m.Release(owner, at)
				w.same(fmt.Sprint("Release ", at), at, a.Release(ctx, at, owner), at, why)
			})
		}
	}
	try(func(a *Allocator) {
		w.m.ReleaseByOwner("a")
		_, err := a.ReleaseByOwner(ctx, "a")
		w.same("ReleaseByOwner", part, err, part, "")
	})
}

// In every state of a pool of eight addresses, and of eight addresses that begin a page of
// their own in a larger pool, every operation answers as the twin does.
func TestEveryState(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		pool  Pool
		part  netip.Prefix
		taken []netip.Prefix // the rest of the pool
	}{
		{Pool{p("10.0.0.0/29"), Sizes{30, 32}}, p("10.0.0.0/29"), nil},
		{Pool{p("10.0.0.0/23"), Sizes{24, 32}}, p("10.0.0.8/29"), []netip.Prefix{
			p("10.0.1.0/24"), p("10.0.0.128/25"), p("10.0.0.64/26"), p("10.0.0.32/27"), p("10.0.0.16/28"), p("10.0.0.0/29")}},
	} {
		all := states(c.part)
		for i, state := range all {
			if testing.Short() && i%7 != 0 || c.taken == nil && len(state) == 1 && state[0] == c.part {
				continue
			}
			w := &world{t, c.pool, store.NewMemory(), model.NewPrefixes()}
			w.m.AddPool(model.PrefixPool{Prefix: c.pool.Prefix, Shortest: c.pool.Sizes.Shortest, Longest: c.pool.Sizes.Longest})
			if err := w.allocator().AddPool(t.Context(), c.pool); err != nil {
				t.Fatal(err)
			}
			was := map[netip.Prefix]model.PrefixHolding{}
			for _, at := range append(state, c.taken...) {
				was[at] = model.PrefixHolding{Owner: "a", Pool: c.pool.Prefix}
			}
			w.back(was)
			w.every(c.part)
		}
	}
}

// In every state of a pool of 16 addresses, all 458,329 of them, its page finds what a scan
// finds, and gives and takes every prefix that can be given or taken.
func TestEveryPage(t *testing.T) {
	half := states(netip.MustParsePrefix("10.0.0.0/29"))
	type held struct{ free, first uint16 } // addresses
	side := make([]held, len(half))
	for i, state := range half {
		side[i].free = 0xff
		for _, p := range state {
			at := p.Addr().As4()[3]
			side[i].free &^= uint16(1<<(1<<(32-p.Bits()))-1) << at
			side[i].first |= 1 << at
		}
	}
	// A page of a /28 has 64 slots, four for each address.
	spread := func(b uint16) (w uint64) {
		for ; b != 0; b &= b - 1 {
			w |= 0xf << (4 * bits.TrailingZeros16(b))
		}
		return w
	}
	for _, lo := range side {
		for _, hi := range side {
			free, first := lo.free|hi.free<<8, lo.first|hi.first<<8
			p := page{taken: ^spread(free)}
			for f := first; f != 0; f &= f - 1 {
				p.first |= 1 << (4 * bits.TrailingZeros16(f))
			}
			if !p.sound() {
				t.Fatalf("%016b, %016b is not sound", free, first)
			}
			runs := p.runs()
			for order := range 5 { // of 2^order addresses
				want, n := uint64(0), 1<<order
				for at := 0; at < 16; at += n {
					mask := uint16(1<<n - 1)
					whole, pair := mask<<at, uint16(1<<(2*n)-1)<<(at&^(2*n-1))
					if n == 16 {
						pair = 0 // there is none
					}
					if free&whole == whole && (pair == 0 || free&pair != pair) {
						want |= 1 << (4 * at)
					}
					if order == 4 {
						continue
					}
					if q := p; q.hold(4*at, order+2) != (free&whole == whole) || !q.sound() {
						t.Fatalf("%016b: hold of %d at %d", free, n, at)
					} else if free&whole == whole && (!q.drop(4*at, order+2) || q.taken != p.taken || q.first != p.first) {
						t.Fatalf("%016b: drop of %d at %d", free, n, at)
					}
					held := free&whole == 0 && first&whole == 1<<at && (at+n == 16 || (free|first)>>(at+n)&1 == 1)
					if q := p; q.drop(4*at, order+2) != held || !q.sound() {
						t.Fatalf("%016b, %016b: drop of %d at %d, held %v", free, first, n, at, held)
					}
				}
				if runs[order+2] != want {
					t.Fatalf("%016b: runs of %d at %016x, want %016x", free, n, runs[order+2], want)
				}
			}
		}
	}
}
