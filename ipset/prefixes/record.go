package prefixes

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every key begins with X; an ipset.Engine on the same store does not touch such records.
// The package comment describes the records. In a key, <prefix> is the family, '4' or
// '6', the address and the length. Prefixes therefore sort by address. If two begin at
// the same address, the larger one comes first.
const (
	kindOf      = "X"
	keyRoots    = "Xr" // the root pools
	kindHolding = "Xh" // <prefix>: a holding
	kindOwner   = "Xo" // <owner> 0 <prefix>: the length of the pool that it is held from
	kindPage    = "Xf" // <pool> <depth> <address>: a page
)

// Limits of a request, in bytes.
const (
	MaxOwner      = 1024
	MaxAttributes = 4096
)

// recordVersion begins every value except those in the index.
const recordVersion = 1

func codeHoldingKey(c *wire.Coder, p *netip.Prefix) {
	c.Literal(kindHolding)
	c.Prefix(p)
}

func holdingKey(p netip.Prefix) string {
	var buf [20]byte
	c := wire.Coder{B: buf[:0], Writes: true}
	codeHoldingKey(&c, &p)
	return string(c.B)
}

func parseHoldingKey(key string) (p netip.Prefix, ok bool) {
	c := wire.Coder{Reader: wire.Reader{S: key}}
	codeHoldingKey(&c, &p)
	return p, c.End() == nil
}

func codeOwnerKey(c *wire.Coder, owner *string, p *netip.Prefix) {
	c.Literal(kindOwner)
	wire.Name(c, owner)
	c.Prefix(p)
}

func ownerKey(owner string, p netip.Prefix) string {
	c := wire.Write(nil)
	codeOwnerKey(c, &owner, &p)
	return string(c.B)
}

func parseOwnerKey(key string) (owner string, p netip.Prefix, ok bool) {
	c := wire.Read(key)
	codeOwnerKey(c, &owner, &p)
	return owner, p, c.End() == nil
}

// ownerRange returns the index entries of an owner in a prefix; the zero Prefix selects
// all.
func ownerRange(owner string, within netip.Prefix) store.Range {
	if !within.IsValid() {
		return store.Range{From: kindOwner + owner + "\x00", To: kindOwner + owner + "\x01"}
	}
	return store.Range{From: ownerKey(owner, within), To: ownerKey(owner, lastIn(within)) + "\x00"}
}

// parseEntry returns the prefix of an index entry and the length of the pool that the
// prefix is held from.
func parseEntry(rec store.Record) (at netip.Prefix, pool int, err error) {
	_, at, ok := parseOwnerKey(rec.Key)
	c, n := wire.Read(rec.Value), 0
	if wire.Byte(c, &n); !ok || c.End() != nil {
		return at, 0, corrupt(netip.Prefix{}, fmt.Sprintf("index entry %q", rec.Key))
	}
	return at, n, nil
}

// insideRange returns the keys of the holdings in a prefix, the holding of the prefix
// included. The zero Prefix selects all.
func insideRange(p netip.Prefix) store.Range {
	if !p.IsValid() {
		return store.Range{From: kindHolding, To: kindHolding + "\xff"}
	}
	return store.Range{From: holdingKey(p), To: holdingKey(lastIn(p)) + "\x00"}
}

// lastIn returns the prefix in p that sorts last by key: a single address.
func lastIn(p netip.Prefix) netip.Prefix {
	last := addr.FromAddr(p.Addr()).Or(addr.Low(uint(p.Addr().BitLen() - p.Bits())))
	if p.Addr().Is4() {
		return netip.PrefixFrom(last.Addr4(), 32)
	}
	return netip.PrefixFrom(last.Addr6(), 128)
}

// code encodes or decodes the key of a page. It begins with the common key of the pool's
// pages.
func (id *pageID) code(c *wire.Coder) {
	c.Literal(kindPage)
	pool, depth := id.of(), id.depth()
	c.Prefix(&pool)
	wire.Byte(c, &depth)
	if c.Index(pool.Addr().Is6(), &id.base); c.Writes || c.Err != nil {
		return
	}
	tr := tree{pool: pool}
	*id = newPageID(pool, depth, id.base)
	if depth >= maxDepth || depth > 0 && pool.Bits()+pageBits*depth >= tr.width() || tr.at(id.base, 0) != tr.root() || tr.at(id.base, depth) != *id {
		c.Fail("page")
	}
}

