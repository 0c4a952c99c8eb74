package ipset

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems that [Check] finds.
const (
	Damaged       ProblemKind = "damaged"        // a record that cannot be read
	Overlapping   ProblemKind = "overlapping"    // two blocks share addresses
	WrongSize     ProblemKind = "wrong size"     // a block of a size that its pool neither has nor drains
	NoPool        ProblemKind = "no pool"        // a block outside every pool
	StrayAddress  ProblemKind = "stray address"  // an address record that no block stands behind
	LostAddress   ProblemKind = "lost address"   // an address that a block holds, without a record
	LostBlock     ProblemKind = "lost block"     // addresses without a block
	StaleIndex    ProblemKind = "stale index"    // an index record that no block or address stands behind
	MissingIndex  ProblemKind = "missing index"  // an index record that a block or an address should have
	WrongOwner    ProblemKind = "wrong owner"    // a list of blocks that is not what the blocks say
	WrongPage     ProblemKind = "wrong page"     // a space page that is not what the blocks say
	OldGeneration ProblemKind = "old generation" // sequence numbers above those that new blocks would start with
	Unused        ProblemKind = "unused"         // an address that is held and not in use
	NotHeld       ProblemKind = "not held"       // an address of a pool that is in use and not held
	OtherHandle   ProblemKind = "other handle"   // an address in use under another handle than its holder's
	UsedTwice     ProblemKind = "used twice"     // an address that is in use twice
	OutsideOfPool ProblemKind = "outside a pool" // an address in use in no pool
)

// Problem is one thing that [Check] found.
type Problem struct {
	Kind   ProblemKind
	Key    string       // the record, if it is about one
	Block  netip.Prefix // the block, if it is about one
	Addr   netip.Addr   // the address, if it is about one
	Detail string
}

// String returns one line.
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(string(p.Kind))
	if p.Block.IsValid() {
		fmt.Fprintf(&s, " %s", p.Block)
	}
	if p.Addr.IsValid() {
		fmt.Fprintf(&s, " %s", p.Addr)
	}
	if p.Key != "" {
		fmt.Fprintf(&s, " %q", p.Key)
	}
	if p.Detail != "" {
		fmt.Fprintf(&s, ": %s", p.Detail)
	}
	return s.String()
}

// Step is one commit of a repair: it restores derived records, or releases addresses.
type Step struct {
	Text     string
	Ops      []store.Op // each on the revision that was checked
	Releases []Release  // each guarded by sequence number
}

// Report is what [Check] found and what would repair it.
type Report struct {
	Problems    []Problem
	Repair      []Step
	Blocks      int
	Allocations int
}

// InUse is one address that is in use, as far as the caller knows.
type InUse struct {
	Address netip.Addr
	// Handle, if not empty, should be the one that holds the address.
	Handle string
}

// Check examines a snapshot of all records, in key order as [Store.List] returns them: that every record can be read,
// that blocks neither overlap nor lie where no pool made them, that every address record is what its block says, and that every
// index record, list of blocks and space page is what the blocks and addresses say. If uses is not nil it is compared with what
// is held; cooling addresses and those without
// use do not count against each other.
//
// It is pure. The report's Repair can be read before it is given to [Engine.Repair].
func Check(recs []store.Record, uses iter.Seq[InUse]) *Report {
	c := &checker{rep: &Report{}, revs: make(map[string]uint64, len(recs)), want: make(map[string]string), owners: make(map[Owner][]netip.Prefix), pages: make(map[pageID]page), stray: make(map[netip.Prefix][]stray)}
	c.cat = &catalog{}
	for _, r := range recs {
		c.revs[r.Key] = r.Rev
		if r.Key == catalogKey {
			cat, err := decodeCatalog(r.Value)
			if err != nil {
				c.add(Problem{Kind: Damaged, Key: r.Key, Detail: err.Error()})
				continue
			}
			c.cat = cat
		}
	}
	for _, r := range recs {
		if strings.HasPrefix(r.Key, kindBlock) {
			c.block(r)
		}
	}
	c.rep.Blocks = len(c.blocks)
	for _, r := range recs {
		if strings.HasPrefix(r.Key, kindAddress) {
			c.address(r)
		}
	}
	c.derive()
	c.generations(recs)
	c.lostBlocks()
	for _, r := range recs {
		c.aged(r)
	}
	for _, r := range recs {
		c.derived(r)
	}
	c.missing()
	if uses != nil {
		c.compare(uses)
	}
	return c.rep
}

