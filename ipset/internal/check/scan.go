package check

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A check reads everything once, in pages. Blocks and their addresses lie in the same order and are read side by side. What
// follows from them (index records, numbers of blocks of owners, pages of pools), and the entries of memos by age, are compared with
// what is there without keeping either: each such record belongs to a group, which keeps the sum of the hashes of the records
// that it should have less those that it has. The hash is chosen at random for each check, so if the two sets differ the sum is
// zero with a probability of 2^-64 only, whatever the records are. A group whose sum is not zero, or whose block or addresses
// have a flaw, is suspect and settled: it is read again in one consistent view. See settle.go.
//
// A group has the name of the block's record, of the owner's or of the page; memos are in a fixed number of buckets.

// reader is what a check reads: the store of an engine, or a snapshot.
type reader interface {
	Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error)
	List(ctx context.Context, r store.Range) ([]store.Record, uint64, error)
}

// Snapshot is a reader of records in key order. It reads forward only.
type Snapshot []store.Record

func (s Snapshot) seek(key string) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Key >= key })
}

func (s Snapshot) Get(_ context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	for _, k := range keys {
		if i := s.seek(k); i < len(s) && s[i].Key == k {
			dst = append(dst, s[i])
		} else {
			dst = append(dst, store.Record{Key: k})
		}
	}
	return dst, nil
}

func (s Snapshot) List(_ context.Context, r store.Range) ([]store.Record, uint64, error) {
	from, to := s.seek(r.From), len(s)
	if r.To != "" {
		to = max(s.seek(r.To), from)
	}
	if r.Limit > 0 {
		to = min(to, from+r.Limit)
	}
	return s[from:to], 0, nil
}

// group is what should be there less what is there.
type group struct {
	sum     uint64 // of hashes
	suspect bool
	held    bool // what the block holds has been noted
}

type checker struct {
	ctx   context.Context
	in    reader
	rep   *audit.Report
	seed  maphash.Seed
	at    netip.Prefix // of the index record that records yields
	buf   []byte
	index []record.IndexEntry

	groups  map[string]*group
	listed  map[string][]string // keys of derived records, by suspect group
	cat     *pool.Catalog
	root    uint64         // revision of the catalog
	pools   uint64         // revision of its pools
	blocks  []netip.Prefix // in the order of their keys
	owners  map[alloc.Owner][]netip.Prefix
	pages   map[record.PageID]record.Page // the words that the blocks make
	past    int64                         // what ends at this moment or before has ended
	limits  store.Limits
	compare bool                // with what is in use
	held    []holding           // if so
	free    map[netip.Addr]bool // with a record all the same

	last uint64                   // the highest generation of a sequence number
	lost bool                     // marks are lost: new blocks must begin above all sequence numbers
	gone map[netip.Prefix]*remake // blocks to be made again

	later bool // a record that others follow from is of another version
}

func newChecker(ctx context.Context, in reader, past int64, limits store.Limits) *checker {
	return &checker{
		ctx: ctx, in: in, past: past, limits: limits, seed: maphash.MakeSeed(), rep: &audit.Report{}, cat: &pool.Catalog{}, groups: make(map[string]*group),
		listed: make(map[string][]string), owners: make(map[alloc.Owner][]netip.Prefix), pages: make(map[record.PageID]record.Page), gone: make(map[netip.Prefix]*remake),
		free: make(map[netip.Addr]bool),
	}
}

// compareProblems orders problems by kind, then blocks and addresses as numbers, then by text.
func compareProblems(a, b audit.Problem) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), record.ComparePrefix(a.Prefix, b.Prefix), a.Addr.Compare(b.Addr), strings.Compare(a.String(), b.String()))
}

