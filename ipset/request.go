package ipset

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// answer is what is kept under a request key: which request it was and the addresses that it was given. A shortage is not kept:
// a repetition asks for what is missing.
type answer struct {
	at        int64 // when, for pruning
	digest    digest
	addresses []answered
}

// answered is one allocation of an answer. That it is still held is seen by its sequence number.
type answered struct {
	prefix netip.Prefix // address with its block's length
	seq    uint64
}

// digest tells requests with different arguments apart.
type digest [16]byte

// digestOf returns the digest of a request's arguments, each by its text.
func digestOf(args ...any) digest {
	h := sha256.New()
	for _, a := range args {
		s := fmt.Sprint(a)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return digest(h.Sum(nil)[:16])
}

const answerVersion = 2

func (a *answer) encode() string {
	b := binary.AppendVarint([]byte{answerVersion}, a.at)
	b = append(b, a.digest[:]...)
	b = binary.AppendUvarint(b, uint64(len(a.addresses)))
	for _, d := range a.addresses {
		b = appendBlockID(b, d.prefix)
		b = binary.AppendUvarint(b, d.seq)
	}
	return string(b)
}

func decodeAnswer(s string) (*answer, error) {
	r := &wire.Reader{S: s}
	a := &answer{}
	if v := r.Byte(); v != answerVersion {
		r.Fail("version")
	}
	a.at = r.Varint()
	copy(a.digest[:], r.Bytes(uint64(len(a.digest))))
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		size := uint64(18)
		if r.S != "" && r.S[0] == '4' {
			size = 6
		}
		id := r.Bytes(size)
		if r.Err != nil {
			break
		}
		// An address is no masked prefix, which is all that parseBlockID would add.
		ip, ok := netip.AddrFromSlice([]byte(id[1 : size-1]))
		d := answered{prefix: netip.PrefixFrom(ip, int(id[size-1])), seq: r.Uvarint()}
		if !ok || !d.prefix.IsValid() {
			r.Fail("address")
		}
		a.addresses = append(a.addresses, d)
	}
	if r.Err != nil || r.S != "" {
		return nil, fmt.Errorf("%w: answer to a request", ipalloc.ErrCorrupt)
	}
	return a, nil
}

func (a *answer) add(als []Allocation) {
	for _, al := range als {
		a.addresses = append(a.addresses, answered{al.Prefix(), al.Seq})
	}
}

// memo is a request key on its way through a plan.
type memo struct {
	key    string // of the record, "" without a request key
	digest digest
	at     int64 // the time of the answer that was found, 0 for none
}

// recall returns what of the answer that the request key was given before is still held by the handle, in the order of the
// answer. A record that is not known is assumed not to exist, and the commit verifies that: the first call of a key so needs no
// read of its own, and whatever else it finds, an answer that there is comes first.
func (t *txn) recall(cat *catalogEntry, m *memo, handle string) (held []Allocation, err error) {
	value, ok := t.Assume(m.key)
	if !ok {
		return nil, nil
	}
	a, err := decodeAnswer(value)
	if err != nil {
		return nil, err
	}
	if a.digest != m.digest {
		return nil, fmt.Errorf("%w: the request key was used for a request with other arguments", errBadArgument)
	}
	m.at = a.at
	f := fetch{t: t}
	for _, d := range a.addresses {
		f.add(d.prefix.Masked(), d.prefix.Addr())
	}
	if err := f.run(); err != nil {
		return nil, err
	}
	for _, d := range a.addresses {
		be, err := t.block(cat, d.prefix.Masked())
		if err != nil {
			return nil, err
		}
		if be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(d.prefix.Addr())
		if err != nil {
			continue
		}
		if st, a := be.Look(x); st == block.Held {
			if h, ok := a.Find(Guard{Seq: d.seq}); ok && h.Handle == handle {
				held = append(held, a.AllocationOf(d.prefix.Addr(), d.prefix.Bits(), h))
			}
		}
	}
	return held, nil
}

