package ipset

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// stray is an address record without a block.
type stray struct {
	key string
	address
	at netip.Addr
}

// lostBlocks reports the blocks whose addresses are there and that are not. The repair makes each again, without owner and with
// these addresses: what is held stays held. Its index records are written by the next repair.
func (c *checker) lostBlocks() {
	for p, addrs := range c.stray {
		b, err := NewBlock(p, BlockOptions{Seq: c.mark})
		key := blockKey(kindBlock, p)
		ops := []store.Op{{Kind: store.Put, Key: key, Expect: c.revs[key]}}
		for _, a := range addrs {
			ops = append(ops, store.Op{Kind: store.Guard, Key: a.key, Expect: c.revs[a.key]})
			x := uint64(0)
			if err == nil {
				x, err = b.locate(a.at)
			}
			if err == nil {
				err = b.restore(x, a.address)
			}
		}
		overlaps := slices.ContainsFunc(c.blocks, func(o *Block) bool { return o.prefix.Overlaps(p) })
		c.add(Problem{Kind: LostBlock, Key: key, Block: p, Detail: fmt.Sprintf("%d addresses", len(addrs))})
		if err == nil && !overlaps {
			ops[0].Value = string(b.append(nil))
			c.step(fmt.Sprintf("make block %s of its addresses", p), ops...)
			continue
		}
		for _, op := range ops[1:] {
			c.step(fmt.Sprintf("remove the record %q, in no block", op.Key), store.Op{Kind: store.Delete, Key: op.Key, Expect: op.Expect})
		}
	}
}

// lost reports the addresses of a block that have no record. The repair writes records without holder: the addresses stay held
// until
// they are released by name, because someone may use them. A lease among them becomes one without end.
func (c *checker) lost(b *Block) {
	if b.absent == 0 {
		return
	}
	block := blockKey(kindBlock, b.prefix)
	ops := []store.Op{{Kind: store.Guard, Key: block, Expect: c.revs[block]}}
	for _, x := range b.absentOnes(nil) {
		at, key := b.addr(x), addressKey(b.addr(x))
		a := address{seq: max(b.seq, 1)}
		if st, _ := b.look(x); st == stateCooling {
			a.cooling, a.until = true, b.cool[len(b.cool)-1].until
			if i := b.coolAt(x); b.cool[i].until != 0 {
				a.until = b.cool[i].until
			}
		}
		b.load(x, &a)
		if !slices.Contains(c.unreadable, at) {
			c.add(Problem{Kind: LostAddress, Key: key, Addr: at, Block: b.prefix})
		}
		ops = append(ops, store.Op{Kind: store.Put, Key: key, Value: string(a.append(nil, b.prefix.Bits())), Expect: c.revs[key]})
	}
	leases := uint64(0)
	for _, a := range b.each() {
		if a.until != 0 && !a.cooling {
			leases++
		}
	}
	if leases != b.leases {
		b.leases, b.ended = leases, true
		b.tidy()
		ops[0] = store.Op{Kind: store.Put, Key: block, Value: string(b.append(nil)), Expect: c.revs[block]}
	}
	c.step(fmt.Sprintf("write records without holder in %s", b.prefix), ops...)
}

// compare sets what is used against what is held.
func (c *checker) compare(uses iter.Seq[InUse]) {
	used := make(map[netip.Addr]InUse)
	for u := range uses {
		if _, twice := used[u.Address]; twice {
			c.add(Problem{Kind: UsedTwice, Addr: u.Address, Detail: u.Handle})
		}
		used[u.Address] = u
	}
	for _, b := range c.blocks {
		for al := range b.All() {
			u, ok := used[al.Address]
			if al.Cooling {
				continue // if it is in use all the same, no handle holds it
			}
			delete(used, al.Address)
			switch {
			case !ok:
				c.add(Problem{Kind: Unused, Addr: al.Address, Block: b.prefix, Detail: "handle " + al.Handle})
				c.rep.Repair = append(c.rep.Repair, Step{
					Text:     fmt.Sprintf("release %s of handle %s", al.Address, al.Handle),
					Releases: []Release{{al.Address, Guard{Handle: al.Handle, Seq: al.Seq}}},
				})
			case u.Handle != "" && u.Handle != al.Handle:
				c.add(Problem{Kind: OtherHandle, Addr: al.Address, Detail: fmt.Sprintf("held by %s, used by %s", al.Handle, u.Handle)})
			}
		}
	}
	left := make([]netip.Addr, 0, len(used))
	for a := range used {
		left = append(left, a)
	}
	slices.SortFunc(left, netip.Addr.Compare)
	for _, a := range left {
		kind := NotHeld
		if c.cat.containing(a) < 0 {
			kind = OutsideOfPool
		}
		c.add(Problem{Kind: kind, Addr: a, Detail: used[a].Handle})
	}
}
