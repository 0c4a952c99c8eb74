package ipset

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A check reads everything once, in pages. Blocks and their addresses lie in the same order and are read side by side. What
// their index records should be is compared with those that are there without keeping either: each index record belongs to a
// group, the block that its key names, and a group keeps the sum of the hashes of the records that it should have less those
// that it has. The hash is chosen at random for each check, so if the two sets differ the sum is zero with a probability of 2^-64
// only, whatever the records are. A group whose sum is not zero, or whose block or addresses have a flaw, is suspect: a second
// pass collects the keys of the index records of all suspects, and each of them is read again in detail.
//
// Memos and their entries by age are compared in the same way. Their group is one of a
// fixed number of buckets.

// reader is what a check reads: the store of an engine, or a snapshot.
type reader interface {
	Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error)
	List(ctx context.Context, r store.Range) ([]store.Record, uint64, error)
}

// snapshot is a reader of records in key order. It reads forward only.
type snapshot []store.Record

func (s snapshot) seek(key string) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Key >= key })
}

func (s snapshot) Get(_ context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	for _, k := range keys {
		if i := s.seek(k); i < len(s) && s[i].Key == k {
			dst = append(dst, s[i])
		} else {
			dst = append(dst, store.Record{Key: k})
		}
	}
	return dst, nil
}

func (s snapshot) List(_ context.Context, r store.Range) ([]store.Record, uint64, error) {
	from, to := s.seek(r.From), len(s)
	if r.To != "" {
		to = max(s.seek(r.To), from)
	}
	if r.Limit > 0 {
		to = min(to, from+r.Limit)
	}
	return s[from:to], 0, nil
}

// group is the index records of one block, or of one bucket of requests.
type group struct {
	sum     uint64 // of the hashes of those that there should be, less those that are there
	suspect bool
}

// head is what a check keeps of a block.
type head struct {
	prefix netip.Prefix
	owner  Owner
	rev    uint64
}

type checker struct {
	ctx   context.Context
	in    reader
	seed  maphash.Seed
	buf   []byte
	index []indexEntry
	rep   *Report
	cat   *catalog

	rev   uint64 // that lists have shown; live if they have shown several
	live  bool
	heads []head // the blocks that can be read, in address order
	// groups are named by the last part of a block's key, those of buckets by kindAged and two bytes.
	groups map[string]*group
	listed map[string][]string // keys of index records, by suspect group
	small  []store.Record      // lists of blocks, and space pages
	owners map[Owner][]netip.Prefix
	pages  map[pageID]page
	revs   map[string]uint64 // of the records that were read in detail, and of small ones
	used   map[netip.Addr][]InUse

	last uint64                   // the highest generation of a sequence number
	mark uint64                   // for pages whose own is lost: above all sequence numbers there are
	gone map[netip.Prefix][]stray // address records without a block, by what would be their block
}

func newChecker(ctx context.Context, in reader) *checker {
	return &checker{
		ctx: ctx, in: in, seed: maphash.MakeSeed(), rep: &Report{}, cat: &catalog{},
		groups: make(map[string]*group), listed: make(map[string][]string), owners: make(map[Owner][]netip.Prefix),
		pages: make(map[pageID]page), revs: make(map[string]uint64), gone: make(map[netip.Prefix][]stray),
	}
}

// compareProblems orders problems by kind, then blocks and addresses as numbers, then by text.
func compareProblems(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Block.Addr().Compare(b.Block.Addr()), cmp.Compare(a.Block.Bits(), b.Block.Bits()),
		a.Addr.Compare(b.Addr), strings.Compare(a.String(), b.String()))
}

// run examines everything.
func (c *checker) run(uses iter.Seq[InUse]) error {
	if uses != nil {
		c.gather(uses)
	}
	for _, step := range []func() error{c.scanBlocks, c.scanRest, c.readCatalog, c.places, c.suspects, c.smallRecords} {
		if err := step(); err != nil {
			return err
		}
	}
	c.lostBlocks()
	slices.SortStableFunc(c.rep.Problems, compareProblems)
	slices.SortStableFunc(c.rep.Repair, func(a, b Step) int { return strings.Compare(a.Text, b.Text) })
	c.raise()
	if uses != nil {
		c.leftOver()
	}
	return nil
}

func (c *checker) add(p Problem) { c.rep.Problems = append(c.rep.Problems, p) }

func (c *checker) step(text string, ops ...store.Op) {
	c.rep.Repair = append(c.rep.Repair, Step{Text: text, Ops: ops})
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
	return &cursor{c: c, r: store.Range{From: from, To: to, Limit: readMost}}
}

