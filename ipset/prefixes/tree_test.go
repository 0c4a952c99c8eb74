package prefixes

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// recorded keeps pages as a store does: encoded, and none that is empty.
type recorded map[pageID]string

func (r recorded) page(id pageID) (*pageCell, error) {
	if r[id] == "" {
		return r.create(id), nil
	}
	p, err := decodePage(r[id], id)
	return &pageCell{occ.NewVar(store.Record{}, p), id}, err
}

func (r recorded) create(id pageID) *pageCell {
	return &pageCell{occ.NewVar(store.Record{}, page{}), id}
}

func (r recorded) set(c *pageCell, p page) {
	if p.empty() {
		delete(r, c.id)
		return
	}
	r[c.id] = p.value()
}

// halves is the free space of a pool as a list of its maximal free prefixes: what a tree
// must say, told in the slowest way.
type halves map[netip.Prefix]bool

func split(p netip.Prefix) (lo, hi netip.Prefix) {
	lo = netip.PrefixFrom(p.Addr(), p.Bits()+1)
	top := addr.FromAddr(p.Addr()).Or(addr.U128{Lo: 1}.Shl(uint(p.Addr().BitLen() - p.Bits() - 1)))
	if p.Addr().Is4() {
		return lo, netip.PrefixFrom(top.Addr4(), p.Bits()+1)
	}
	return lo, netip.PrefixFrom(top.Addr6(), p.Bits()+1)
}

func (h halves) find(n int) (best netip.Prefix, ok bool) {
	for p := range h {
		if p.Bits() > n {
			continue
		}
		if !ok || p.Bits() > best.Bits() || p.Bits() == best.Bits() && p.Addr().Less(best.Addr()) {
			best, ok = p, true
		}
	}
	return netip.PrefixFrom(best.Addr(), n), ok
}

func (h halves) take(at netip.Prefix) bool {
	for p := range h {
		if !p.Overlaps(at) || p.Bits() > at.Bits() {
			continue
		}
		delete(h, p)
		for p != at {
			lo, hi := split(p)
			if lo.Overlaps(at) {
				h[hi], p = true, lo
			} else {
				h[lo], p = true, hi
			}
		}
		return true
	}
	return false
}

func (h halves) give(pool, at netip.Prefix) {
	h[at] = true
	for at != pool {
		up := netip.PrefixFrom(at.Addr(), at.Bits()-1).Masked()
		lo, hi := split(up)
		if !h[lo] || !h[hi] {
			return
		}
		delete(h, lo)
		delete(h, hi)
		h[up], at = true, up
	}
}

func (h halves) sizes(pool netip.Prefix) (s sizes) {
	for p := range h {
		if p != pool {
			s = s.with(p.Bits() - pool.Bits())
		}
	}
	return s
}

