package bitmap

import (
	"slices"
	"strings"
	"testing"
)

// A damaged set is built afresh for each damage: over [0, 2^24+77], with mixed
// pages, a child smaller than its slot, spares in the tree, pages and an inner node
// in reserve, and order summaries.
func checkedSet(t *testing.T) *Bitmap {
	b := New(1<<24 + 78)
	for x := uint64(0); x < 1<<18; x += 4096 {
		b.Set(x)
	}
	b.Set(1<<20 + 5)                    // alone in its slot: a page right under a high node
	b.SetRange(1<<22, 1<<22+1<<19+4096) // cuts and marks
	b.ClearRange(1<<22+77, 1<<22+1<<19)
	for x := uint64(0); x < 8*4096; x += 4096 { // pages that become clear, and stay
		b.Clear(x)
	}
	b.SetRange(1<<23, 1<<23+1<<18) // and goes again, inner nodes and all
	b.ClearRange(1<<23, 1<<23+1<<18)
	b.Clear(1<<24 + 77)
	b.BestFit(0)
	if err := b.Check(); err != nil {
		t.Fatalf("an intact set fails its own check: %v", err)
	}
	if b.pool == nil || len(b.pool.spare) == 0 || len(b.pool.inner) == 0 {
		t.Fatalf("the set has no reserve to damage: %+v", b.pool)
	}
	return b
}

// first returns the first node below nd for which ok says so, its parent and its
// slot there.
func first(nd *node, ok func(up, kid *node, c uint64) bool) (up, kid *node, c uint64) {
	if nd.kid == nil {
		return nil, nil, 0
	}
	for i, k := range nd.kid {
		if k == nil {
			continue
		}
		if ok(nd, k, uint64(i)) {
			return nd, k, uint64(i)
		}
		if up, kid, c = first(k, ok); kid != nil {
			return up, kid, c
		}
	}
	return nil, nil, 0
}

func isMixedPage(up, kid *node, c uint64) bool { return kid.kid == nil && up.mixed(c) }
func isInner(_, kid *node, _ uint64) bool      { return kid.kid != nil }
func isSmaller(up, kid *node, _ uint64) bool   { return up.smaller(kid) }
func isSpare(_, kid *node, _ uint64) bool      { return kid.spare != 0 }

// Check recomputes everything derived, so each damage to one of them is found.
func TestCheckFindsEveryDamage(t *testing.T) {
	damages := map[string]func(b *Bitmap){
		"count":                   func(b *Bitmap) { b.count++ },
		"root shift":              func(b *Bitmap) { b.root.shift += fanBits },
		"root base":               func(b *Bitmap) { b.root.base = 1 << 30 },
		"room of the root":        func(b *Bitmap) { b.root.room ^= 1 },
		"some of the root":        func(b *Bitmap) { b.root.some ^= 1 },
		"neither room nor some":   func(b *Bitmap) { b.root.room, b.root.some = 0, 0 },
		"count of a slot":         func(b *Bitmap) { b.root.words[0]++ },
		"count of a clear slot":   func(b *Bitmap) { _, nd, _ := first(&b.root, isInner); nd.words[clearSlot(nd)] = 1 },
		"tail: slots beyond n":    func(b *Bitmap) { _, nd, c := tail(b); nd.room |= 1 << (c + 1); nd.some |= 1 << (c + 1) },
		"tail: bits beyond n":     func(b *Bitmap) { _, nd, c := tail(b); nd.words[c] &^= 1 << 63 },
		"tail: words beyond n":    func(b *Bitmap) { _, nd, c := tail(b); nd.words[c+1] = 0; nd.setState(c+1, 0) },
		"page word":               func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.words[5] ^= 2 },
		"room of a page":          func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.room ^= 1 << 7 },
		"some of a page":          func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.some ^= 1 << 7 },
		"room of an inner node":   func(b *Bitmap) { up, _, c := first(&b.root, isMixedPage); up.room ^= 1 << c },
		"some of an inner node":   func(b *Bitmap) { up, _, c := first(&b.root, isMixedPage); up.some ^= 1 << c },
		"mixed slot, no child":    func(b *Bitmap) { up, _, c := first(&b.root, isMixedPage); up.kid[c] = nil },
		"child of another slot":   func(b *Bitmap) { up, nd, c := first(&b.root, isMixedPage); up.kid[c] = nil; up.kid[c^1] = nd },
		"base of a page":          func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.base ^= 1 << 13 },
		"base not aligned":        func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.base |= 64 },
		"shift of an inner node":  func(b *Bitmap) { _, nd, _ := first(&b.root, isInner); nd.shift += fanBits },
		"rest of a smaller child": func(b *Bitmap) { _, nd, _ := first(&b.root, isSmaller); nd.outer = !nd.outer },
		"rest of a full child":    func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.outer = true },
		"spare lost":              func(b *Bitmap) { b.pool.spare = b.pool.spare[1:] },
		"spare misnumbered":       func(b *Bitmap) { b.pool.spare[0].spare++ },
		"spare not marked":        func(b *Bitmap) { b.pool.spare[0].spare = 0 },
		"spare out of step":       func(b *Bitmap) { _, nd, _ := first(&b.root, isSpare); nd.words[3] = 1; nd.setState(3, 1) },
		"mixed page marked spare": func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.spare = 1 },
		"no reserve":              func(b *Bitmap) { b.pool = nil },
		"reserve over its limit":  func(b *Bitmap) { b.pool.page = append(b.pool.page, make([]*node, maxPages+1)...) },
		"inner nodes over limit":  func(b *Bitmap) { b.pool.inner = append(b.pool.inner, make([]*node, maxInners+1)...) },
		"reserve with a child":    func(b *Bitmap) { b.pool.inner[0].kid[9] = &node{} },
		"order of the root":       func(b *Bitmap) { b.root.order.mask[0] ^= 1 },
		"order of the root, high": func(b *Bitmap) { b.root.order.next.mask[2] ^= 1 },
		"order of a page":         func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.order.mask[0] ^= 1 },
		"order of a lost child":   func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.order = nil },
		"order of a stale child":  func(b *Bitmap) { _, nd, _ := first(&b.root, isMixedPage); nd.order.stale = 1 },
	}
	for name, damage := range damages {
		b := checkedSet(t)
		damage(b)
		if err := b.Check(); err == nil {
			t.Errorf("%s: Check finds nothing", name)
		} else if !strings.HasPrefix(err.Error(), "bitmap: ") {
			t.Errorf("%s: error %q does not say whose it is", name, err)
		}
	}
}