// existing puts what the handle holds into the result and reports whether that is anything. If it is not, the assignment writes an
// answer under a key that only such calls of the handle use, so that of two at the same time one meets a conflict.
func (p *assignPlan) existing(t *txn) (bool, error) {
	p.memo = memo{key: kindRequest + "\x00" + p.Handle}
	if value, ok := t.Assume(p.memo.key); ok {
		a, err := decodeAnswer(value)
		if err != nil {
			return false, err
		}
		p.memo.at = a.at
	}
	if t.changes(p.Handle) {
		return false, occ.ErrFirst // the index does not show it yet
	}
	cat, err := t.catalog()
	if err != nil {
		return false, err
	}
	p.cat = cat
	held, err := t.heldBy(cat, p.Handle)
	if err != nil {
		return false, err
	}
	if p.offer {
		short := slices.DeleteFunc(slices.Clone(held), func(h place) bool {
			return h.Until == 0 || h.Until >= block.LeaseEnd(t.now, p.TTL)
		})
		if _, err := t.extend(short, block.LeaseEnd(t.now, p.TTL)); err != nil {
			return false, err
		}
	}
	for _, h := range held {
		if al := h.be.AllocationOf(h.x, p.Handle); al.Address.Is4() {
			p.result.V4 = append(p.result.V4, al)
		} else {
			p.result.V6 = append(p.result.V6, al)
		}
	}
	return len(p.result.V4)+len(p.result.V6) > 0, nil
}

// changes reports whether the transaction gives an address to a handle or takes one from it.
func (t *txn) changes(handle string) bool {
	for _, e := range t.Entries() {
		be, ok := e.(*blockEntry)
		if !ok {
			continue
		}
		for _, c := range be.changes.List {
			if holds(c.Was, handle) {
				return true
			}
			if be.Block == nil {
				continue
			}
			if _, a := be.Look(c.X); holds(a, handle) {
				return true
			}
		}
	}
	return false
}

// holds reports whether a handle is one of the holders of an address, which is nil if it has no record.
func holds(a *block.Address, handle string) bool {
	if a == nil || a.Cooling {
		return false
	}
	_, ok := a.Find(Guard{Handle: handle})
	return ok
}

// place is an ordinal of a block and one of its holders.
type place struct {
	be *blockEntry
	x  uint64
	block.Holder
}

// heldBy returns the addresses that a handle holds, in address order. The transaction rests on the blocks.
func (t *txn) heldBy(cat *catalogEntry, handle string) ([]place, error) {
	r := handleRange(handle)
	recs, err := t.ListStored(r)
	if err != nil {
		return nil, err
	}
	ids, err := idsIn(recs, len(r.From))
	if err != nil {
		return nil, err
	}
	return t.heldAt(cat, ids, handle)
}

// heldAt returns those of some addresses, each with the prefix length of its block, that a handle holds.
func (t *txn) heldAt(cat *catalogEntry, ids []netip.Prefix, handle string) ([]place, error) {
	f := fetch{t: t}
	for _, id := range ids {
		f.add(id.Masked(), id.Addr())
	}
	if err := f.run(); err != nil {
		return nil, err
	}
	var held []place
	for _, id := range ids {
		be, err := t.block(cat, id.Masked())
		if err != nil {
			return nil, err
		}
		if be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(id.Addr())
		if err != nil {
			continue
		}
		if st, a := be.Look(x); st == block.Held {
			if h, ok := a.Find(Guard{Handle: handle}); ok {
				held = append(held, place{be, x, h})
			}
		}
	}
	return held, nil
}

// reserve makes room for what remember writes on the answer's record, and returns how many records it writes besides: the entry
// by age and the removal of the former entry.
func (m *memo) reserve(t *txn) int {
	if m.key == "" {
		return 0
	}
	t.Touch(m.key)
	return ageOps(m.at)
}

// ageOps returns how many records setAge writes.
func ageOps(was int64) int {
	if was != 0 {
		return 2
	}
	return 1
}

// remember writes the answer to a request key in place of the one that was found. An empty one is not worth remembering.
func (t *txn) remember(m *memo, als ...[]Allocation) {
	if m.key == "" {
		return
	}
	a := &answer{at: t.now, digest: m.digest}
	for _, als := range als {
		a.add(als)
	}
	if len(a.addresses) == 0 {
		return
	}
	t.Put(m.key, a.encode())
	t.setAge(m.key, m.at)
}

// setAge makes the entry of a record by age say that it is of now; was is its former time, 0 for none.
func (t *txn) setAge(key string, was int64) {
	if was == t.now {
		return
	}
	if was != 0 {
		t.Add(store.Op{Kind: store.Delete, Key: agedKey(was, key), Expect: store.AnyRevision})
	}
	t.Add(store.Op{Kind: store.Put, Key: agedKey(t.now, key), Expect: store.AnyRevision})
}