type checker struct {
	rep    *Report
	cat    *catalog
	revs   map[string]uint64
	blocks []*block.Block
	want   map[string]string // index records as they should be
	from   map[string]string // the block's key behind each
	owners map[Owner][]netip.Prefix
	pages  map[pageID]page
	// damaged are blocks, and unreadable addresses, whose records cannot be read.
	damaged    []netip.Prefix
	unreadable []netip.Addr
	stray      map[netip.Prefix][]stray // address records without a block, by what would be their block
	mark       uint64                   // for pages whose own is lost: above all sequence numbers there are
}

func (c *checker) add(p Problem) { c.rep.Problems = append(c.rep.Problems, p) }

func (c *checker) step(text string, ops ...store.Op) {
	c.rep.Repair = append(c.rep.Repair, Step{Text: text, Ops: ops})
}

// block reads one block and verifies where it lies.
func (c *checker) block(r store.Record) {
	p, ok := parseBlockID(r.Key[1:])
	b, err := block.Decode(p, r.Value)
	if !ok || err != nil {
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: fmt.Sprint(err)})
		if ok {
			c.damaged = append(c.damaged, p)
		}
		return
	}
	if n := len(c.blocks); n > 0 && c.blocks[n-1].Prefix().Overlaps(b.Prefix()) {
		c.add(Problem{Kind: Overlapping, Block: b.Prefix(), Detail: "with " + c.blocks[n-1].Prefix().String()})
	}
	switch i := c.cat.containing(b.Prefix().Addr()); {
	case i < 0:
		c.add(Problem{Kind: NoPool, Block: b.Prefix(), Detail: "owner " + b.Owner().String()})
	case b.Prefix().Bits() != c.cat.Pools[i].BlockBits && !slices.Contains(c.cat.Pools[i].Draining, b.Prefix().Bits()):
		c.add(Problem{Kind: WrongSize, Block: b.Prefix(), Detail: fmt.Sprintf("pool %s has /%d", c.cat.Pools[i].Name, c.cat.Pools[i].BlockBits)})
	}
	c.blocks = append(c.blocks, b)
	c.rep.Allocations += int(b.Used())
}

// containing returns the block that an address is in, nil if there is none.
func (c *checker) containing(a netip.Addr) *block.Block {
	i, found := slices.BinarySearchFunc(c.blocks, a, func(b *block.Block, a netip.Addr) int { return b.Prefix().Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !c.blocks[i].Prefix().Contains(a) {
		return nil
	}
	return c.blocks[i]
}

// address reads one address record and gives it to its block.
func (c *checker) address(r store.Record) {
	at, ok := parseAddressKey(r.Key)
	if !ok {
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "a key that names no address"})
		return
	}
	a, length, err := block.DecodeAddress(r.Value)
	b := c.containing(at)
	if b == nil {
		// The block may be the one that cannot be read.
		if err == nil && length <= at.BitLen() && !slices.ContainsFunc(c.damaged, func(p netip.Prefix) bool { return p.Contains(at) }) {
			p := netip.PrefixFrom(at, length).Masked()
			c.stray[p] = append(c.stray[p], stray{r.Key, a, at})
		} else if err != nil {
			c.add(Problem{Kind: Damaged, Key: r.Key, Addr: at, Detail: fmt.Sprint(err)})
			c.step(fmt.Sprintf("remove the record of %s, in no block", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
		}
		return
	}
	x, _ := b.Ordinal(at)
	guard := store.Op{Kind: store.Guard, Key: blockKey(kindBlock, b.Prefix()), Expect: c.revs[blockKey(kindBlock, b.Prefix())]}
	switch st, _ := b.Look(x); {
	case st != block.Held && st != block.Cooling:
		c.add(Problem{Kind: StrayAddress, Key: r.Key, Addr: at, Block: b.Prefix(), Detail: "the block says that it is free"})
		c.step(fmt.Sprintf("remove the record of %s", at), store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev}, guard)
	case err == nil && b.LoadRecord(x, r.Value) == nil:
		return
	case err == nil && (a.Seq > b.Seq() || length != b.Prefix().Bits() || a.Cooling != (st == block.Cooling)):
		err = fmt.Errorf("cooling %v, /%d, sequence number %d of a block with %d", a.Cooling, length, a.Seq, b.Seq())
		fallthrough
	default:
		c.add(Problem{Kind: Damaged, Key: r.Key, Addr: at, Block: b.Prefix(), Detail: fmt.Sprint(err)})
		c.unreadable = append(c.unreadable, at)
	}
}

// derive computes every record that the blocks and their addresses say.
func (c *checker) derive() {
	c.from = make(map[string]string)
	for _, b := range c.blocks {
		behind := blockKey(kindBlock, b.Prefix())
		c.lost(b)
		put := func(key, value string) { c.want[key], c.from[key] = value, behind }
		for key, value := range indexOf(b).derived(b.Prefix()) {
			put(key, value)
		}
		for x, a := range b.Each() {
			for key, value := range derivedOf(a, b.Addr(x), b.Prefix().Bits()) {
				put(key, value)
			}
		}
		if err := b.Check(); err != nil {
			c.add(Problem{Kind: Damaged, Key: behind, Block: b.Prefix(), Detail: err.Error()})
		}
		if b.Owner().Kind != Nobody {
			c.owners[b.Owner()] = append(c.owners[b.Owner()], b.Prefix())
		}
		id, i := leafOf(b.Prefix())
		for ok := true; ok; {
			p := c.pages[id]
			p.word |= 1 << i
			c.pages[id] = p
			if p.word != ^uint64(0) {
				break
			}
			id, i, ok = id.parent()
		}
	}
}

// aged reads a request or a sticky record, which an entry lists by its age.
func (c *checker) aged(r store.Record) {
	if !hasAge(r.Key) {
		return
	}
	at, err := ageOf(r)
	if err != nil {
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: err.Error()})
		return
	}
	entry := agedKey(at, r.Key)
	c.want[entry], c.from[entry] = "", r.Key
}

