package ipset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// lastHeld is the addresses of one family that a sticky handle was given last, and when it was.
type lastHeld struct {
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

// readLast reads what the handle had last, in one round trip. The commit verifies it, because the entry of the record by age is
// replaced with it.
func (p *assignPlan) readLast(t *txn) error {
	var keys []string
	for _, n := range [...]struct{ family, want int }{{4, p.Num4}, {6, p.Num6}} {
		if n.want > 0 {
			keys = append(keys, stickyKey(n.family, p.Handle))
		}
	}
	if err := t.Load(keys...); err != nil {
		return err
	}
	for i, key := range keys {
		f := 4
		if i == 1 || p.Num4 == 0 {
			f = 6
		}
		value, _, err := t.Get(key)
		if err == nil {
			p.last[f/6], err = decodeLastHeld(f, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pickSticky picks the addresses that the handle had last, where they are free, or cooling from its own use.
func (p *assignPlan) pickSticky(t *txn, s *search) error {
	for _, a := range p.last[s.family/6].addresses {
		i := p.cat.containing(a)
		if s.want == 0 || !s.serves(i) || slices.Contains(p.Addresses, a) {
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

// reserveLast makes room for what stick writes, and returns how many records that is besides those of the addresses: for each
// family the entry by age and the removal of the former.
func (p *assignPlan) reserveLast(t *txn) (n int) {
	for i, want := range [...]int{p.Num4, p.Num6} {
		if p.Sticky && want > 0 {
			t.Touch(stickyKey(4+2*i, p.Handle))
			n += ageOps(p.last[i].at)
		}
	}
	return n
}

// stick notes the addresses that the handle has been given, for the next time.
func (p *assignPlan) stick(t *txn, als []Allocation) {
	if len(als) == 0 {
		return
	}
	f := family(als[0].Block)
	key := stickyKey(f, p.Handle)
	l := lastHeld{at: t.now}
	for _, al := range als {
		l.addresses = append(l.addresses, al.Address)
	}
	t.Put(key, l.encode())
	t.setAge(key, p.last[f/6].at)
}