// run examines everything.
func (c *checker) run(uses iter.Seq[audit.InUse]) error {
	c.compare = uses != nil
	// The catalog is read after the blocks, so that it has the pools of all of them.
	for _, step := range []func() error{c.scanBlocks, c.scanRest, c.readCatalog, c.places, c.suspects} {
		if err := step(); err != nil {
			return err
		}
	}
	c.lostBlocks()
	if c.compare {
		if err := c.uses(uses); err != nil {
			return err
		}
	}
	slices.SortStableFunc(c.rep.Repair, func(a, b audit.Step) int { return strings.Compare(a.Text, b.Text) })
	if c.raise(); c.later {
		c.rep.Repair = nil // only the release that wrote the record knows what it says
	}
	slices.SortStableFunc(c.rep.Problems, compareProblems)
	return nil
}

// unreadable notes why a record that others follow from cannot be read, and returns that as a text.
func (c *checker) unreadable(err error) string {
	c.later = c.later || errors.Is(err, ipalloc.ErrVersion)
	return err.Error()
}

func (c *checker) add(p audit.Problem) { c.rep.Problems = append(c.rep.Problems, p) }

func (c *checker) step(text string, ops ...store.Op) {
	c.rep.Repair = append(c.rep.Repair, audit.Step{Text: text, Ops: ops})
}

// cursor reads a range of records page by page.
type cursor struct {
	c    *checker
	r    store.Range
	page []store.Record
	end  bool
	err  error
}

func (c *checker) cursor(from, to string) *cursor {
	return &cursor{c: c, r: store.Range{From: from, To: to, Limit: txn.ReadMost}}
}

// each yields the records that are left. One at which the loop is left comes again.
func (x *cursor) each(yield func(*store.Record) bool) {
	for {
		for len(x.page) > 0 {
			if !yield(&x.page[0]) {
				return
			}
			x.page = x.page[1:]
		}
		if x.end || x.err != nil {
			return
		}
		x.page, _, x.err = x.c.in.List(x.c.ctx, x.r)
		if x.end = len(x.page) < x.r.Limit; len(x.page) > 0 {
			x.r.From = x.page[len(x.page)-1].Key + "\x00"
		}
	}
}

// group returns a group, which is made if there is none.
func (c *checker) group(name []byte) *group {
	g := c.groups[string(name)]
	if g == nil {
		g = &group{}
		c.groups[string(name)] = g
	}
	return g
}

// groupOf returns the group of a block.
func (c *checker) groupOf(p netip.Prefix) *group {
	var name [19]byte
	return c.group(record.AppendBlockID(append(name[:0], record.KindBlock...), p))
}

// hash returns the hash of a record: its key is in c.buf.
func (c *checker) hash(value string) uint64 {
	n := len(c.buf)
	c.buf = append(c.buf, value...)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(n))
	return maphash.Bytes(c.seed, c.buf)
}

// hashOf is hash of a key.
func (c *checker) hashOf(key, value string) uint64 {
	c.buf = append(c.buf[:0], key...)
	return c.hash(value)
}

// scanBlocks reads all blocks with their addresses.
func (c *checker) scanBlocks() error {
	blocks, addrs := c.cursor(record.KindBlock, record.EndOf(record.KindBlock)), c.cursor(record.KindAddress, record.EndOf(record.KindAddress))
	for r := range blocks.each {
		p, ok := record.ParseBlockID(r.Key[1:])
		if !ok {
			c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Detail: "a key that names no block"})
			continue
		}
		c.strays(addrs, record.AddressKey(p.Addr()))
		g := c.groupOf(p)
		if n := len(c.blocks); n > 0 && c.blocks[n-1].Overlaps(p) {
			g.suspect, c.groupOf(c.blocks[n-1]).suspect = true, true
		}
		c.blocks = append(c.blocks, p)
		c.mark(p)
		b, err := block.Decode(p, r.Value)
		if err != nil {
			g.suspect = true // its addresses are read in detail
		} else {
			c.head(b)
		}
		c.load(g, p, b, addrs)
	}
	c.strays(addrs, "")
	for o, blocks := range c.owners {
		key := record.OwnerKey(o)
		owned := record.OwnedOf(blocks)
		c.group([]byte(key)).sum += c.hashOf(key, string(owned.Append(nil)))
	}
	for id, p := range c.pages {
		key := id.Key()
		c.group([]byte(key)).sum += c.hashOf(key, record.Page{Word: p.Word}.Encode())
	}
	return cmp.Or(blocks.err, addrs.err)
}

