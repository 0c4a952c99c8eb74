package servicealloc

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"

	"github.com/ipalloc/ipalloc/bitmap"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// A snapshot is a magic, a byte that says of what, a version, the body, and the CRC-32C
// (Castagnoli) of all that. Numbers are uvarints, byte strings have their length in
// front. Bitmaps are in their own form, which has a checksum too, so that a snapshot
// can be taken apart by hand.
const (
	snapMagic   = "ipsv"
	snapVersion = 1
	snapHead    = len(snapMagic) + 2
)

// What a snapshot is of.
const (
	kindRange    = 'a'
	kindPorts    = 'p'
	kindRanges   = 's'
	kindRegistry = 'r'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// An encoder appends to data; what comes before start belongs to the caller.
type encoder struct {
	data  []byte
	start int
}

func newEncoder(data []byte, kind byte) *encoder {
	e := &encoder{data, len(data)}
	e.data = append(e.data, snapMagic...)
	e.data = append(e.data, kind, snapVersion)
	return e
}

func (e *encoder) seal() []byte {
	return binary.BigEndian.AppendUint32(e.data, crc32.Checksum(e.data[e.start:], castagnoli))
}

func (e *encoder) uint(v uint64) { e.data = binary.AppendUvarint(e.data, v) }

func (e *encoder) bool(b bool) {
	if b {
		e.uint(1)
		return
	}
	e.uint(0)
}

func (e *encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	e.data = append(e.data, b...)
}

func (e *encoder) addr(ip netip.Addr) { e.bytes(ip.AsSlice()) }

func (e *encoder) prefixes(ps []netip.Prefix) {
	e.uint(uint64(len(ps)))
	for _, p := range ps {
		e.addr(p.Addr())
		e.uint(uint64(p.Bits()))
	}
}

func (e *encoder) portRanges(rs []PortRange) {
	e.uint(uint64(len(rs)))
	for _, r := range rs {
		e.uint(uint64(r.First))
		e.uint(uint64(r.Last))
	}
}

func (e *encoder) settings(s *settings) {
	for _, b := range []bool{s.lowest, s.neverSpill, s.pointToPoint, s.sized} {
		e.bool(b)
	}
	e.uint(s.staticSize)
	e.prefixes(s.static)
	e.prefixes(s.reserved)
	e.portRanges(s.staticPorts)
	e.portRanges(s.closedPorts)
}

// source writes the state of a source that the engine made, nothing for another one.
func (e *encoder) source(own *rand.PCG) {
	if own == nil {
		e.bytes(nil)
		return
	}
	state, _ := own.MarshalBinary() // never fails
	e.bytes(state)
}

func (e *encoder) bitmap(b *bitmap.Bitmap) error {
	data, err := b.MarshalBinary()
	e.bytes(data)
	return err
}

func (e *encoder) area(a *area) error {
	switch {
	case a.none:
		return nil
	case a.wide == nil:
		return e.bitmap(a.one.bits)
	}
	e.uint(a.cur)
	e.uint(uint64(len(a.rows)))
	for _, w := range a.rows {
		e.uint(w.idx)
		if err := e.bitmap(w.bits); err != nil {
			return err
		}
	}
	return nil
}

// A decoder reads what an encoder wrote. After the first thing that is wrong it reads
// zeros and keeps the reason; nothing it returns is larger than the input.
type decoder struct {
	data []byte
	bad  string
}

func newDecoder(data []byte, kind byte) *decoder {
	d := &decoder{}
	n := len(data) - crc32.Size
	switch {
	case n < snapHead || string(data[:len(snapMagic)]) != snapMagic:
		d.fail("not a snapshot")
	case data[len(snapMagic)] != kind:
		d.fail("a snapshot of something else")
	case data[len(snapMagic)+1] != snapVersion:
		d.fail("unknown version")
	case crc32.Checksum(data[:n], castagnoli) != binary.BigEndian.Uint32(data[n:]):
		d.fail("checksum")
	default:
		d.data = data[snapHead:n]
	}
	return d
}

func (d *decoder) fail(why string) {
	if d.bad == "" {
		d.bad = why
	}
	d.data = nil
}

// end returns the error of the whole decoding.
func (d *decoder) end() error {
	if d.bad == "" && len(d.data) > 0 {
		d.fail("bytes after the end")
	}
	if d.bad == "" {
		return nil
	}
	return &Error{Op: "restore", Err: ErrSnapshot, Detail: d.bad}
}

func (d *decoder) uint(most uint64) uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 || v > most {
		d.fail("number")
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) any() uint64 { return d.uint(^uint64(0)) }

func (d *decoder) bool() bool { return d.uint(1) == 1 }

// count reads how many things follow, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.any()
	if n > uint64(len(d.data)) {
		d.fail("count")
		return 0
	}
	return int(n)
}