// peek returns the next record, nil at the end and after an error.
func (x *cursor) peek() *store.Record {
	for len(x.page) == 0 {
		if x.end || x.err != nil {
			return nil
		}
		var rev uint64
		if x.page, rev, x.err = x.c.in.List(x.c.ctx, x.r); x.err != nil {
			return nil
		}
		if x.c.rev == 0 {
			x.c.rev = rev
		}
		x.c.live = x.c.live || rev != x.c.rev
		if x.end = len(x.page) < x.r.Limit; len(x.page) > 0 {
			x.r.From = x.page[len(x.page)-1].Key + "\x00"
		}
	}
	return &x.page[0]
}

func (x *cursor) next() { x.page = x.page[1:] }

// each yields the records that are left.
func (x *cursor) each(yield func(*store.Record) bool) {
	for r := x.peek(); r != nil; r = x.peek() {
		if !yield(r) {
			return
		}
		x.next()
	}
}

// hash returns the hash of a record: its key is in c.buf.
func (c *checker) hash(value string) uint64 {
	n := len(c.buf)
	c.buf = append(c.buf, value...)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(n))
	return maphash.Bytes(c.seed, c.buf)
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
	var name [18]byte
	return c.group(appendBlockID(name[:0], p))
}

// scanBlocks reads all blocks with their addresses.
func (c *checker) scanBlocks() error {
	blocks, addrs := c.cursor(kindBlock, endOf(kindBlock)), c.cursor(kindAddress, endOf(kindAddress))
	for r := range blocks.each {
		p, ok := parseBlockID(r.Key[1:])
		if !ok {
			c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "a key that names no block"})
			continue
		}
		c.strays(addrs, addressKey(p.Addr()))
		g := c.groupOf(p)
		b, err := block.Decode(p, r.Value)
		if err != nil {
			g.suspect = true // its addresses are read in detail
			c.skip(addrs, addressKey(lastAddr(p)))
			continue
		}
		if n := len(c.heads); n > 0 && c.heads[n-1].prefix.Overlaps(p) {
			g.suspect, c.groupOf(c.heads[n-1].prefix).suspect = true, true
		}
		c.head(b, r.Rev)
		c.load(g, b, addrs)
	}
	if blocks.err != nil {
		return blocks.err
	}
	c.strays(addrs, "")
	return addrs.err
}

// head notes a block: who owns it, and its bit in the space pages.
func (c *checker) head(b *block.Block, rev uint64) {
	p, o := b.Prefix(), b.Owner()
	if o.Kind != Nobody {
		if known := c.owners[o]; known == nil {
			o.Name = strings.Clone(o.Name) // not the page that it was read in
		} else {
			o = c.heads[len(c.heads)-1].sameOwner(o)
		}
		c.owners[o] = append(c.owners[o], p)
	}
	c.heads = append(c.heads, head{p, o, rev})
	c.rep.Blocks++
	c.rep.Allocations += int(b.Used())
	c.last = max(c.last, b.Seq()>>genShift)
	id, i := leafOf(p)
	for ok := true; ok; {
		page := c.pages[id]
		page.word |= 1 << i
		c.pages[id] = page
		if page.word != ^uint64(0) {
			break
		}
		id, i, ok = id.parent()
	}
}

// sameOwner returns o with the string of h if that is the same owner, so that few strings are kept.
func (h head) sameOwner(o Owner) Owner {
	if h.owner == o {
		return h.owner
	}
	o.Name = strings.Clone(o.Name)
	return o
}

// load reads the addresses of a block and adds what follows from both to its group. A block with a flaw is suspect.
func (c *checker) load(g *group, b *block.Block, addrs *cursor) {
	last := addressKey(lastAddr(b.Prefix()))
	for r := range addrs.each {
		if r.Key > last {
			break
		}
		at, ok := c.addressOf(r)
		if !ok {
			continue
		}
		x, err := b.Ordinal(at)
		if err != nil || !b.IsAbsent(x) || b.LoadRecord(x, r.Value) != nil {
			g.suspect = true
		}
	}
	if b.Absent() > 0 || b.Check() != nil {
		g.suspect = true
	}
	if g.suspect {
		return
	}
	for x := range c.records(b) {
		g.sum += c.hash(indexValue(x.value))
	}
	c.uses(b)
}

// records yields the index records of a block and of its addresses, each with its key in c.buf.
func (c *checker) records(b *block.Block) iter.Seq[*indexEntry] {
	return func(yield func(*indexEntry) bool) {
		x := indexOf(b)
		c.index = x.entries(c.index[:0])
		for i := range c.index {
			c.buf = c.index[i].appendKey(c.buf[:0], b.Prefix())
			if !yield(&c.index[i]) {
				return
			}
		}
		for o, a := range b.Each() {
			c.index = addressEntries(c.index[:0], a)
			for i := range c.index {
				c.buf = c.index[i].appendKey(c.buf[:0], netip.PrefixFrom(b.Addr(o), b.Prefix().Bits()))
				if !yield(&c.index[i]) {
					return
				}
			}
		}
	}
}