// mark sets the bit of a block in the pages of pools.
func (c *checker) mark(p netip.Prefix) {
	id, i := record.LeafOf(p)
	for ok := true; ok; {
		w := c.pages[id].Word | 1<<i
		if c.pages[id] = (record.Page{Word: w}); w != ^uint64(0) {
			break
		}
		id, i, ok = id.Up()
	}
}

// head notes who owns a block, and counts it.
func (c *checker) head(b *block.Block) {
	if o := b.Owner(); o.Kind != alloc.Nobody {
		if c.owners[o] == nil {
			o.Name = strings.Clone(o.Name) // not the page that it was read in
		}
		c.owners[o] = append(c.owners[o], b.Prefix())
	}
	c.rep.Blocks++
	c.rep.Allocations += int(b.Used())
	c.last = max(c.last, b.Seq()>>pool.GenShift)
}

// load reads the addresses of a block, which is nil if it cannot be read, and adds what follows from both to its group. A block
// with a flaw is suspect.
func (c *checker) load(g *group, p netip.Prefix, b *block.Block, addrs *cursor) {
	last := record.AddressKey(record.LastAddr(p))
	for r := range addrs.each {
		if r.Key > last {
			break
		}
		at, ok := c.addressOf(r)
		if !ok || b == nil {
			continue
		}
		x, err := b.Ordinal(at)
		g.suspect = g.suspect || err != nil || !b.IsAbsent(x) || b.LoadRecord(x, r.Value) != nil
	}
	if g.suspect = g.suspect || b.Absent() > 0 || b.Check() != nil; g.suspect {
		return
	}
	for x := range c.records(b) {
		g.sum += c.hash(string(x.AppendValue(nil, c.at)))
	}
	c.hold(b)
	g.held = true
}

// records yields the index records of a block and of its addresses, each with its key in c.buf.
func (c *checker) records(b *block.Block) iter.Seq[*record.IndexEntry] {
	return func(yield func(*record.IndexEntry) bool) {
		each := func(at netip.Prefix) bool {
			c.at = at
			for i := range c.index {
				if c.buf = c.index[i].AppendKey(c.buf[:0], at); !yield(&c.index[i]) {
					return false
				}
			}
			return true
		}
		x := record.IndexOf(b)
		c.index = x.Entries(c.index[:0])
		more := each(b.Prefix())
		for o, a := range b.Each() {
			if !more {
				return
			}
			c.index = record.AddressEntries(c.index[:0], a)
			more = each(netip.PrefixFrom(b.Addr(o), b.Prefix().Bits()))
		}
	}
}

// addressOf returns the address that a record is about.
func (c *checker) addressOf(r *store.Record) (netip.Addr, bool) {
	at, ok := record.ParseAddressKey(r.Key)
	if !ok {
		c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Detail: "a key that names no address"})
	}
	return at, ok
}

// strays reads the addresses before the next block, or to the end: they are in no block.
func (c *checker) strays(addrs *cursor, before string) {
	for r := range addrs.each {
		if before != "" && r.Key >= before {
			return
		}
		at, ok := c.addressOf(r)
		if !ok {
			continue
		}
		_, length, err := block.DecodeAddress(r.Value)
		if err == nil && length > at.BitLen() {
			err = fmt.Errorf("%w: address in a block of /%d", ipalloc.ErrCorrupt, length)
		}
		if err != nil {
			c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Addr: at, Detail: c.unreadable(err)})
			c.step(fmt.Sprintf("remove the record of %s, in no block", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
			continue
		}
		c.groupOf(netip.PrefixFrom(at, length).Masked()).suspect = true
	}
}

// The kinds of index records that belong to a block.
const BlockKinds = record.KindRoom + record.KindOwnRoom + record.KindEmpty + record.KindDue + record.KindHandle + record.KindHost + record.KindIndex + record.KindShare + record.KindOwner