// derived compares a record with what the blocks say.
func (c *checker) derived(r store.Record) {
	if r.Key == "" {
		c.add(Problem{Kind: Damaged, Detail: "a record without key"})
		return
	}
	switch r.Key[:1] {
	case kindRoom, kindOwnRoom, kindEmpty, kindOrphan, kindDue, kindHandle, kindHost, kindFormer, kindAged:
		want, ok := c.want[r.Key]
		switch {
		case !ok:
			c.add(Problem{Kind: StaleIndex, Key: r.Key})
			c.step(fmt.Sprintf("remove index record %q", r.Key), c.guarded(r.Key, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})...)
		case want != r.Value:
			c.add(Problem{Kind: StaleIndex, Key: r.Key, Detail: "value"})
			c.step(fmt.Sprintf("rewrite index record %q", r.Key), c.guarded(r.Key, store.Op{Kind: store.Put, Key: r.Key, Value: want, Expect: r.Rev})...)
		}
	case kindOwner:
		o, ok := parseOwnerKey(r.Key)
		blocks, err := decodeList(r.Value)
		if !ok || err != nil || blocks != listOf(c.owners[o]) {
			c.add(Problem{Kind: WrongOwner, Key: r.Key, Detail: fmt.Sprintf("lists %v, owns %v", blocks.slice(), c.owners[o])})
			c.setOwner(o, r.Key, r.Rev)
		}
	case kindPage:
		id, ok := parsePageKey(r.Key)
		p, err := decodePage(r.Value)
		if want := c.pages[id]; !ok || err != nil || p.word != want.word {
			c.add(Problem{Kind: WrongPage, Key: r.Key, Detail: fmt.Sprintf("says %016x, blocks say %016x", p.word, want.word)})
			c.step(fmt.Sprintf("rewrite space page %q", r.Key), store.Op{Kind: store.Put, Key: r.Key, Value: page{want.word, c.markOf(id, p, err)}.encode(), Expect: r.Rev})
		}
	case kindRequest, kindSticky:
		if !hasAge(r.Key) {
			c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "a key that names nobody"})
		}
	case kindCatalog, kindBlock, kindAddress, kindSpace:
	default:
		if isForeign(r.Key) {
			return
		}
		c.add(Problem{Kind: Damaged, Key: r.Key, Detail: "unknown kind of record"})
	}
}

// guarded adds to the repair of an index record the guard on the block that it is about, so that it cannot undo what
// happened since the check.
func (c *checker) guarded(key string, op store.Op) []store.Op {
	behind := c.from[key]
	switch {
	case behind != "":
	case isAgedKey(key):
		behind = key[agedTimeEnd:]
	case key[:1] != kindAged:
		if id := blockIDOf(key); id != "" {
			behind = kindBlock + id
		}
	}
	if behind == "" {
		return []store.Op{op}
	}
	return []store.Op{op, {Kind: store.Guard, Key: behind, Expect: c.revs[behind]}}
}

// blockIDOf returns what names the block in the key of its record, by an index key.
func blockIDOf(key string) string {
	for _, n := range [...]int{6, 18} {
		if len(key) > n {
			if p, ok := parseID(key[len(key)-n:]); ok {
				return string(appendBlockID(nil, p.Masked()))
			}
		}
	}
	return ""
}

func (c *checker) setOwner(o Owner, key string, rev uint64) {
	op := store.Op{Kind: store.Put, Key: key, Value: listOf(c.owners[o]).encode(), Expect: rev}
	if len(c.owners[o]) == 0 {
		op = store.Op{Kind: store.Delete, Key: key, Expect: rev}
	}
	ops := []store.Op{op}
	for _, p := range c.owners[o] {
		k := blockKey(kindBlock, p)
		ops = append(ops, store.Op{Kind: store.Guard, Key: k, Expect: c.revs[k]})
	}
	c.step(fmt.Sprintf("rewrite the blocks of %s", o), ops...)
}

