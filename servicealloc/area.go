package servicealloc

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// windowBits is the order of a window: what one bitmap can number.
const windowBits = 64

// An area is a stretch of addresses of any length, up to all of IPv6. Up to 2^64 of
// them are one space. What is longer is a row of windows of 2^64, of which only those
// exist that hold something, and the one that dynamic picks come from; when that has
// no dynamic address left, the next one that has takes its place. So an address named
// far away costs a bitmap with one bit, and the row is ordered.
//
// Like a space it has no lock.
type area struct {
	v4    bool
	none  bool      // there is no address at all
	order uint8     // windowBits, but for tests
	first addr.U128 // the address of ordinal 0
	last  addr.U128 // the highest ordinal

	one   space // the only window, where one is enough
	*wide       // nil there
}

// wide is what an area of several windows has.
type wide struct {
	zones      []zone       // the bands, in ordinals
	rows       []window     // those that exist, ascending
	cur        uint64       // the index of the window that dynamic picks come from
	size, used [3]addr.U128 // by Band, over all windows
}

type window struct {
	idx uint64
	*space
}

// A place is where an allocation goes: a position in the window idx.
type place struct{ idx, x uint64 }

// newArea returns an area of the addresses first..last with the bands that merged
// zones, in addresses, say. An area of no address has none set.
func newArea(v4 bool, order uint8, first, last addr.U128, none bool, zones []zone) *area {
	a := &area{v4: v4, order: order, first: first, last: last.Sub(first), none: none}
	if none {
		return a
	}
	zones = relative(zones, first)
	if a.index(a.last) == 0 {
		a.one.init(a.last.Lo, zones, addr.U128{})
		return a
	}
	a.wide = &wide{zones: zones}
	for _, z := range zones {
		a.size[z.band] = a.size[z.band].Add(z.hi.Sub(z.lo)).Add(addr.U128{Lo: 1})
	}
	return a
}

// relative returns zones as seen from first.
func relative(zones []zone, first addr.U128) []zone {
	zones = slices.Clone(zones)
	for i, z := range zones {
		zones[i] = zone{z.lo.Sub(first), z.hi.Sub(first), z.band}
	}
	return zones
}

func (a *area) index(ord addr.U128) uint64 { return ord.Shr(uint(a.order)).Lo }

// offset returns the position of ord in its window.
func (a *area) offset(ord addr.U128) uint64 { return ord.Lo & a.mask() }

func (a *area) mask() uint64 { return ^uint64(0) >> (64 - a.order) }

// base returns the ordinal that window idx begins at.
func (a *area) base(idx uint64) addr.U128 { return addr.U128{Lo: idx}.Shl(uint(a.order)) }

// find returns the window idx and where it is, or would be, in the row.
func (a *area) find(idx uint64) (*space, int) {
	i, ok := slices.BinarySearchFunc(a.rows, idx, func(w window, idx uint64) int { return cmp.Compare(w.idx, idx) })
	if !ok {
		return nil, i
	}
	return a.rows[i].space, i
}

// at returns the window idx, or nil if nothing was ever taken in it.
func (a *area) at(idx uint64) *space {
	if a.wide == nil {
		return &a.one
	}
	s, _ := a.find(idx)
	return s
}

// fresh returns window idx as it is while nothing is taken in it.
func (a *area) fresh(idx uint64) *space {
	last := a.mask()
	if idx == a.index(a.last) {
		last = a.offset(a.last)
	}
	s := new(space)
	s.init(last, a.zones, a.base(idx))
	return s
}

// open returns window idx, which exists from now on.
func (a *area) open(idx uint64) *space {
	if a.wide == nil {
		return &a.one
	}
	s, i := a.find(idx)
	if s == nil {
		s = a.fresh(idx)
		a.rows = slices.Insert(a.rows, i, window{idx, s})
	}
	return s
}

