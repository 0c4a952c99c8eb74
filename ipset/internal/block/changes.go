package block

import (
	"maps"
	"slices"
)

// Changes notes the former address records of a block that a transaction changes; see [Block.Track].
type Changes struct {
	// List has each changed address once, in the order of the first change.
	List  []Change
	marks uint64              // which of the first 64 ordinals are in the list
	more  map[uint64]struct{} // the others
	spare []*Address          // used up
}

// Change is an address that may have changed: its ordinal, and its record before, nil if it had none.
type Change struct {
	X   uint64
	Was *Address
}

// coolingRecord stands for the record of a cooling address that was not loaded: it exists and is in no index.
var coolingRecord = &Address{Cooling: true}

// note remembers the record of an ordinal, unless a change of it has been noted before.
func (c *Changes) note(x uint64, was *Address, exists bool) {
	if c == nil {
		return
	}
	if was == nil && exists {
		was = coolingRecord
	}
	if c.has(x) {
		return
	}
	if x < 64 {
		c.marks |= 1 << x
	} else {
		if c.more == nil {
			c.more = make(map[uint64]struct{})
		}
		c.more[x] = struct{}{}
	}
	c.List = append(c.List, Change{x, was})
}

// has reports whether a change of an ordinal has been noted.
func (c *Changes) has(x uint64) bool {
	if c == nil {
		return false
	}
	if x < 64 {
		return c.marks>>x&1 != 0
	}
	_, ok := c.more[x]
	return ok
}

// Clone returns a copy.
func (c *Changes) Clone() Changes {
	return Changes{List: slices.Clone(c.List), marks: c.marks, more: maps.Clone(c.more)}
}

// make returns an address to be filled in.
func (c *Changes) make() *Address {
	if len(c.spare) == 0 {
		return new(Address)
	}
	a := c.spare[len(c.spare)-1]
	c.spare = c.spare[:len(c.spare)-1]
	return a
}

// spareMost is how many used addresses a block keeps for the next.
const spareMost = 8

// Settle empties the list when it has been written.
func (c *Changes) Settle() {
	for _, ch := range c.List {
		if ch.Was != nil && ch.Was != coolingRecord && len(c.spare) < spareMost {
			*ch.Was = Address{}
			c.spare = append(c.spare, ch.Was)
		}
	}
	clear(c.List)
	c.List, c.marks = c.List[:0], 0
	clear(c.more)
}
