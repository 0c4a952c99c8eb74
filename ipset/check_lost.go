package ipset

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// stray is an address record without a block.
type stray struct {
	store.Record
	block.Address
	at netip.Addr
}

// lost reports the addresses of a block that have no record, or an unreadable one. The repair writes records without holder: the
// addresses stay held until they are released by name, because someone may use them. A lease among them becomes one without end.
// Each step guards the block's record, and the last one writes it if it changes.
func (v *view) lost(b *block.Block, unreadable []netip.Addr) {
	if b.Absent() == 0 {
		return
	}
	var ops []store.Op
	for _, x := range b.AppendAbsent(nil) {
		at, key := b.Addr(x), addressKey(b.Addr(x))
		a := block.Address{Holder: block.Holder{Seq: max(b.Seq(), 1)}}
		if a.Cooling = b.IsCooling(x); a.Cooling {
			a.Until = b.CoolsUntil(x)
		}
		b.Load(x, &a)
		if !slices.Contains(unreadable, at) {
			v.c.add(Problem{Kind: LostAddress, Key: key, Addr: at, Block: b.Prefix()})
		}
		ops = append(ops, store.Op{Kind: store.Put, Key: key, Value: string(a.Append(nil, b.Prefix().Bits())), Expect: v.from[key]})
	}
	last := v.guard(v.name)
	if b.Recount() {
		last = store.Op{Kind: store.Put, Key: v.name, Value: string(b.Append(nil)), Expect: v.from[v.name]}
	}
	for len(ops) > 0 {
		n, with := fitting(v.c.limits, stepOps, ops, last), v.guard(v.name)
		if n == len(ops) {
			with = last
		}
		v.c.step(fmt.Sprintf("write records without holder in %s", b.Prefix()), append([]store.Op{with}, ops[:n]...)...)
		ops = ops[n:]
	}
}

// lostBlocks reports the blocks whose addresses are there and that are not. The repair makes each again, without owner and with
// these addresses: what is held stays held. Its index records are written by the next repair. A block that came and went
// meanwhile changed its space page or the floor of that, which the step guards, with as many of the addresses as it has room for.
func (c *checker) lostBlocks() {
	for p, addrs := range c.gone {
		b, err := block.New(p, block.Options{Seq: c.generation() << genShift})
		key := blockKey(kindBlock, p)
		var guards []store.Op
		for _, a := range addrs {
			guards = append(guards, store.Op{Kind: store.Guard, Key: a.Key, Expect: a.Rev})
			x := uint64(0)
			if err == nil {
				x, err = b.Ordinal(a.at)
			}
			if err == nil {
				err = b.Put(x, a.Address)
			}
		}
		c.add(Problem{Kind: LostBlock, Key: key, Block: p, Detail: fmt.Sprintf("%d addresses", len(addrs))})
		if err == nil && !c.overlaps(p) {
			made := append([]store.Op{{Kind: store.Put, Key: key, Value: string(b.Append(nil))}}, c.leaves[p]...)
			c.step(fmt.Sprintf("make block %s of its addresses", p), append(made, guards[:fitting(c.limits, stepOps, guards, made...)]...)...)
			continue
		}
		for _, a := range addrs {
			c.step(fmt.Sprintf("remove the record %q, in no block", a.Key), store.Op{Kind: store.Delete, Key: a.Key, Expect: a.Rev})
		}
	}
}

// overlaps reports whether a block that is gone overlaps one that is there.
func (c *checker) overlaps(p netip.Prefix) bool { return slices.ContainsFunc(c.blocks, p.Overlaps) }

// remade reports whether the repair makes the block that a key names.
func (c *checker) remade(key string) bool {
	p, ok := parseBlockKey(key)
	return ok && c.gone[p] != nil && !c.overlaps(p)
}