// locate returns the ordinal of ip, which is not in the area if it has none.
func (a *area) locate(ip netip.Addr) (addr.U128, bool) {
	if a.v4 {
		if !ip.Is4() {
			return addr.U128{}, false
		}
		b := ip.As4()
		x := uint64(binary.BigEndian.Uint32(b[:])) - a.first.Lo // below first it comes round to a huge one
		return addr.U128{Lo: x}, x <= a.last.Lo && !a.none
	}
	// AppendBinary, because As16 hands over an array that was written in halves and is
	// copied whole, which a processor can't forward from its store buffer. It gives 4
	// bytes for IPv4, 0 for no address, and more than 16 for a zone.
	var buf [32]byte
	b, _ := ip.AppendBinary(buf[:0])
	if len(b) != 16 || ip.Is4In6() {
		return addr.U128{}, false
	}
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(b[8:]), a.first.Lo, 0)
	hi, _ := bits.Sub64(binary.BigEndian.Uint64(b), a.first.Hi, borrow)
	ok := hi < a.last.Hi || hi == a.last.Hi && lo <= a.last.Lo
	return addr.U128{Hi: hi, Lo: lo}, ok && !a.none
}

// addr returns the address of position x in window idx.
func (a *area) addr(idx, x uint64) netip.Addr {
	if a.wide == nil {
		return a.addrOne(x)
	}
	u := a.first.Add(a.base(idx)).Add(addr.U128{Lo: x})
	if a.v4 {
		return u.Addr4()
	}
	return u.Addr6()
}

// addrOne is addr where there is one window.
func (a *area) addrOne(x uint64) netip.Addr {
	if a.v4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(a.first.Lo+x))
		return netip.AddrFrom4(b)
	}
	lo, carry := bits.Add64(a.first.Lo, x, 0)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.first.Hi+carry)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

// bandOf returns the band of ord.
func (a *area) bandOf(ord addr.U128) Band {
	if a.wide == nil {
		return a.one.bandOf(ord.Lo)
	}
	return bandIn(a.zones, ord)
}

// has reports whether ord is taken.
func (a *area) has(ord addr.U128) bool {
	s := a.at(a.index(ord))
	return s != nil && s.bits.Test(a.offset(ord))
}

// take takes ord whatever its band and reports whether it was free.
func (a *area) take(ord addr.U128) bool {
	s, x := a.open(a.index(ord)), a.offset(ord)
	ok := s.take(x)
	if ok && a.wide != nil {
		inc(&a.used[s.bandOf(x)])
	}
	return ok
}

// drop releases ord and reports whether it was taken. A window that holds nothing any
// more goes, unless picks come from it.
func (a *area) drop(ord addr.U128) bool {
	if a.wide == nil {
		return a.one.drop(ord.Lo)
	}
	idx := a.index(ord)
	s, i := a.find(idx)
	x := a.offset(ord)
	if s == nil || !s.drop(x) {
		return false
	}
	dec(&a.used[s.bandOf(x)])
	if idx != a.cur && s.bits.Empty() {
		a.rows = slices.Delete(a.rows, i, i+1)
	}
	return true
}

// count returns the size of band b and how much of it is taken.
func (a *area) count(b Band) (size, used addr.U128) {
	switch {
	case a.none:
		return addr.U128{}, addr.U128{}
	case a.wide != nil:
		return a.wide.size[b], a.wide.used[b]
	case b == Closed:
		return addr.U128{}, a.one.closed
	}
	return a.one.band(b).size, a.one.band(b).used
}

func (a *area) free(b Band) addr.U128 {
	size, used := a.count(b)
	return size.Sub(used)
}

func (a *area) bandFull(b Band) bool { return a.free(b).IsZero() }

// choose returns the band that the next pick comes from, Closed if there is none.
func (a *area) choose(spill bool) Band {
	switch {
	case !a.bandFull(Dynamic):
		return Dynamic
	case spill && !a.bandFull(Static):
		return Static
	}
	return Closed
}

// plan returns where the next pick from band b goes, and changes nothing. The band
// has room.
func (a *area) plan(b Band, p *picker) place {
	if a.wide == nil {
		return place{0, a.one.peek(b, p.next)}
	}
	idx := a.roomy(b, a.startWindow(b, p))
	s := a.at(idx)
	if s == nil {
		s = a.fresh(idx)
	}
	return place{idx, s.peek(b, p.next)}
}

// pick takes what plan names.
func (a *area) pick(b Band, p *picker) place {
	if a.wide == nil {
		return place{0, a.one.takeNext(b, p.next)}
	}
	idx := a.roomy(b, a.startWindow(b, p))
	a.enter(b, idx)
	inc(&a.used[b])
	return place{idx, a.open(idx).takeNext(b, p.next)}
}

