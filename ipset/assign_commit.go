package ipset

import (
	"errors"
	"net/netip"
	"slices"
)

// errNoAnswer says that a request has not been answered before.
var errNoAnswer = errors.New("ipset: no answer yet")

// opsPerBlock bounds the records that an assignment writes for a block: itself, room, empty, orphan, two of due
// and one of its handle.
const opsPerBlock = 7

// commit carries out the picks. All that can fail is asked first; then blocks, owners and pages are changed and the
// result is complete.
func (p *assignPlan) commit(t *txn) error {
	n := p.draft.size() + opsPerBlock*len(p.picks) + 3 // and the request, and two of a sticky handle
	for _, k := range p.picks {
		n += len(k.be.touches)
	}
	if len(p.picks) == 0 && p.Request == "" {
		n = 0 // guards only
	}
	if err := t.room(n); err != nil {
		return err
	}
	p.draft.apply(t)
	id := p.identity()
	for _, k := range p.picks {
		switch {
		case k.fresh != nil:
			k.be.set(k.fresh)
		case k.adopt:
			k.be.owner, k.be.claimed = p.Owner, t.now
		}
		until := p.until(t.now)
		for _, x := range k.ordinals {
			al := Allocation{
				Address: k.be.addr(x), Block: k.be.prefix, Handle: p.Handle, Attributes: p.Attributes,
				Seq: k.be.hold(x, id, until), Until: unstamp(until),
			}
			if al.Address.Is4() {
				p.result.V4 = append(p.result.V4, al)
			} else {
				p.result.V6 = append(p.result.V6, al)
			}
		}
		t.changed(k.be)
	}
	if p.Sticky {
		t.stick(p.Handle, p.result.V4)
		t.stick(p.Handle, p.result.V6)
	}
	if p.Request != "" {
		a := &answer{at: t.now, short: p.result.Short}
		a.add(p.result.V4)
		a.add(p.result.V6)
		t.remember(p.Request, a)
	}
	return nil
}

// replay gives the answer that the request key was given before; it returns errNoAnswer if there is none.
func (p *assignPlan) replay(t *txn, ask bool) error {
	a, err := t.answerTo(p.Request, ask)
	if err != nil {
		return err
	}
	if a == nil {
		return errNoAnswer
	}
	p.result.V4, p.result.V6 = a.allocations(p.Claim)
	p.result.Short = a.short
	return nil
}

// unusable reports whether a block has no address that automatic assignment may take.
func (p *assignPlan) unusable(i int, block netip.Prefix) bool {
	avoid := p.cat.avoid[i]
	if !avoid.overlap(block) {
		return false
	}
	b, err := NewBlock(block, BlockOptions{Head: p.Head, Tail: p.Tail})
	return err != nil || len(b.free.peek(nil, 1, b.spansOf(avoid))) == 0
}

// avoided returns the ordinals of the block that automatic assignment may not take.
func (b *Block) avoided(cat *catalogEntry, i int) []span {
	if cat.avoid[i] == nil {
		return nil
	}
	return b.spansOf(cat.avoid[i])
}

// avoid is the same, kept for as long as the catalog stays.
func (be *blockEntry) avoid(cat *catalogEntry, i int) []span {
	if cat.avoid[i] == nil {
		return nil
	}
	if be.of != cat.catalog {
		be.spans, be.of = be.avoided(cat, i), cat.catalog
	}
	return be.spans
}

// pickSticky picks the addresses that the handle had last, where they are free, or cooling from its own use.
func (p *assignPlan) pickSticky(t *txn, s *search) error {
	last, err := t.lastOf(s.family, p.Handle)
	if err != nil {
		return err
	}
	for _, a := range last {
		i := p.cat.containing(a)
		if s.want == 0 || !s.serves(i) {
			continue
		}
		pool := &p.cat.Pools[i]
		be, err := t.block(p.cat, netip.PrefixFrom(a, pool.BlockBits).Masked())
		if err != nil {
			return err
		}
		t.guard(&be.entry)
		if be.Block == nil || p.cat.Config.Strict && be.owner != p.Owner {
			continue
		}
		x, _ := be.locate(a)
		if _, avoided := within(be.avoid(p.cat, i), x); avoided || be.canAssign(x, p.Handle) != nil {
			continue
		}
		p.picks = append(p.picks, pick{be: be, ordinals: []uint64{x}})
		p.sticky = len(p.picks)
		s.want--
	}
	return nil
}

// stick notes the addresses that a handle has been given, for the next time.
func (t *txn) stick(handle string, als []Allocation) {
	if len(als) == 0 {
		return
	}
	var b []byte
	for _, al := range als {
		b = appendAddr(b, al.Address)
	}
	key := stickyKey(family(als[0].Block), handle)
	t.other = slices.DeleteFunc(t.other, func(op Op) bool { return op.Key == key })
	t.other = append(t.other, Op{Kind: OpPut, Key: key, Value: string(b), Expect: AnyRevision})
}

// lastOf returns the addresses that a handle was given last.
func (t *txn) lastOf(family int, handle string) ([]netip.Addr, error) {
	key := stickyKey(family, handle)
	value := ""
	if i := slices.IndexFunc(t.other, func(op Op) bool { return op.Key == key }); i >= 0 {
		value = t.other[i].Value
	} else {
		recs, err := t.e.store.Get(t.ctx, nil, key)
		if err != nil {
			return nil, err
		}
		value = recs[0].Value
	}
	size := 4
	if family == 6 {
		size = 16
	}
	var addrs []netip.Addr
	for ; len(value) >= size; value = value[size:] {
		a, _ := netip.AddrFromSlice([]byte(value[:size]))
		addrs = append(addrs, a)
	}
	return addrs, nil
}
