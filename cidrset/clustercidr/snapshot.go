package clustercidr

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// The snapshot, version 1; a string is its length as a uvarint and its bytes, a
// list its length as a uvarint and its items, a prefix the string that
// netip.Prefix.MarshalBinary gives, empty for no prefix:
//
//	2 bytes    "cc"
//	byte       version, 1
//	list       needed families, a byte each
//	list       entries, ascending by name:
//	             string name
//	             list of terms: list of label requirements, list of field requirements,
//	               each: string key, string operator, list of string values
//	             prefix IPv4, prefix IPv6
//	             uvarint host bits, IPv4 mask, IPv6 mask
//	             byte: 1 if terminating
//	             16 bytes for each family there is: the cursor
//	list       reservations, ascending: prefix
//	list       nodes, ascending by name: string name, string entry, list of prefixes
//	4 bytes    CRC-32C of all before, little-endian
//
// Options are not part of it: they are the program's, and are given to Restore.
const (
	snapshotMagic   = "cc"
	snapshotVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary returns a snapshot of the allocator; see [Allocator.AppendBinary].
func (a *Allocator) MarshalBinary() ([]byte, error) { return a.AppendBinary(nil) }

// AppendBinary appends a snapshot of the allocator to b: needed families, entries
// with their cursors, reservations, and nodes with what they hold, versioned and
// checksummed. The same state gives the same bytes, however it came about. It
// fails only if a prefix cannot be marshalled, which does not happen. O(n log n).
// Safe for concurrent use; the allocator is locked meanwhile.
func (a *Allocator) AppendBinary(b []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := writer{b: b}
	w.b = append(w.b, snapshotMagic...)
	w.b = append(w.b, snapshotVersion)
	w.uint(len(a.families))
	for _, f := range a.families {
		w.b = append(w.b, byte(f))
	}
	w.uint(len(a.entries))
	for _, e := range a.entries {
		w.entry(e)
	}
	w.uint(len(a.reserved))
	for _, r := range a.reserved {
		w.prefix(r.prefix)
	}
	w.uint(len(a.owners))
	for _, name := range slices.Sorted(maps.Keys(a.owners)) {
		o := a.owners[name]
		w.string(name)
		w.string(o.entry)
		w.uint(len(o.prefixes))
		for _, p := range o.prefixes {
			w.prefix(p)
		}
	}
	if w.err != nil {
		return b, &Error{Op: "snapshot", Err: w.err}
	}
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b[len(b):], castagnoli)), nil
}

// writer writes a snapshot.
type writer struct {
	b   []byte
	err error
}

func (w *writer) uint(n int) { w.b = binary.AppendUvarint(w.b, uint64(n)) }

func (w *writer) string(s string) {
	w.uint(len(s))
	w.b = append(w.b, s...)
}

func (w *writer) prefix(p netip.Prefix) {
	if p == (netip.Prefix{}) {
		w.uint(0)
		return
	}
	data, err := p.MarshalBinary()
	if err != nil {
		w.err = err
	}
	w.string(string(data))
}

func (w *writer) entry(e *entry) {
	w.string(e.spec.Name)
	w.uint(len(e.spec.Selector))
	for _, t := range e.spec.Selector {
		for _, rs := range [][]Requirement{t.Labels, t.Fields} {
			w.uint(len(rs))
			for _, r := range rs {
				w.string(r.Key)
				w.string(string(r.Op))
				w.uint(len(r.Values))
				for _, v := range r.Values {
					w.string(v)
				}
			}
		}
	}
	w.prefix(e.spec.IPv4)
	w.prefix(e.spec.IPv6)
	w.uint(e.spec.HostBits)
	w.uint(e.spec.MaskIPv4)
	w.uint(e.spec.MaskIPv6)
	terminating := byte(0)
	if e.terminating {
		terminating = 1
	}
	w.b = append(w.b, terminating)
	for i := range e.pools {
		if pl := &e.pools[i]; pl.prefix.IsValid() {
			w.b = binary.BigEndian.AppendUint64(w.b, pl.cursor.Hi)
			w.b = binary.BigEndian.AppendUint64(w.b, pl.cursor.Lo)
		}
	}
}

// Restore returns the allocator that data is a snapshot of, with the given options.
//
// Whatever the bytes, it returns an [*Error] that matches [ErrSnapshot] or an
// allocator that passes [Allocator.Check]; options fail as in [New].
func Restore(data []byte, opts ...Option) (*Allocator, error) {
	fail := func(why string) (*Allocator, error) {
		return nil, &Error{Op: "restore", Err: fmt.Errorf("%w: %s", ErrSnapshot, why)}
	}
	r := reader{data: data}
	if why := r.open(); why != "" {
		return fail(why)
	}
	var c Config
	for n := r.len(); n > 0 && !r.bad; n-- {
		c.Families = append(c.Families, Family(r.byte()))
	}
	if _, err := New(c); err != nil || r.bad {
		return fail("bad families")
	}
	a, err := New(c, opts...)
	if err != nil {
		return nil, err
	}
	listener := a.events
	a.events = nil
	for range r.len() {
		if why := r.entry(a); why != "" {
			return fail(why)
		}
	}
	for range r.len() {
		p := r.prefix()
		if n := len(a.reserved); r.bad || n > 0 && compareReservation(a.reserved[n-1], p) >= 0 {
			return fail("bad reservation")
		}
		a.reserve(p)
	}
	last := ""
	for i := range r.len() {
		name := r.string()
		if r.bad || i > 0 && name <= last {
			return fail("nodes out of order")
		}
		last = name
		if why := r.owner(a, name); why != "" {
			return fail(why)
		}
	}
	for _, e := range a.entries {
		if e.terminating && a.nodes[e.spec.Name] == 0 {
			return fail("an entry is terminating without nodes")
		}
	}
	if r.bad || len(r.data) != 0 {
		return fail("cut short or too long")
	}
	a.events = listener
	return a, nil
}