// startWindow returns where the walk over the windows begins: lowest first means the
// lowest window too.
func (a *area) startWindow(b Band, p *picker) uint64 {
	if b == Dynamic && p.src != nil {
		return a.cur
	}
	return 0
}

// enter makes idx the window that dynamic picks come from.
func (a *area) enter(b Band, idx uint64) {
	if b != Dynamic || idx == a.cur {
		return
	}
	if s, i := a.find(a.cur); s != nil && s.bits.Empty() {
		a.rows = slices.Delete(a.rows, i, i+1)
	}
	a.cur = idx
}

// roomy returns the first window at or after idx, coming round, where band b, which
// has room somewhere, has room. It looks at existing windows and at zones only, never
// at the windows between them.
func (a *area) roomy(b Band, idx uint64) uint64 {
	for {
		next, ok := a.nextIn(b, idx)
		if !ok {
			idx = 0
			continue
		}
		if s := a.at(next); s == nil || !s.band(b).full() {
			return next
		}
		idx = next + 1 // after the last of 2^64 windows this is the first
	}
}

// nextIn returns the first window at or after idx that has positions of band b.
func (a *area) nextIn(b Band, idx uint64) (uint64, bool) {
	for _, z := range a.zones {
		if z.band == b && a.index(z.hi) >= idx {
			return max(idx, a.index(z.lo)), true
		}
	}
	return 0, false
}

// pickRun fills dst from band b, which has room for all of it, as one pick after the
// other would if each began where the last one ended.
func (a *area) pickRun(b Band, dst []netip.Addr, p *picker) {
	for len(dst) > 0 {
		dst = dst[a.pickIn(b, dst, p):]
	}
}

// pickIn fills what one window can give of dst and returns how much that is.
func (a *area) pickIn(b Band, dst []netip.Addr, p *picker) int {
	var idx uint64
	s := &a.one
	if a.wide != nil {
		idx = a.roomy(b, a.startWindow(b, p))
		a.enter(b, idx)
		s = a.open(idx)
	}
	n := len(dst)
	if free := s.band(b).free(); free.Hi == 0 && free.Lo < uint64(n) {
		n = int(free.Lo)
	}
	if a.wide != nil {
		a.used[b] = a.used[b].Add(addr.U128{Lo: uint64(n)})
	}
	from := s.band(b).at(scale(p.next, s.band(b).size))
	var buf [64]uint64 // on the stack, whatever the caller asks for
	for done := 0; done < n; {
		run := buf[:min(len(buf), n-done)]
		s.takeRun(b, from, run)
		for i, x := range run {
			dst[done+i] = a.addr(idx, x)
		}
		done += len(run)
		from = run[len(run)-1] + 1
	}
	return n
}

// held returns the taken positions at or after ord in its window, as many as one word
// of the bitmap has: bit i of word stands for ordinal from+i. ok is false if nothing
// is taken from there on.
func (a *area) held(ord addr.U128) (from addr.U128, word uint64, ok bool) {
	if a.none {
		return addr.U128{}, 0, false
	}
	if a.wide == nil {
		x, ok := a.one.bits.NextSet(ord.Lo)
		return addr.U128{Lo: x &^ 63}, wordFrom(a.one.bits, x, ok), ok
	}
	_, i := a.find(a.index(ord))
	for ; i < len(a.rows); i++ {
		w, x := a.rows[i], uint64(0)
		if w.idx == a.index(ord) {
			x = a.offset(ord)
		}
		if last, _ := w.bits.Last(); x > last {
			continue
		}
		if x, ok := w.bits.NextSet(x); ok {
			return a.base(w.idx).Add(addr.U128{Lo: x &^ 63}), wordFrom(w.bits, x, true), true
		}
	}
	return addr.U128{}, 0, false
}

// wordFrom returns the word that holds x without what lies below x or beyond the end,
// which the bitmap reads as taken.
func wordFrom(b *bitmap.Bitmap, x uint64, ok bool) uint64 {
	if !ok {
		return 0
	}
	w := b.Word(x) >> (x & 63) << (x & 63)
	if last, _ := b.Last(); last-(x&^63) < 63 {
		w &= 1<<(last-(x&^63)+1) - 1
	}
	return w
}
