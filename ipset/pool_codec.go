package ipset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The catalog is two records. The root, under catalogKey, is a few bytes: every commit that assigns an address guards it, and every
// query reads it. The pools and what else there is are the record under poolsKey. Both are written in one commit, so the revision of
// the root says whether the pools are those that an engine has decoded. A pool takes some 25 bytes, a reserved range 8 or 32.
//
// The coded pools, version 2. Numbers are uvarints, signed ones zig-zag; a string is its length and its bytes.
//
//	2, generation
//	config            1 strict, 2 no automatic blocks; most blocks of a host
//	pools             their number, then each
//	reserved          the number of ranges, then first and last of each
//
// A pool is its name, prefix (length of the address, address, prefix length), block bits, flags, uses and order, and by flags:
// priority (signed), most blocks of a host, cooldown in nanoseconds, ranges, draining sizes, selectors of nodes and of namespaces, each a
// string of JSON, and indexed keys (their number, then each).
const (
	catalogVersion = 2

	poolDisabled = 1 << iota >> 1
	poolManual
	poolSubnet
	poolPriority
	poolMost
	poolCooldown
	poolRanges
	poolDraining
	poolNodes
	poolNamespaces
	poolIndex
	poolFlags = 1<<11 - 1
)

// rootOf returns the record that every commit depends on: the version, the generation and the length of the record of the pools, 0 if
// there is none.
func rootOf(generation uint64, pools string) string {
	return string(binary.AppendUvarint(binary.AppendUvarint([]byte{catalogVersion}, generation), uint64(len(pools))))
}

// decodeRooted decodes the catalog of two records that were read at one moment. Without a root there is no catalog, whatever pools an
// unfinished copy has brought. It returns [ipalloc.ErrCorrupt] for pools that are not those of the root.
func decodeRooted(root, pools store.Record) (*catalog, error) {
	if root.Rev == 0 {
		return decodeCatalog("")
	}
	c, err := decodeCatalog(pools.Value)
	if err == nil && root.Value != rootOf(c.Generation, pools.Value) {
		return nil, fmt.Errorf("%w: the root of the catalog is not that of its pools", ipalloc.ErrCorrupt)
	}
	return c, err
}

// encode returns the record of the pools, in one form for what is the same.
func (c *catalog) encode() (string, error) {
	dst := binary.AppendUvarint([]byte{catalogVersion}, c.Generation)
	flags := byte(0)
	if c.Config.Strict {
		flags |= 1
	}
	if c.Config.NoAutoBlocks {
		flags |= 2
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(c.Config.MaxBlocksPerHost))
	dst = binary.AppendUvarint(dst, uint64(len(c.Pools)))
	for i := range c.Pools {
		var err error
		if dst, err = c.Pools[i].append(dst); err != nil {
			return "", err
		}
	}
	return string(appendRanges(dst, c.Reserved)), nil
}

// append appends the coded pool.
func (p *Pool) append(dst []byte) ([]byte, error) {
	dst = wire.AppendString(dst, p.Name)
	dst = wire.AppendAddr(append(dst, byte(p.Prefix.Addr().BitLen())), p.Prefix.Addr())
	flags := 0
	for i, set := range [...]bool{p.Disabled, p.Manual, p.Subnet, p.Priority != 0, p.MaxBlocksPerHost != 0, p.Cooldown != 0, len(p.Ranges) > 0, len(p.Draining) > 0, len(p.Nodes) > 0, len(p.Namespaces) > 0, len(p.Index) > 0} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(dst, byte(p.Prefix.Bits()), byte(p.BlockBits))
	dst = append(binary.AppendUvarint(dst, uint64(flags)), byte(p.Uses), byte(p.Order))
	if flags&poolPriority != 0 {
		dst = binary.AppendVarint(dst, int64(p.Priority))
	}
	if flags&poolMost != 0 {
		dst = binary.AppendUvarint(dst, uint64(p.MaxBlocksPerHost))
	}
	if flags&poolCooldown != 0 {
		dst = binary.AppendUvarint(dst, uint64(p.Cooldown))
	}
	if flags&poolRanges != 0 {
		dst = appendRanges(dst, p.Ranges)
	}
	if flags&poolDraining != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(p.Draining)))
		for _, size := range p.Draining {
			dst = append(dst, byte(size))
		}
	}
	for _, s := range [...]Selector{p.Nodes, p.Namespaces} {
		if len(s) == 0 {
			continue
		}
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		dst = wire.AppendString(dst, string(text))
	}
	if flags&poolIndex != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(p.Index)))
		for _, key := range p.Index {
			dst = wire.AppendString(dst, key)
		}
	}
	return dst, nil
}

