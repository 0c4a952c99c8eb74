package pool

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// The catalog is two records. The root, under CatalogKey, is a few bytes: every commit that assigns an address guards it, and every
// query reads it. The pools, the reservations and the configuration are the record under PoolsKey. Both are written in one commit, so the
// revision of the root says whether an engine has decoded the present pools. A pool takes some 25 bytes, a reservation 14 or 38, and its
// note.
//
// The coded pools are version 1 and the fields of code; a coded pool is the fields of codePool.
const CatalogVersion = 1

// code codes the record of the pools.
func (c *Catalog) code(w *wire.Coder) {
	wire.Uint(w, &c.Generation)
	w.Flags(&c.Config.Strict, &c.Config.NoAutoBlocks)
	wire.Uint(w, &c.Config.MaxBlocksPerHost)
	wire.List(w, &c.Pools, 1, codePool)
	wire.List(w, &c.Reserved, 1, codeReserved)
}

// codePool codes a pool. Flags announce the fields that most pools lack.
func codePool(w *wire.Coder, p *Pool) {
	wire.String(w, &p.Name)
	at, length := p.Prefix.Addr(), p.Prefix.Bits()
	w.Addrs(&at)
	wire.Byte(w, &length)
	if !w.Writes { // the catalog that is written may be read meanwhile
		p.Prefix = netip.PrefixFrom(at, length)
	}
	wire.Byte(w, &p.BlockBits)
	priority, most, cooldown, ranges := p.Priority != 0, p.MaxBlocksPerHost != 0, p.Cooldown != 0, len(p.Ranges) > 0
	draining, nodes, namespaces, index, seed, note := len(p.Draining) > 0, len(p.Nodes) > 0, len(p.Namespaces) > 0, len(p.Index) > 0, p.Seed != 0, p.Note != ""
	w.Flags(&p.Disabled, &p.Manual, &p.Subnet, &priority, &most, &cooldown, &ranges, &draining, &nodes, &namespaces, &index, &seed, &p.Closed, &note)
	wire.Byte(w, &p.Uses)
	wire.Byte(w, &p.Order)
	if priority {
		wire.Int(w, &p.Priority)
	}
	if most {
		wire.Uint(w, &p.MaxBlocksPerHost)
	}
	if cooldown {
		wire.Uint(w, &p.Cooldown)
	}
	if ranges {
		wire.List(w, &p.Ranges, 1, codeAddrs)
	}
	if draining {
		wire.List(w, &p.Draining, 1, wire.Byte[int])
	}
	if nodes {
		codeSelector(w, &p.Nodes)
	}
	if namespaces {
		codeSelector(w, &p.Namespaces)
	}
	if index {
		wire.List(w, &p.Index, 1, wire.String)
	}
	if seed {
		wire.Uint(w, &p.Seed)
	}
	if note {
		wire.String(w, &p.Note)
	}
}

func codeAddrs(w *wire.Coder, r *netipx.IPRange) {
	from, to := r.From(), r.To()
	w.Addrs(&from, &to)
	if !w.Writes {
		*r = netipx.IPRangeFrom(from, to)
	}
}

// codeSelector codes a selector as JSON.
func codeSelector(w *wire.Coder, s *selector.Selector) {
	text, err := json.Marshal(*s)
	form := string(text)
	wire.String(w, &form)
	if !w.Writes && w.Err == nil {
		err = json.Unmarshal([]byte(form), s)
	}
	if err != nil {
		w.Fail("selector")
	}
}

// RootOf returns the record that every commit depends on: the version, the generation and the length of the record of the pools, 0 if
// there is none.
func RootOf(generation uint64, pools string) string {
	var buf [1 + 2*binary.MaxVarintLen64]byte
	return string(binary.AppendUvarint(binary.AppendUvarint(append(buf[:0], CatalogVersion), generation), uint64(len(pools))))
}

// DecodeRooted decodes the catalog of two records that were read at one moment. Without a root there is no catalog, even if an
// unfinished copy has brought pools. It returns [ipalloc.ErrCorrupt] if the pools do not match the root.
func DecodeRooted(root, pools store.Record) (*Catalog, error) {
	if root.Rev == 0 {
		return DecodeCatalog("")
	}
	if root.Value == store.CopyMark {
		return nil, cause.Copied
	}
	c, err := DecodeCatalog(pools.Value)
	if err == nil && root.Value != RootOf(c.Generation, pools.Value) {
		return nil, fmt.Errorf("%w: the root of the catalog is not that of its pools", ipalloc.ErrCorrupt)
	}
	return c, err
}

// Encode returns the record of the pools. Equal catalogs have equal records.
func (c *Catalog) Encode() (string, error) {
	w := wire.Write([]byte{CatalogVersion})
	c.code(w)
	return string(w.B), w.Err
}

// DecodeCatalog reads the record of the pools; no record is an empty catalog.
func DecodeCatalog(s string) (*Catalog, error) {
	c := &Catalog{Version: CatalogVersion}
	if s == "" {
		return c, c.Prepare()
	}
	r := &wire.Coder{Reader: wire.Reader{S: s}}
	r.Version(CatalogVersion)
	if c.code(r); r.Err == nil && r.S != "" {
		r.Fail("bytes after the catalog")
	}
	if r.Err != nil {
		return nil, fmt.Errorf("%w: catalog", r.Err)
	}
	if err := c.Prepare(); err != nil {
		return nil, fmt.Errorf("%w: catalog: %w", ipalloc.ErrCorrupt, err)
	}
	return c, nil
}