// key returns the key of a page.
func (id pageID) key() string {
	var buf [48]byte
	c := wire.Coder{B: buf[:0], Writes: true}
	id.code(&c)
	return string(c.B)
}

func parsePageKey(key string) (id pageID, ok bool) {
	c := wire.Coder{Reader: wire.Reader{S: key}}
	id.code(&c)
	return id, c.End() == nil
}

// pagesRange returns the keys of the pages of a pool.
func pagesRange(pool netip.Prefix) store.Range {
	c := wire.Write([]byte(kindPage))
	c.Prefix(&pool)
	return store.Range{From: string(c.B), To: string(c.B) + "\xff"}
}

// record is a holding in the form that the store has.
type record struct {
	Holding
	above string // the lengths of the pools that it is in, the root pool's first
}

// code encodes or decodes the value of a holding's record.
func (r *record) code(c *wire.Coder) {
	c.Version(recordVersion)
	pool, lease := r.Children != (Sizes{}), !r.Until.IsZero()
	c.Flags(&pool, &lease)
	wire.String(c, &r.above)
	if pool {
		if r.Children.code(c); r.Children == (Sizes{}) {
			c.Fail("children")
		}
	}
	if lease {
		r.codeUntil(c)
	}
	wire.String(c, &r.Owner)
	wire.Rest(c, &r.Attributes)
}

func (s *Sizes) code(c *wire.Coder) {
	wire.Byte(c, &s.Shortest)
	wire.Byte(c, &s.Longest)
}

// decodeHolding returns the holding of a prefix from the value of its record.
func decodeHolding(p netip.Prefix, value string) (record, error) {
	c := wire.Coder{Reader: wire.Reader{S: value}}
	var r record
	r.code(&c)
	r.Prefix, r.Level = p, len(r.above)
	last := -1
	for i := range r.Level {
		if n := int(r.above[i]); n <= last || n > p.Bits() || n == p.Bits() && r.Level > 1 {
			c.Fail("pools")
		} else {
			last = n
		}
	}
	if r.Owner == "" || len(r.Owner) > MaxOwner || len(r.Attributes) > MaxAttributes {
		c.Fail("owner or attributes")
	}
	if r.Level == 0 || r.Children != (Sizes{}) && (r.Children.check(p, false) != "" || int(r.above[r.Level-1]) == p.Bits()) {
		c.Fail("pools or children")
	}
	if c.Err != nil {
		return record{}, unreadable(p, "a holding", c.Err)
	}
	r.Pool = r.poolAt(r.Level - 1)
	return r, nil
}

// poolAt returns the pool at a level above the holding; 0 is the root pool.
func (r *record) poolAt(level int) netip.Prefix {
	return netip.PrefixFrom(r.Prefix.Addr(), int(r.above[level])).Masked()
}

// code encodes or decodes the record of the root pools.
func (r *roots) code(c *wire.Coder) {
	c.Version(recordVersion)
	c.Flags(&r.leases)
	wire.List(c, &r.pools, 1, func(c *wire.Coder, p *Pool) {
		c.Prefix(&p.Prefix)
		if p.Sizes.code(c); !c.Writes && p.Sizes.check(p.Prefix, true) != "" {
			c.Fail("sizes")
		}
	})
}

func decodeRoots(value string) (r roots, err error) {
	c := wire.Read(value)
	if r.code(c); c.End() != nil {
		return roots{}, unreadable(netip.Prefix{}, "the root pools", c.Err)
	}
	return newRoots(r.pools, r.leases), nil
}

// unreadable returns the error for a record that cannot be decoded: ErrVersion if another
// version wrote it, else ErrCorrupt.
func unreadable(p netip.Prefix, what string, err error) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Prefix: p, Reason: "record of " + what + ": " + err.Error(), Err: err}
}

// corrupt returns the error for damaged records; the call completes it.
func corrupt(p netip.Prefix, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Prefix: p, Reason: reason, Err: ipalloc.ErrCorrupt}
}