func appendRanges(dst []byte, rs []netipx.IPRange) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rs)))
	for _, r := range rs {
		dst = wire.AppendAddr(append(dst, byte(r.From().BitLen())), r.From())
		dst = wire.AppendAddr(dst, r.To())
	}
	return dst
}

// decodeCatalog reads the record of the pools; no record is an empty catalog.
func decodeCatalog(s string) (*catalog, error) {
	c := &catalog{Version: catalogVersion}
	if s == "" {
		return c, c.prepare()
	}
	r := wire.Reader{S: s}
	if v := r.Byte(); v != catalogVersion {
		return nil, fmt.Errorf("%w: catalog of version %d", ipalloc.ErrCorrupt, v)
	}
	c.Generation = r.Uvarint()
	flags := r.Byte()
	c.Config = Config{Strict: flags&1 != 0, NoAutoBlocks: flags&2 != 0, MaxBlocksPerHost: int(r.Uvarint())}
	if n := r.Uvarint(); n <= uint64(len(r.S)) {
		c.Pools = make([]Pool, n)
	} else {
		r.Fail("number of pools")
	}
	for i := range c.Pools {
		c.Pools[i].read(&r)
	}
	c.Reserved = readRanges(&r)
	if r.Err == nil && (r.S != "" || flags > 3) {
		r.Fail("bytes after the catalog")
	}
	if r.Err != nil {
		return nil, fmt.Errorf("%w: catalog", r.Err)
	}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("%w: catalog: %w", ipalloc.ErrCorrupt, err)
	}
	return c, nil
}

// read reads a coded pool.
func (p *Pool) read(r *wire.Reader) {
	p.Name = r.Bytes(r.Uvarint())
	a := readAddr(r, r.Byte())
	p.Prefix = netip.PrefixFrom(a, int(r.Byte()))
	p.BlockBits = int(r.Byte())
	flags := r.Uvarint()
	p.Uses, p.Order = Use(r.Byte()), Order(r.Byte())
	if flags&^poolFlags != 0 {
		r.Fail("flags of a pool")
	}
	p.Disabled, p.Manual, p.Subnet = flags&poolDisabled != 0, flags&poolManual != 0, flags&poolSubnet != 0
	if flags&poolPriority != 0 {
		p.Priority = int(r.Varint())
	}
	if flags&poolMost != 0 {
		p.MaxBlocksPerHost = int(r.Uvarint())
	}
	if flags&poolCooldown != 0 {
		p.Cooldown = time.Duration(r.Uvarint())
	}
	if flags&poolRanges != 0 {
		p.Ranges = readRanges(r)
	}
	if flags&poolDraining != 0 {
		for _, size := range []byte(r.Bytes(r.Uvarint())) {
			p.Draining = append(p.Draining, int(size))
		}
	}
	for _, s := range [...]struct {
		flag uint64
		to   *Selector
	}{{poolNodes, &p.Nodes}, {poolNamespaces, &p.Namespaces}} {
		if flags&s.flag == 0 || r.Err != nil {
			continue
		}
		if err := json.Unmarshal([]byte(r.Bytes(r.Uvarint())), s.to); err != nil {
			r.Fail("selector")
		}
	}
	if flags&poolIndex != 0 {
		for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
			p.Index = append(p.Index, r.Bytes(r.Uvarint()))
		}
	}
}

func readRanges(r *wire.Reader) (rs []netipx.IPRange) {
	n := r.Uvarint()
	if n > uint64(len(r.S)) {
		r.Fail("number of ranges")
	}
	rs = slices.Grow(rs, int(min(n, uint64(len(r.S)))))
	for ; n > 0 && r.Err == nil; n-- {
		bits := r.Byte()
		rs = append(rs, netipx.IPRangeFrom(readAddr(r, bits), readAddr(r, bits)))
	}
	return rs
}

// readAddr reads an address of 32 or 128 bits.
func readAddr(r *wire.Reader, bits byte) netip.Addr {
	if bits != 32 && bits != 128 {
		r.Fail("length of an address")
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice([]byte(r.Bytes(uint64(bits / 8))))
	if addr.CheckAddr(a) != nil {
		r.Fail("address")
	}
	return a
}
