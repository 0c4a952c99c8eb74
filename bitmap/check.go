package bitmap

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/ipalloc/ipalloc"
)

// Check recomputes everything the set derives: summary words, counts, order summaries,
// unused nodes and the tail beyond n. It returns nil, or an [*ipalloc.Error] that matches
// [ipalloc.ErrCorrupt] and names the first contradiction. It is for tests and for data
// from outside the program. O(memory).
func (b *Bitmap) Check() error {
	if err := b.contradiction(); err != nil {
		return &ipalloc.Error{Package: "bitmap", Op: "check", Reason: err.Error(), Err: ipalloc.ErrCorrupt}
	}
	return nil
}

func (b *Bitmap) contradiction() error {
	if !b.touched {
		if b.count != 0 || b.pool != nil {
			return errors.New("an untouched set has a count or a reserve")
		}
		return nil
	}
	if !b.some {
		return errors.New("nodes over no ordinals")
	}
	if got := rootShift(b.last); b.root.shift != got || b.root.base != 0 {
		return fmt.Errorf("root has shift %d and base %d, want %d and 0", b.root.shift, b.root.base, got)
	}
	if err := b.checkPages(); err != nil {
		return err
	}
	spares := 0
	count, err := b.checkNode(&b.root, &spares)
	if err != nil {
		return err
	}
	if count != b.count {
		return fmt.Errorf("count is %d, nodes have %d", b.count, count)
	}
	return b.checkPool(spares)
}

func (b *Bitmap) checkPages() error {
	want := uint64(0)
	if b.root.shift == pageShift {
		if len(b.pages) != 1 || b.pages[0] != &b.root {
			return errors.New("pages is not the root")
		}
		return nil
	}
	if b.root.shift == pageBits {
		want = fan
	} else if b.gathers() && b.pages != nil {
		want = (b.root.slot(b.last) + 1) * fan
	}
	if uint64(len(b.pages)) != want {
		return fmt.Errorf("pages has %d places, want %d", len(b.pages), want)
	}
	for i, page := range b.pages {
		if page == nil {
			continue
		}
		if _, nd := b.parents(page); nd == nil || page.base>>pageBits != uint64(i) {
			return fmt.Errorf("place %d of pages has a page that is not there", i)
		}
	}
	return nil
}

func (b *Bitmap) checkPool(spares int) error {
	if b.pool == nil {
		if spares != 0 {
			return fmt.Errorf("%d spares without a reserve", spares)
		}
		return nil
	}
	p := b.pool
	if len(p.spare) != spares || spares > maxSpares || len(p.page) > maxPages || len(p.inner) > maxInners {
		return fmt.Errorf("reserve of %d spares (%d in the tree), %d pages, %d inner nodes",
			len(p.spare), spares, len(p.page), len(p.inner))
	}
	for i, nd := range p.spare {
		if int(nd.spare) != i+1 {
			return fmt.Errorf("spare %d says it is number %d", i, nd.spare)
		}
	}
	for _, nd := range p.inner {
		if nd.kid != nil && *nd.kid != [fan]*node{} {
			return errors.New("inner node in reserve has a child")
		}
	}
	return nil
}

func (b *Bitmap) checkNode(nd *node, spares *int) (count uint64, err error) {
	where := func(format string, args ...any) error {
		return fmt.Errorf("node [%d, %d] shift %d: %s", nd.base, nd.end(), nd.shift, fmt.Sprintf(format, args...))
	}
	if nd.room|nd.some != ^uint64(0) {
		return 0, where("slots %x have neither room nor some", ^(nd.room | nd.some))
	}
	if nd.kid != nil && nd.shift == pageBits && b.pages != nil && nd.kid != b.section(nd.base) {
		return 0, where("its children are not in pages")
	}
	if nd.order != nil && b.root.order == nil {
		return 0, where("an order summary, and none in the root")
	}
	if nd.base&(1<<(nd.shift+fanBits)-1) != 0 {
		return 0, where("not aligned")
	}
	for c := range uint64(fan) {
		n, err := b.checkSlot(nd, c, spares)
		if err != nil {
			return 0, err
		}
		if n > b.size(nd, c) {
			return 0, where("slot %d counts %d of %d", c, n, b.size(nd, c))
		}
		if nd.kid != nil && n != nd.words[c] {
			return 0, where("slot %d counts %d, has %d", c, nd.words[c], n)
		}
		if b.size(nd, c) == 0 && (nd.room>>c&1 != 0 || (nd.kid == nil && nd.words[c] != ^uint64(0))) {
			return 0, where("slot %d beyond %d is not set", c, b.last)
		}
		count += n
	}
	if err := nd.checkOrder(); err != nil {
		return 0, where("%v", err)
	}
	return count, nil
}

// checkSlot returns how many ordinals below n slot c holds.
func (b *Bitmap) checkSlot(nd *node, c uint64, spares *int) (uint64, error) {
	lo, full := nd.start(c), nd.some>>c&1 != 0
	bad := func(format string, args ...any) (uint64, error) {
		return 0, fmt.Errorf("slot %d of node [%d, %d] shift %d: %s", c, nd.base, nd.end(), nd.shift, fmt.Sprintf(format, args...))
	}
	if nd.kid == nil {
		w := nd.words[c]
		if (w != ^uint64(0)) != (nd.room>>c&1 != 0) || (w != 0) != full {
			return bad("word %016x, room and some disagree", w)
		}
		if lo > b.last {
			return 0, nil
		}
		if b.last-lo < 63 {
			if w|through(b.last-lo) != ^uint64(0) {
				return bad("ordinals beyond %d are clear", b.last)
			}
			w &= through(b.last - lo)
		}
		return uint64(bits.OnesCount64(w)), nil
	}
	whole := b.size(nd, c) & fill(full)
	if nd.kid[c] == nil {
		if nd.mixed(c) {
			return bad("mixed, and no child")
		}
		return whole, nil
	}
	kid := nd.kid[c]
	if (kid.base^lo)>>nd.shift != 0 || kid.shift+fanBits > nd.shift || (kid.outer && !nd.smaller(kid)) {
		return bad("child [%d, %d] is misplaced", kid.base, kid.end())
	}
	n, err := b.checkNode(kid, spares)
	if err != nil {
		return 0, err
	}
	if room, some := nd.state(kid); room != nd.room>>c&1 || some != nd.some>>c&1 {
		return bad("room and some disagree with the child's")
	}
	if nd.mixed(c) != (kid.spare == 0) {
		return bad("mixed: %v, child is spare %d", nd.mixed(c), kid.spare)
	}
	if kid.spare != 0 {
		*spares++
		if kid.kid != nil {
			return bad("a spare that is not a page")
		}
		return whole, nil
	}
	if kid.outer {
		n += b.size(nd, c) - b.nodeSize(kid)
	}
	return n, nil
}

// nodeSize returns how many ordinals below n lie in nd, which is not the root.
func (b *Bitmap) nodeSize(nd *node) uint64 {
	if nd.base > b.last {
		return 0
	}
	return min(b.last-nd.base, nd.end()-nd.base) + 1
}
