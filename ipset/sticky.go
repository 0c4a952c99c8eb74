package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// lastHeld is the addresses of one family that a sticky handle was given last, and when it was.
type lastHeld struct {
	rev       uint64 // of the record
	at        int64
	addresses []netip.Addr
}

const stickyVersion = 1

func (l *lastHeld) encode() string {
	b := binary.AppendVarint([]byte{stickyVersion}, l.at)
	for _, a := range l.addresses {
		b = wire.AppendAddr(b, a)
	}
	return string(b)
}

// decodeLastHeld reads the record of a family; no record is no addresses.
func decodeLastHeld(family int, s string) (l lastHeld, err error) {
	if s == "" {
		return l, nil
	}
	r := &wire.Reader{S: s}
	if v := r.Byte(); v != stickyVersion {
		r.Fail("version")
	}
	l.at = r.Varint()
	size := uint64(4)
	if family == 6 {
		size = 16
	}
	for r.S != "" {
		if a, ok := netip.AddrFromSlice([]byte(r.Bytes(size))); ok {
			l.addresses = append(l.addresses, a)
		}
	}
	if r.Err != nil {
		return lastHeld{}, fmt.Errorf("%w: last addresses of a handle", ipalloc.ErrCorrupt)
	}
	return l, nil
}

// readLast reads what the handle had last, in one round trip. The record is written on the revision that was read, because its
// entry by age is replaced with it.
func (p *assignPlan) readLast(t *txn) error {
	var families []int
	var keys []string
	for _, n := range [...]struct{ family, want int }{{4, p.Num4}, {6, p.Num6}} {
		key := stickyKey(n.family, p.Handle)
		if n.want == 0 {
			continue
		}
		// A call of the same transaction may have been given other addresses.
		if i := slices.IndexFunc(t.other, func(op store.Op) bool { return op.Key == key }); i >= 0 {
			p.last[n.family/6], _ = decodeLastHeld(n.family, t.other[i].Value)
			p.last[n.family/6].rev = t.other[i].Expect
			continue
		}
		families, keys = append(families, n.family), append(keys, key)
	}
	if len(keys) == 0 {
		return nil
	}
	recs, err := t.e.store.Get(t.ctx, nil, keys...)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if p.last[families[i]/6], err = decodeLastHeld(families[i], rec.Value); err != nil {
			return err
		}
		p.last[families[i]/6].rev = rec.Rev
	}
	return nil
}

// pickSticky picks the addresses that the handle had last, where they are free, or cooling from its own use.
func (p *assignPlan) pickSticky(t *txn, s *search) error {
	for _, a := range p.last[s.family/6].addresses {
		i := p.cat.containing(a)
		if s.want == 0 || !s.serves(i) {
			continue
		}
		be, err := t.block(p.cat, netip.PrefixFrom(a, p.cat.Pools[i].BlockBits).Masked())
		if err != nil {
			return err
		}
		if be.Block == nil || p.cat.Config.Strict && be.Owner() != p.Owner {
			continue
		}
		if err := t.ready(be, a); err != nil {
			return err
		}
		x, _ := be.Ordinal(a)
		if _, avoided := block.Within(be.avoid(p.cat, i), x); avoided || be.CanHold(x, p.Handle) != nil {
			continue
		}
		p.picks = append(p.picks, pick{be: be, ordinals: []uint64{x}})
		p.sticky = len(p.picks)
		s.want--
	}
	return nil
}

// stickyOps is how many records stick writes for a family: the addresses, their entry by age, and the removal of the former.
const stickyOps = 3

// stick notes the addresses that the handle has been given, for the next time.
func (p *assignPlan) stick(t *txn, als []Allocation) {
	if len(als) == 0 {
		return
	}
	f := family(als[0].Block)
	key, was := stickyKey(f, p.Handle), p.last[f/6].at
	l := lastHeld{at: t.now}
	for _, al := range als {
		l.addresses = append(l.addresses, al.Address)
	}
	if was != 0 && was != t.now {
		t.write(store.Op{Kind: store.Delete, Key: agedKey(was, key), Expect: store.AnyRevision})
	}
	t.write(store.Op{Kind: store.Put, Key: key, Value: l.encode(), Expect: p.last[f/6].rev})
	t.write(store.Op{Kind: store.Put, Key: agedKey(t.now, key), Expect: store.AnyRevision})
}

// write adds a record, in place of what an earlier plan of the transaction writes there.
func (t *txn) write(op store.Op) {
	t.other = slices.DeleteFunc(t.other, func(o store.Op) bool { return o.Key == op.Key })
	t.other = append(t.other, op)
}