// rest yields the records of the engine's space but blocks, addresses and those of other programs.
func (c *checker) rest(do func(*store.Record)) error {
	var x *cursor
	for _, r := range [][2]string{{"", "A"}, {"[", record.KindAddress}, {record.EndOf(record.KindBlock), record.KindSpace}, {record.EndOf(record.KindSpace), ""}} {
		x = c.cursor(r[0], r[1])
		for rec := range x.each {
			do(rec)
		}
		if x.err != nil {
			break
		}
	}
	return x.err
}

// scanRest reads all other records.
func (c *checker) scanRest() error {
	err := c.rest(func(r *store.Record) {
		name, value := c.nameOf(r.Key, r.Value), r.Value
		switch kind := r.Key[:min(1, len(r.Key))]; {
		case kind == record.KindCatalog && name != nil:
		case kind == record.KindMemo && name != nil:
			g := c.group(name)
			m, err := record.DecodeMemo(r.Key, r.Value, true)
			g.suspect = g.suspect || err != nil
			g.sum += c.hashOf(record.AgedKey(m.At, r.Key), "")
		case name != nil:
			g := c.group(name)
			if kind == record.KindPage {
				id, _ := record.ParsePageKey(r.Key)
				p := c.readPage(id, r)
				if p.Word == 0 && id.Level == record.FloorLevel {
					return // nothing else says what it is
				}
				value = record.Page{Word: p.Word}.Encode()
			}
			g.sum -= c.hashOf(r.Key, value)
		case kind != "" && strings.Contains(BlockKinds+record.KindAged+record.KindPage, kind):
			c.stale(r.Key, r.Rev)
		default:
			c.add(audit.Problem{Kind: audit.Damaged, Key: r.Key, Detail: "unknown kind of record"})
		}
	})
	return err
}

// readPage notes the mark of a page, and returns its word; that of a page that cannot be read is none that a page may have.
func (c *checker) readPage(id record.PageID, r *store.Record) record.Page {
	p, err := record.DecodePage(*r)
	if err != nil {
		return record.Page{Word: ^c.pages[id].Word | 1}
	}
	c.last = max(c.last, p.Mark>>pool.GenShift)
	return p
}

// nameOf returns the name of the group of a record, nil if its key names nothing.
func (c *checker) nameOf(key, value string) []byte {
	kind := key[:min(1, len(key))]
	ok := false
	switch {
	case kind == "":
	case kind == record.KindOwner && strings.HasSuffix(key, "\x00") && strings.Count(key, "\x00") == 1:
		_, ok = record.ParseOwnerKey(key)
	case kind == record.KindHandle && strings.IndexByte(key, 0) < 0:
		if p, ok := record.ParseID(value); ok {
			return record.AppendBlockID(append(c.buf[:0], record.KindBlock...), p.Masked())
		}
	case strings.Contains(BlockKinds, kind):
		for _, n := range [...]int{6, 18} {
			if len(key) > n {
				if p, ok := record.ParseID(key[len(key)-n:]); ok {
					return record.AppendBlockID(append(c.buf[:0], record.KindBlock...), p.Masked())
				}
			}
		}
	case kind == record.KindPage:
		_, ok = record.ParsePageKey(key)
	case kind == record.KindCatalog:
		ok = key == record.CatalogKey || key == record.PoolsKey
	case kind == record.KindMemo && record.IsMemoKey(key):
		return c.bucket(key)
	case kind == record.KindAged && record.IsAgedKey(key):
		return c.bucket(key[record.AgedTimeEnd:])
	}
	if !ok {
		return nil
	}
	return append(c.buf[:0], key...)
}

// bucket returns the name of the bucket of a memo.
func (c *checker) bucket(key string) []byte {
	h := maphash.String(c.seed, key)
	return append(append(c.buf[:0], record.KindAged...), byte(h), byte(h>>8))
}

// stale reports a derived record that nothing stands behind; guard is what the finding rests on.
func (c *checker) stale(key string, rev uint64, guard ...store.Op) {
	c.add(audit.Problem{Kind: audit.StaleIndex, Key: key})
	c.step(fmt.Sprintf("remove index record %q", key), append([]store.Op{{Kind: store.Delete, Key: key, Expect: rev}}, guard...)...)
}