// Sets of two and of three levels find pages by an array, which Check compares with the tree.
func TestCheckFindsEveryDamageToPages(t *testing.T) {
	for _, n := range []uint64{1 << 13, 1 << 18, 1 << 20, 3<<22 - 77, 1 << 24} {
		for name, damage := range map[string]func(b *Bitmap){
			"none":      func(b *Bitmap) { b.pages = nil },
			"one short": func(b *Bitmap) { b.pages = b.pages[:len(b.pages)-1] },
			"a copy":    func(b *Bitmap) { b.pages = slices.Clone(b.pages) },
			"of another node": func(b *Bitmap) {
				up, _, _ := first(&b.root, isMixedPage)
				up.kid = new([fan]*node)
				*up.kid = [fan]*node(b.pages)
			},
			"without a parent": func(b *Bitmap) { b.pages[len(b.pages)-1] = &node{} },
		} {
			b := New(n)
			for lo := uint64(0); lo < n; lo += 1 << 13 { // every other page
				b.Set(lo)
			}
			if b.gathers() {
				b.ClearRange((n-1)>>18<<18, n-1) // the last slot has no node
			}
			if err := b.Check(); err != nil || b.pages == nil {
				t.Fatalf("n=%d: an intact set: %v, %d places", n, err, len(b.pages))
			}
			if damage(b); b.Check() == nil && !(name == "none" && b.gathers()) {
				t.Errorf("n=%d: %s: Check finds nothing", n, name)
			}
		}
	}
}

// The array over three levels is there once a quarter of the slots has a node, and goes
// with the last of them. A copy has one of its own.
func TestPagesFollowTheNodes(t *testing.T) {
	b := NewPow2(24)
	fork := func(c uint64) { b.Set(c << 18); b.Set(c<<18 + 1<<17) } // two pages far apart: a node
	for c := range uint64(15) {
		fork(c)
	}
	if b.pages != nil {
		t.Errorf("pages after 15 nodes")
	}
	fork(40)
	if b.pages == nil {
		t.Fatalf("no pages after 16 nodes")
	}
	c := b.Clone()
	if c.pages == nil || c.near(40<<18) == b.near(40<<18) {
		t.Errorf("a clone without pages, or with those of its original")
	}
	for c := uint64(1); c < 64; c++ {
		b.ClearRange(c<<18, c<<18|(1<<18-1))
	}
	if b.near(0) == nil || b.near(40<<18) != nil {
		t.Errorf("pages have what is gone, or not what is left")
	}
	b.SetRange(0, 1<<18-1)
	if b.pages != nil {
		t.Errorf("pages without a node")
	}
	fork(3) // a node from the reserve
	for _, b := range []*Bitmap{b, c} {
		if err := b.Check(); err != nil {
			t.Error(err)
		}
	}
}

// clearSlot returns a slot of nd that is wholly clear.
func clearSlot(nd *node) uint64 { return lowest(nd.room &^ nd.some) }

// tail returns the page in which the set ends, and the word of its last ordinal.
func tail(b *Bitmap) (up, page *node, c uint64) {
	page = &b.root
	for page.kid != nil {
		up, page = page, page.kid[page.slot(b.last)]
	}
	return up, page, page.slot(b.last)
}

// An untouched set has nothing to be wrong but what says that it is one.
func TestCheckOfUntouchedSets(t *testing.T) {
	for name, b := range map[string]*Bitmap{
		"count":         {last: 9, some: true, count: 1},
		"reserve":       {last: 9, some: true, pool: &pool{}},
		"touched, n=0":  {touched: true},
		"touched, bare": {last: 9, some: true, touched: true},
	} {
		if b.Check() == nil {
			t.Errorf("%s: Check finds nothing", name)
		}
	}
}
