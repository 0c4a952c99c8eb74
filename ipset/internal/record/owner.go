package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An owner has a record for each block that is its own, or was and has an address that may be held for it. These follow from the
// blocks, like all index records. A record before them has the number of its own blocks. Every commit that gives it a block or takes
// one writes the number, and a commit that depends on a limit verifies it. A few blocks are listed beside the number, because a new
// engine then reads them in the same round trip. So a record of an owner has at most some hundred bytes, however many blocks it has.

// hadBefore is the value of the record of a former block of the owner. The record of a present block has no value.
const hadBefore = 1

// OwnerKey returns the key of the number of blocks of an owner. The keys of the records of these blocks begin with it.
func OwnerKey(o alloc.Owner) string { return KindOwner + block.OwnerCode(o) + "\x00" }

// ParseOwnerKey is the inverse of OwnerKey.
func ParseOwnerKey(key string) (alloc.Owner, bool) {
	if key == "" || strings.IndexByte(key, 0) != len(key)-1 {
		return alloc.Owner{}, false
	}
	o, err := block.OwnerOf(key[1 : len(key)-1])
	return o, err == nil && o.Kind != alloc.Nobody
}

const (
	ownerVersion = 1
	// MaxListed is the largest number of blocks that are listed. One commit can verify so many.
	MaxListed = 64
)

// Owned is how many blocks an owner has, and which if they are few. It is a value.
type Owned struct {
	N      int
	Blocks []netip.Prefix // all in address order if they are listed, else nil
	moves  []move         // since the record was read or written, if they are not
}

// move is a block that came, with n 1, or that went, with n -1.
type move struct {
	at netip.Prefix
	n  int
}

// code codes the record: the version, the number, and the blocks if they are few.
func (o *Owned) code(c *wire.Coder) {
	c.Version(ownerVersion)
	if wire.Uint(c, &o.N); !c.Writes && (o.N <= 0 || uint64(o.N) > 1<<48) {
		c.Fail("number")
	}
	if o.N > MaxListed || c.Err != nil {
		return
	}
	if !c.Writes {
		o.Blocks = make([]netip.Prefix, o.N)
	}
	for i := range o.Blocks {
		if c.Prefix(&o.Blocks[i]); !c.Writes && i > 0 && ComparePrefix(o.Blocks[i-1], o.Blocks[i]) >= 0 {
			c.Fail("block")
		}
	}
}

// Append appends the record.
func (o *Owned) Append(dst []byte) []byte {
	c := wire.Write(dst)
	o.code(c)
	return c.B
}

// OwnedOf returns the value for some blocks, which ascend. They are listed, also if they are many.
func OwnedOf(blocks []netip.Prefix) Owned { return Owned{N: len(blocks), Blocks: blocks} }

// DecodeOwned reads the record of an owner; no record is no blocks.
func DecodeOwned(rec store.Record) (o Owned, err error) {
	if rec.Rev == 0 {
		return o, nil
	}
	c := wire.Read(rec.Value)
	o.code(c)
	if err := c.End(); err != nil {
		return Owned{}, fmt.Errorf("%w: blocks of an owner", err)
	}
	return o, nil
}

// BlocksOf returns the blocks that the records of an owner name, in address order: own are its present blocks, had its former
// ones. The records begin as [CodeRange] says, and the number may be among them.
func BlocksOf(o alloc.Owner, recs []store.Record) (own, had []netip.Prefix, err error) {
	at := len(OwnerKey(o))
	for _, r := range recs {
		if len(r.Key) == at {
			continue
		}
		p, ok := ParseBlockID(r.Key[at:])
		if !ok {
			return nil, nil, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, r.Key)
		}
		if r.Value == "" {
			own = append(own, p)
		} else {
			had = append(had, p)
		}
	}
	return own, had, nil
}

// Listed reports whether Blocks are all blocks.
func (o *Owned) Listed() bool { return len(o.Blocks) == o.N }

// With returns o with one block more, which it has not had.
func (o Owned) With(p netip.Prefix) Owned { return o.after(move{p, 1}) }

// Without returns o with one block less, which it has had. It is not listed if o is not, however few are left.
func (o Owned) Without(p netip.Prefix) Owned { return o.after(move{p, -1}) }

func (o Owned) after(m move) Owned {
	if o.Listed() {
		return OwnedOf(m.apply(o.Blocks))
	}
	o.N += m.n
	o.moves = append(slices.Clip(o.moves), m)
	return o
}

// All returns all blocks. If they are not listed, stored must be the blocks that the store had when the record was read
// or written.
func (o *Owned) All(stored []netip.Prefix) []netip.Prefix {
	if o.Listed() {
		return o.Blocks
	}
	for _, m := range o.moves {
		stored = m.apply(stored)
	}
	return stored
}

// Settled returns o as it is written.
func (o Owned) Settled() Owned {
	if o.N > MaxListed {
		return Owned{N: o.N}
	}
	return o
}

// apply returns ascending blocks as the move leaves them. It does not change the slice.
func (m move) apply(blocks []netip.Prefix) []netip.Prefix {
	i, found := slices.BinarySearchFunc(blocks, m.at, ComparePrefix)
	switch {
	case m.n > 0 && !found:
		return slices.Insert(slices.Clip(blocks), i, m.at)
	case m.n < 0 && found:
		return slices.Delete(slices.Clone(blocks), i, i+1)
	}
	return blocks
}

// ComparePrefix orders prefixes as their block keys are ordered.
func ComparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