// A tree finds, takes and gives back what a list of free prefixes does, over pools of
// every shape of last page, and leaves no page when all is free.
func TestTreeAgreesWithAList(t *testing.T) {
	pools := []struct {
		pool    string
		longest int
	}{
		{"10.0.0.0/24", 32}, {"10.0.0.0/26", 32}, {"10.0.0.0/25", 32}, {"10.0.0.0/30", 32}, {"10.0.0.0/31", 32},
		{"0.0.0.0/0", 32}, {"0.0.0.0/0", 7}, {"192.168.0.0/16", 23}, {"2001:db8::/32", 64}, {"::/0", 127}, {"::/0", 128}, {"10.0.0.1/32", 32}, {"::1/128", 128}, {"8000::/1", 128},
		{"2001:db8::/57", 64}, {"2001:db8::/120", 128},
	}
	for seed := range seeds.Each(t, 20, 20) {
		for _, c := range pools {
			rng := rand.New(rand.NewPCG(seed, 1))
			pool, recs := netip.MustParsePrefix(c.pool), recorded{}
			tr, list := tree{pool, recs, new(path)}, halves{netip.MustParsePrefix(c.pool): true}
			var held []netip.Prefix
			for range 200 {
				n := pool.Bits() + rng.IntN(c.longest-pool.Bits()+1)
				if n == pool.Bits() && n < c.longest && rng.IntN(4) > 0 {
					n++ // else the pool is often held as a whole
				}
				switch {
				case len(held) > 0 && rng.IntN(5) < 2:
					i := rng.IntN(len(held))
					if err := tr.give(held[i]); err != nil {
						t.Fatalf("%v, seed %d: give(%v): %v", pool, seed, held[i], err)
					}
					list.give(pool, held[i])
					held = slices.Delete(held, i, i+1)
				case rng.IntN(4) == 0:
					at := somewhere(rng, pool, n)
					if len(held) > 0 && rng.IntN(2) == 0 { // near one that is held
						h := held[rng.IntN(len(held))]
						at = netip.PrefixFrom(h.Addr(), n).Masked()
					}
					got, err := tr.take(at)
					if want := list.take(at); err != nil || got != want {
						t.Fatalf("%v, seed %d: take(%v) = %v, %v; want %v", pool, seed, at, got, err, want)
					}
					if got {
						held = append(held, at)
					}
				default:
					got, ok, err := tr.find(n - pool.Bits())
					want, wantOK := list.find(n)
					if err != nil || ok != wantOK || ok && got != want {
						t.Fatalf("%v, seed %d: find(/%d) = %v, %v, %v; want %v, %v", pool, seed, n, got, ok, err, want, wantOK)
					}
					if ok {
						if took, err := tr.take(got); !took || err != nil {
							t.Fatalf("%v, seed %d: take(%v) = %v, %v", pool, seed, got, took, err)
						}
						list.take(got)
						held = append(held, got)
					}
				}
				if free, err := tr.free(); err != nil || free != list.sizes(pool) {
					t.Fatalf("%v, seed %d: free sizes %b, %v; want %b", pool, seed, free, err, list.sizes(pool))
				}
			}
			for _, p := range held {
				if err := tr.give(p); err != nil {
					t.Fatalf("%v, seed %d: give(%v): %v", pool, seed, p, err)
				}
			}
			if len(recs) != 0 {
				t.Fatalf("%v, seed %d: %d pages are left when all is free", pool, seed, len(recs))
			}
		}
	}
}

// somewhere returns a random prefix of length n in a pool.
func somewhere(rng *rand.Rand, pool netip.Prefix, n int) netip.Prefix {
	width := pool.Addr().BitLen()
	u := addr.U128{Hi: rng.Uint64(), Lo: rng.Uint64()}.And(addr.Low(uint(width - pool.Bits()))).Or(addr.FromAddr(pool.Addr()))
	if width == 32 {
		return netip.PrefixFrom(u.Addr4(), n).Masked()
	}
	return netip.PrefixFrom(u.Addr6(), n).Masked()
}

// fit returns the highest length that is not above the one asked, over both words.
func TestSizesFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var s sizes
		for range rng.IntN(4) {
			s = s.with(1 + rng.IntN(128))
		}
		for n := range 129 {
			want := 0
			for i := 1; i <= n; i++ {
				if s.has(i) {
					want = i
				}
			}
			if got := s.fit(n); got != want {
				t.Fatalf("%b: fit(%d) = %d, want %d", s, n, got, want)
			}
		}
	}
}