// reader reads a snapshot; bad is set once it is cut short or makes no sense.
type reader struct {
	data []byte
	bad  bool
}

// open checks the frame and leaves the body; it says what is wrong.
func (r *reader) open() string {
	if len(r.data) < len(snapshotMagic)+1+4 || string(r.data[:2]) != snapshotMagic {
		return "not one of a clustercidr"
	}
	body := r.data[:len(r.data)-4]
	if binary.LittleEndian.Uint32(r.data[len(body):]) != crc32.Checksum(body, castagnoli) {
		return "wrong checksum"
	}
	if body[2] != snapshotVersion {
		return fmt.Sprintf("version %d, want %d", body[2], snapshotVersion)
	}
	r.data = body[3:]
	return ""
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	r.bytes(uint64(max(n, 0)))
	r.bad = r.bad || n <= 0
	return v
}

// len reads the length of a list, of which each item takes at least a byte.
func (r *reader) len() int {
	n := r.uvarint()
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) string() string { return string(r.bytes(r.uvarint())) }

// small reads a number of bits.
func (r *reader) small() int {
	n := r.uvarint()
	r.bad = r.bad || n > 128
	return int(min(n, 128))
}

// prefix reads a prefix that must be there.
func (r *reader) prefix() netip.Prefix {
	var p netip.Prefix
	err := p.UnmarshalBinary(r.bytes(r.uvarint()))
	if err != nil || addr.Check(p) != nil {
		r.bad = true
		return netip.Prefix{}
	}
	return p
}

// optional reads a prefix that may be missing.
func (r *reader) optional() netip.Prefix {
	if len(r.data) > 0 && r.data[0] == 0 {
		r.byte()
		return netip.Prefix{}
	}
	return r.prefix()
}

func (r *reader) requirements() (rs []Requirement) {
	for n := r.len(); n > 0 && !r.bad; n-- {
		q := Requirement{Key: r.string(), Op: Operator(r.string())}
		for n := r.len(); n > 0 && !r.bad; n-- {
			q.Values = append(q.Values, r.string())
		}
		rs = append(rs, q)
	}
	return rs
}

// entry reads an entry into a and says what is wrong with it.
func (r *reader) entry(a *Allocator) string {
	c := ClusterCIDR{Name: r.string()}
	for n := r.len(); n > 0 && !r.bad; n-- {
		c.Selector = append(c.Selector, Term{Labels: r.requirements(), Fields: r.requirements()})
	}
	c.IPv4, c.IPv6 = r.optional(), r.optional()
	c.HostBits, c.MaskIPv4, c.MaskIPv6 = r.small(), r.small(), r.small()
	terminating := r.byte()
	if n := len(a.entries); n > 0 && a.entries[n-1].spec.Name >= c.Name {
		return "entries out of order"
	}
	if r.bad || terminating > 1 || a.Add(c) != nil {
		return "bad entry"
	}
	e := a.lookup(c.Name)
	e.terminating = terminating == 1
	for i := range e.pools {
		pl := &e.pools[i]
		if !pl.prefix.IsValid() {
			continue
		}
		raw := r.bytes(16)
		if r.bad {
			return "no cursor"
		}
		pl.cursor = addr.U128{Hi: binary.BigEndian.Uint64(raw), Lo: binary.BigEndian.Uint64(raw[8:])}
		if !pl.block.contains(pl.cursor) || truncate(pl.cursor, pl.size) != pl.cursor {
			return "bad cursor"
		}
	}
	return ""
}

// owner reads what the node of that name holds into a and says what is wrong.
func (r *reader) owner(a *Allocator, name string) string {
	entry := r.string()
	var prefixes []netip.Prefix
	seen := map[netip.Prefix]bool{}
	for range r.len() {
		p := r.prefix()
		if r.bad || seen[p] {
			return "bad prefix of a node"
		}
		seen[p] = true
		prefixes = append(prefixes, p)
	}
	if r.bad || len(prefixes) == 0 {
		return "a node that holds nothing"
	}
	if entry == "" {
		if e, _ := a.fitting(prefixes); e != nil {
			return "a node without an entry fits one"
		}
	}
	a.hold(&owner{name: name}, entry, prefixes)
	return ""
}
