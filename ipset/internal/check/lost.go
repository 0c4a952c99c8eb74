package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A block whose record is lost is made again of its addresses, because an address that is in use must not be given to another
// holder. What cannot be known is left held without holder; releasing it is a decision for an operator.

// remake is a block that the repair makes again of its addresses, because its record is lost or damaged.
type remake struct {
	block store.Record
	leaf  []store.Op // guards of its page of the pool and of the floor of that
	addrs []stray
}

// stray is an address record without a block.
type stray struct {
	store.Record
	block.Address
	at      netip.Addr
	damaged bool
}

// take adds the record of an address unless it names a block of another size.
func (m *remake) take(c *checker, p netip.Prefix, at netip.Addr, r store.Record) {
	a, length, err := block.DecodeAddress(r.Value)
	if err != nil {
		c.unreadable(err)
	}
	if err != nil || netip.PrefixFrom(at, length).Masked() == p {
		m.addrs = append(m.addrs, stray{r, a, at, err != nil})
	}
}

// stands reports whether there is a block: its record says so, or an address that names it.
func (m *remake) stands() bool {
	return m.block.Rev != 0 || slices.ContainsFunc(m.addrs, func(s stray) bool { return !s.damaged })
}

// lost reports the addresses of a block that have no record, or an unreadable one. The repair writes records without holder: the
// addresses stay held until they are released by name, because someone may use them. A lease among them becomes one without end.
// Each step guards the block's record, and the last one writes it, because no address record may be newer than that of its block.
func (v *view) lost(b *block.Block, unreadable []netip.Addr) {
	if b.Absent() == 0 {
		return
	}
	var ops []store.Op
	for _, x := range b.AppendAbsent(nil) {
		at, key := b.Addr(x), record.AddressKey(b.Addr(x))
		a := block.Address{Holder: block.Holder{Seq: max(b.Seq(), 1)}}
		if a.Cooling = b.IsCooling(x); a.Cooling {
			a.Until = b.CoolsUntil(x)
		}
		b.Load(x, &a)
		if !slices.Contains(unreadable, at) {
			v.c.add(audit.Problem{Kind: audit.LostAddress, Key: key, Addr: at, Prefix: b.Prefix()})
		}
		ops = append(ops, store.Op{Kind: store.Put, Key: key, Value: string(a.Append(nil, b.Prefix().Bits())), Expect: v.from[key]})
	}
	b.Recount()
	last := store.Op{Kind: store.Put, Key: v.name, Value: string(b.Append(nil)), Expect: v.from[v.name]}
	for len(ops) > 0 {
		n, with := txn.Fitting(v.c.limits, stepOps, ops, last), v.guard(v.name)
		if n == len(ops) {
			with = last
		}
		v.c.step(fmt.Sprintf("write records without holder in %s", b.Prefix()), append([]store.Op{with}, ops[:n]...)...)
		ops = ops[n:]
	}
}

// lostBlocks reports the blocks whose addresses are there and that are not. The repair makes each again, without owner and with
// these addresses: what is held stays held, and the hosts are former owners, by which their addresses are found. An address whose
// record cannot be read is held without holder. The index records are written by the next repair. A block that came and went
// meanwhile changed its page of the pool or the floor of that, which the step guards, with as many of the addresses as it has room for.
func (c *checker) lostBlocks() {
	for p, m := range c.gone {
		if key := record.BlockKey(record.KindBlock, p); m.block.Rev == 0 {
			c.add(audit.Problem{Kind: audit.LostBlock, Key: key, Prefix: p, Detail: fmt.Sprintf("%d addresses", len(m.addrs))})
		}
		if b, ops, err := m.make(p, c.generation()<<pool.GenShift); err == nil && !c.overlaps(p) {
			made := append([]store.Op{{Kind: store.Put, Key: m.block.Key, Value: string(b.Append(nil)), Expect: m.block.Rev}}, m.leaf...)
			c.step(fmt.Sprintf("make block %s of its addresses", p), append(made, ops[:txn.Fitting(c.limits, stepOps, ops, made...)]...)...)
			continue
		}
		for _, a := range m.addrs {
			if m.block.Rev == 0 {
				c.step(fmt.Sprintf("remove the record %q, in no block", a.Key), store.Op{Kind: store.Delete, Key: a.Key, Expect: a.Rev})
			}
		}
	}
}

// make returns the block with its addresses, whose sequence numbers are not above seq, and the operations on their records: those
// that write one come first.
func (m *remake) make(p netip.Prefix, seq uint64) (*block.Block, []store.Op, error) {
	b, err := block.New(p, block.Options{Seq: max(seq, 1)})
	if err != nil {
		return nil, nil, err
	}
	var writes, guards []store.Op
	for _, a := range m.addrs {
		if a.damaged {
			a.Address = block.Address{Holder: block.Holder{Seq: max(seq, 1)}}
			writes = append(writes, store.Op{Kind: store.Put, Key: a.Key, Value: string(a.Address.Append(nil, p.Bits())), Expect: a.Rev})
		} else {
			guards = append(guards, store.Op{Kind: store.Guard, Key: a.Key, Expect: a.Rev})
		}
		x, err := b.Ordinal(a.at)
		if err == nil {
			err = b.Put(x, a.Address)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, a := range b.Each() {
		for h := range a.Holders() {
			if !a.Cooling && h.Host.Kind != alloc.Nobody && !h.Borrowed {
				b.Give(h.Host, 0)
			}
		}
	}
	b.Disown()
	return b, append(writes, guards...), nil
}

// overlaps reports whether a block that is made again overlaps another one.
func (c *checker) overlaps(p netip.Prefix) bool {
	return slices.ContainsFunc(c.blocks, func(q netip.Prefix) bool { return q != p && q.Overlaps(p) })
}

// remade reports whether the repair makes the block that a key names.
func (c *checker) remade(key string) bool {
	p, ok := txn.ParseBlockKey(key)
	return ok && c.gone[p] != nil && !c.overlaps(p)
}