// A page's value is refused when it is cut, longer, or not in its only form.
func TestDecodePageRefuses(t *testing.T) {
	p := page{taken: 6, first: 6}.divide(0, sizes{1 << 9}).divide(63, sizes{1 << 8, 1 << 20})
	value, root := p.value(), pageID{}
	got, err := decodePage(value, root)
	if err != nil || got.taken != p.taken || got.lengths != p.lengths || !slices.Equal(got.below, p.below) {
		t.Fatalf("%v, %v", got, err)
	}
	for cut := 0; cut < len(value); cut++ {
		if _, err := decodePage(value[:cut], root); err == nil {
			t.Errorf("accepted %d of %d bytes", cut, len(value))
		}
	}
	beside := page{taken: 6, first: 6, divided: 1, lengths: sizes{1 << 9}, below: []uint64{1 << 2}}
	nowhere := page{taken: 6, first: 6, divided: 1, lengths: sizes{1 << 9}, below: []uint64{0}}
	above := page{taken: 6, first: 6, divided: 1, lengths: sizes{1 << 5}, below: []uint64{1}}
	for _, bad := range []string{
		value + "\x00", "\x00" + value[1:], "\x02" + value[1:], page{}.value(), page{taken: 1, first: 1, divided: 1}.value(),
		page{taken: 3, first: 2}.value(), page{taken: 7, first: 1}.value(), page{taken: 6, first: 2}.value(), beside.value(), nowhere.value(), above.value(), value[:25] + "\x80\x86\x00" + value[27:], value[:len(value)-1] + "\x00",
	} {
		if _, err := decodePage(bad, root); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

// A pool that is held as a whole is so in its first page; a part of it is a slot of the page above.
func TestWholePage(t *testing.T) {
	tr := tree{pool: prefix("10.0.0.0/8")}
	whole := page{taken: ^uint64(0), first: 1}.value()
	if _, err := decodePage(whole, tr.root()); err != nil {
		t.Error(err)
	}
	if p, err := decodePage(whole, tr.under(tr.root(), 3)); err == nil {
		t.Errorf("below a slot: %+v", p)
	}
}

// A page drops what was held, and nothing else.
func TestDrop(t *testing.T) {
	for order := range pageBits + 1 {
		for slot := 0; slot < 64; slot += 1 << order {
			for other := range pageBits + 1 {
				for at := range 64 {
					var p page
					if !p.hold(slot, order) {
						t.Fatal(slot, order)
					}
					want := at == slot && other == order
					if p.drop(at, other) != want || p.empty() != want {
						t.Errorf("2^%d slots from %d held, 2^%d from %d dropped: %v, want %v", order, slot, other, at, !want, want)
					}
				}
			}
		}
	}
}

// Summaries of slots in any order leave what the last one of each slot says.
func TestSetRoom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var p page
		want := map[int]sizes{}
		for range 100 {
			slot, s := rng.IntN(8), sizes{}
			for range rng.IntN(4) {
				s = s.with(7 + rng.IntN(122))
			}
			if p, want[slot] = p.divide(slot, s), s; len(p.below) != p.lengths.len() {
				t.Fatal(p)
			}
			var all sizes
			for slot, s := range want {
				if all = all.or(s); p.under(slot) != s {
					t.Fatalf("slot %d: %b, want %b", slot, p.under(slot), s)
				}
			}
			if p.lengths != all {
				t.Fatalf("%b, want %b", p.lengths, all)
			}
			if q, err := decodePage(p.value(), pageID{}); err != nil || q.lengths != p.lengths || !slices.Equal(q.below, p.below) {
				t.Fatal(q, err)
			}
		}
	}
}

// counted counts the pages that are written.
type counted struct {
	recorded
	sets *int
}

func (c counted) set(cell *pageCell, p page) {
	*c.sets++
	c.recorded.set(cell, p)
}

// A page is written alone if what it says to the page above stays the same.
func TestStoreStopsWhereNothingChanges(t *testing.T) {
	sets := 0
	tr := tree{prefix("10.0.0.0/8"), counted{recorded{}, &sets}, new(path)}
	for _, step := range []struct {
		at    string
		pages int
	}{{"10.0.0.0/32", 4}, {"10.0.0.2/32", 4}, {"10.0.0.1/32", 1}} { // the last leaves runs of the same lengths
		sets = 0
		if ok, err := tr.take(prefix(step.at)); !ok || err != nil || sets != step.pages {
			t.Errorf("%s: %v, %v, %d pages written, want %d", step.at, ok, err, sets, step.pages)
		}
	}
}