// skip passes over the addresses up to a key.
func (c *checker) skip(addrs *cursor, last string) {
	for r := range addrs.each {
		if r.Key > last {
			return
		}
		c.addressOf(r)
	}
}

// addressOf returns the address that a record is about.
func (c *checker) addressOf(r *store.Record) (netip.Addr, bool) {
	at, ok := parseAddressKey(r.Key)
	if !ok {
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "a key that names no address"})
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
		if err != nil || length > at.BitLen() {
			c.add(Problem{Kind: Damaged, Key: r.Key, Addr: at, Detail: fmt.Sprint(err)})
			c.step(fmt.Sprintf("remove the record of %s, in no block", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
			continue
		}
		c.groupOf(netip.PrefixFrom(at, length).Masked()).suspect = true
	}
}

// The kinds of index records that belong to a block, and of those that belong to a bucket.
const (
	blockKinds = kindRoom + kindOwnRoom + kindEmpty + kindOrphan + kindDue + kindHandle + kindHost + kindIndex + kindFormer
	agedKinds  = kindMemo + kindAged
)

// rest yields the records of the engine's space but blocks, addresses and those of other programs.
func (c *checker) rest(do func(*store.Record)) error {
	var ranges [][2]string
	for _, own := range ownRecords() {
		if own.From > kindBlock {
			ranges = append(ranges, [2]string{own.From, own.To})
			continue
		}
		ranges = append(ranges, [2]string{own.From, "A"}, [2]string{"[", kindAddress}, [2]string{endOf(kindBlock), own.To})
	}
	for _, r := range ranges {
		x := c.cursor(r[0], r[1])
		for rec := range x.each {
			do(rec)
		}
		if x.err != nil {
			return x.err
		}
	}
	return nil
}

// endOf returns the end of the range of a kind.
func endOf(kind string) string { return string(kind[0] + 1) }

// scanRest reads all other records.
func (c *checker) scanRest() error {
	return c.rest(func(r *store.Record) {
		if r.Key == "" {
			c.add(Problem{Kind: Damaged, Detail: "a record without key"})
			return
		}
		switch kind := r.Key[:1]; {
		case strings.Contains(blockKinds, kind):
			name := c.nameOf(r.Key)
			if name == nil {
				c.stale(r.Key, r.Rev, "")
				return
			}
			g := c.group(name)
			c.buf = append(c.buf[:0], r.Key...)
			g.sum -= c.hash(r.Value)
		case strings.Contains(agedKinds, kind):
			c.aged(r)
		case kind == kindOwner, kind == kindPage:
			c.small = append(c.small, store.Record{Key: strings.Clone(r.Key), Value: strings.Clone(r.Value), Rev: r.Rev})
		case r.Key == catalogKey, r.Key == poolsKey:
		case kind == kindCatalog, !isForeign(r.Key):
			c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "unknown kind of record"})
		}
	})
}

// nameOf returns the name of the group of an index record, nil if its key names no block.
func (c *checker) nameOf(key string) []byte {
	for _, n := range [...]int{6, 18} {
		if len(key) > n {
			if p, ok := parseID(key[len(key)-n:]); ok {
				c.buf = appendBlockID(c.buf[:0], p.Masked())
				return c.buf
			}
		}
	}
	return nil
}

// bucket returns the name of the bucket of a memo.
func (c *checker) bucket(key string) []byte {
	h := maphash.String(c.seed, key)
	c.buf = append(append(c.buf[:0], kindAged...), byte(h), byte(h>>8))
	return c.buf
}

// aged reads a memo, or the entry that lists one by its age.
func (c *checker) aged(r *store.Record) {
	if r.Key[:1] == kindAged {
		if !isAgedKey(r.Key) {
			c.stale(r.Key, r.Rev, "")
			return
		}
		g := c.group(c.bucket(r.Key[agedTimeEnd:]))
		c.buf = append(c.buf[:0], r.Key...)
		g.sum -= c.hash(r.Value)
		return
	}
	if !isMemoKey(r.Key) {
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "a key that names neither a request nor a handle"})
		return
	}
	g := c.group(c.bucket(r.Key))
	m, err := decodeMemo(r.Key, r.Value, true)
	if err != nil {
		g.suspect = true
		return
	}
	c.buf = append(c.buf[:0], agedKey(m.at, r.Key)...)
	g.sum += c.hash("")
}

// stale reports an index record that nothing stands behind. behind is the key of the record that it is about.
func (c *checker) stale(key string, rev uint64, behind string) {
	c.add(Problem{Kind: StaleIndex, Key: key})
	ops := []store.Op{{Kind: store.Delete, Key: key, Expect: rev}}
	if behind != "" {
		ops = append(ops, store.Op{Kind: store.Guard, Key: behind, Expect: c.revs[behind]})
	}
	c.step(fmt.Sprintf("remove index record %q", key), ops...)
}