// few is count of something that people configure.
func (d *decoder) few() int {
	n := d.count()
	if n > maxPrefixes {
		d.fail("too many prefixes")
		return 0
	}
	return n
}

func (d *decoder) bytes() []byte {
	n := d.count()
	b := d.data[:n]
	d.data = d.data[n:]
	return b
}

func (d *decoder) addr() netip.Addr {
	ip, ok := netip.AddrFromSlice(d.bytes())
	if !ok || ip.Is4In6() {
		d.fail("address")
	}
	return ip
}

func (d *decoder) prefix() netip.Prefix {
	p := netip.PrefixFrom(d.addr(), int(d.uint(128)))
	if d.bad == "" && addr.Check(p) != nil {
		d.fail("prefix")
	}
	return p
}

func (d *decoder) prefixes() []netip.Prefix {
	var ps []netip.Prefix
	for n := d.few(); n > 0 && d.bad == ""; n-- {
		ps = append(ps, d.prefix())
	}
	return ps
}

func (d *decoder) portRange() PortRange {
	const most = 1<<16 - 1
	return PortRange{uint16(d.uint(most)), uint16(d.uint(most))}
}

func (d *decoder) portRanges() []PortRange {
	var rs []PortRange
	for n := d.few(); n > 0 && d.bad == ""; n-- {
		r := d.portRange()
		if r.check() != nil {
			d.fail("port range")
		}
		rs = append(rs, r)
	}
	return rs
}

func (d *decoder) settings() (s settings) {
	for _, b := range []*bool{&s.lowest, &s.neverSpill, &s.pointToPoint, &s.sized} {
		*b = d.bool()
	}
	s.staticSize = d.any()
	s.static = d.prefixes()
	s.reserved = d.prefixes()
	s.staticPorts = d.portRanges()
	s.closedPorts = d.portRanges()
	return s
}

// source reads the state of own, which the engine has made.
func (d *decoder) source(own *rand.PCG) {
	state := d.bytes()
	if own != nil && len(state) > 0 && own.UnmarshalBinary(state) != nil {
		d.fail("random source")
	}
}

// bitmap reads a bitmap over [0, last].
func (d *decoder) bitmap(last uint64) *bitmap.Bitmap {
	b := new(bitmap.Bitmap)
	if err := b.UnmarshalBinary(d.bytes()); err != nil {
		d.fail(err.Error())
		return nil
	}
	if have, ok := b.Last(); !ok || have != last {
		d.fail("bitmap of another size")
		return nil
	}
	return b
}

// area reads what is held in a, which holds nothing yet.
func (d *decoder) area(a *area) {
	if a.none {
		return
	}
	if a.wide == nil {
		if b := d.bitmap(a.last.Lo); b != nil {
			a.one.bits = b
			a.one.recount()
		}
		return
	}
	top := a.index(a.last)
	a.cur = d.uint(top)
	for n := d.count(); n > 0 && d.bad == ""; n-- {
		idx := d.uint(top)
		if k := len(a.rows); k > 0 && a.rows[k-1].idx >= idx {
			d.fail("windows out of order")
			return
		}
		s := a.fresh(idx)
		last, _ := s.bits.Last()
		b := d.bitmap(last)
		if b == nil {
			return
		}
		if b.Empty() && idx != a.cur {
			d.fail("empty window")
			return
		}
		s.bits = b
		s.recount()
		a.rows = append(a.rows, window{idx, s})
		for b := range a.used {
			a.used[b] = a.used[b].Add(*s.used(Band(b)))
		}
	}
}