// missing reports the derived records that are not there.
func (c *checker) missing() {
	for key, value := range c.want {
		if c.revs[key] == 0 {
			c.add(Problem{Kind: MissingIndex, Key: key})
			c.step(fmt.Sprintf("write index record %q", key), c.guarded(key, store.Op{Kind: store.Put, Key: key, Value: value, Expect: 0})...)
		}
	}
	for o := range c.owners {
		if key := ownerKey(o); c.revs[key] == 0 {
			c.add(Problem{Kind: WrongOwner, Key: key, Detail: "missing"})
			c.setOwner(o, key, 0)
		}
	}
	for id, p := range c.pages {
		if key := id.key(); c.revs[key] == 0 {
			c.add(Problem{Kind: WrongPage, Key: key, Detail: "missing"})
			p.mark = c.markOf(id, p, ipalloc.ErrCorrupt)
			c.step(fmt.Sprintf("write space page %q", key), store.Op{Kind: store.Put, Key: key, Value: p.encode(), Expect: 0})
		}
	}
	byText := func(a, b Problem) int { return strings.Compare(a.String(), b.String()) }
	slices.SortStableFunc(c.rep.Problems, byText)
	slices.SortStableFunc(c.rep.Repair, func(a, b Step) int { return strings.Compare(a.Text, b.Text) })
	c.raise()
}

// generations finds the generation that new blocks must have, so that no sequence number is given twice for an address: that of
// every block and every page, and a later one if the mark of a page is lost.
func (c *checker) generations(recs []store.Record) {
	lost, last := len(c.stray) > 0, uint64(0)
	for _, b := range c.blocks {
		last = max(last, b.Seq()>>genShift)
	}
	for _, r := range recs {
		if strings.HasPrefix(r.Key, kindPage) {
			id, ok := parsePageKey(r.Key)
			p, err := decodePage(r.Value)
			lost = lost || err != nil && ok && id.Level == 0
			last = max(last, p.mark>>genShift)
		}
	}
	for id := range c.pages {
		lost = lost || id.Level == 0 && c.revs[id.key()] == 0
	}
	if lost {
		last = max(last, c.cat.Generation) + 1
	}
	c.mark = last << genShift
}

// markOf returns the mark of a repaired page: its own, or one above all if that is lost.
func (c *checker) markOf(id pageID, p page, err error) uint64 {
	if err == nil || id.Level > 0 {
		return p.mark
	}
	return c.mark
}

// raise reports a catalog whose generation is behind the sequence numbers in use. Its repair comes first.
func (c *checker) raise() {
	need := c.mark >> genShift
	if need <= c.cat.Generation {
		return
	}
	rev := c.revs[catalogKey]
	c.add(Problem{Kind: OldGeneration, Key: catalogKey, Detail: fmt.Sprintf("%d, must be %d", c.cat.Generation, need)})
	if rev != 0 && c.cat.Version == 0 {
		return // it cannot be read, and what it says is more than this
	}
	next := c.cat.clone()
	next.Generation = need
	value, err := next.encode()
	if err != nil {
		return
	}
	step := Step{Text: fmt.Sprintf("raise the generation to %d", need), Ops: []store.Op{{Kind: store.Put, Key: catalogKey, Value: value, Expect: rev}}}
	c.rep.Repair = slices.Insert(c.rep.Repair, 0, step)
}

// Check reads everything of the engine's space and examines it; see the function [Check]. uses may be nil. To check a whole
// store, check the space without a name and each of [Engine.Spaces].
func (e *Engine) Check(ctx context.Context, uses iter.Seq[InUse]) (*Report, error) {
	var all []store.Record
	for _, r := range ownRecords() {
		recs, _, err := e.store.List(ctx, r) // all that belongs together is in the first
		if err != nil {
			return nil, err
		}
		all = append(all, recs...)
	}
	return Check(all, uses), nil
}

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and
// returns the number of steps done. It skips a step that meets a conflict, because its records have changed; the next check
// looks at them again.
func (e *Engine) Repair(ctx context.Context, steps []Step) (done int, err error) {
	for _, s := range steps {
		if len(s.Ops) > 0 {
			_, err := e.store.Commit(ctx, s.Ops)
			if err != nil && !isConflict(err) {
				return done, wrap(ipalloc.Error{Op: "repair", Err: err})
			}
			if err == nil {
				done++
			}
			continue
		}
		if _, err := e.ReleaseIPs(ctx, s.Releases...); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}
