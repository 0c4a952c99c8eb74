package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/invariant"
)

// txn is one commit in the making: what it relies upon and what it changes. Plans read through it and change the
// cached blocks, owners and pages in place; when the commit does not succeed, all that it touched is forgotten.
type txn struct {
	e      *Engine
	ctx    context.Context
	id     uint64 // never repeats in an engine
	now    int64
	guards []*entry
	blocks []*blockEntry
	owners []*ownerEntry
	pages  []*pageEntry
	newCat *catalogEntry     // the catalog if it changes
	other  []Op              // blind writes, requests, the catalog
	seen   map[string]string // answers to request keys that this transaction writes, by key
	prior  map[string]string // answers that were found to exist, by key; kept over the attempts
	writes int               // an upper bound of the records written
	ops    []Op
	buf    []byte
}

// errFirst is returned by a plan that can only be made when nothing is pending in the transaction.
var errFirst = errors.New("ipset: plan must be the first of its transaction")

// begin empties the transaction.
func (t *txn) begin(ctx context.Context) {
	t.id++
	t.ctx, t.now = ctx, stamp(t.e.now())
	t.guards, t.blocks, t.owners, t.pages = t.guards[:0], t.blocks[:0], t.owners[:0], t.pages[:0]
	clear(t.other)
	t.newCat = nil
	t.other, t.writes = t.other[:0], 0
	clear(t.seen)
}

// pending reports whether the transaction changes anything so far.
func (t *txn) pending() bool { return t.writes > 0 }

// load reads records that the cache lacks, in one round trip.
func (t *txn) load(keys ...string) error {
	recs, err := t.e.store.Get(t.ctx, nil, keys...)
	if err != nil {
		return err
	}
	for _, r := range recs {
		if err := t.e.cache.put(r); err != nil {
			return err
		}
	}
	return nil
}

// catalog returns the catalog, which every commit then guards.
func (t *txn) catalog() (*catalogEntry, error) {
	if t.e.cache.catalog == nil {
		if err := t.load(catalogKey); err != nil {
			return nil, err
		}
	}
	t.guard(&t.e.cache.catalog.entry)
	return t.e.cache.catalog, nil
}

// block returns what is known of a block, advanced to the present.
func (t *txn) block(cat *catalogEntry, p netip.Prefix) (*blockEntry, error) {
	be := t.e.cache.blocks[p]
	if be == nil {
		if err := t.load(blockKey(kindBlock, p)); err != nil {
			return nil, err
		}
		be = t.e.cache.blocks[p]
	}
	if be.Block != nil && (be.lease != 0 || len(be.cool) > 0) {
		be.advance(t.now, cat.cooldown(p))
	}
	return be, nil
}

// assumeAbsent saves the reading of a block whose page says that it does not exist: if it does, the commit that makes it is in
// conflict, and it is read then.
func (t *txn) assumeAbsent(p netip.Prefix) {
	if t.e.cache.blocks[p] == nil {
		t.e.cache.blocks[p] = &blockEntry{entry: entry{key: blockKey(kindBlock, p)}, at: p}
	}
}

// warm reads those of the blocks that the cache lacks, in one round trip.
func (t *txn) warm(blocks []netip.Prefix) error {
	var keys []string
	for _, p := range blocks {
		if t.e.cache.blocks[p] == nil {
			keys = append(keys, blockKey(kindBlock, p))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return t.load(keys...)
}

// refresh forgets those of the blocks that the transaction does not change, so that they are read again.
func (t *txn) refresh(blocks []netip.Prefix) {
	for _, p := range blocks {
		if be := t.e.cache.blocks[p]; be != nil && be.dirty != t.id && be.guarded != t.id {
			delete(t.e.cache.blocks, p)
		}
	}
}

// occupied reports whether something is where a block would be made: the block itself, although its page does not know
// it, or a block of another size that the pool had. Because such a size can no longer be claimed and the commit guards the
// catalog, looking once is enough; that what was seen is still there is for the commit to verify.
func (t *txn) occupied(cat *catalogEntry, i int, block netip.Prefix) (bool, error) {
	if be := t.e.cache.blocks[block]; be != nil && be.Block != nil {
		t.guard(&be.entry)
		return true, nil
	}
	for _, size := range cat.Pools[i].Draining {
		if size > block.Bits() {
			r := blockRange(kindBlock, block)
			r.Limit = 1
			if recs, err := t.list(r); err != nil || len(recs) > 0 {
				return true, err
			}
			continue
		}
		be, err := t.block(cat, netip.PrefixFrom(block.Addr(), size).Masked())
		if err != nil {
			return true, err
		}
		if be.Block != nil {
			t.guard(&be.entry)
			return true, nil
		}
	}
	return false, nil
}

// owner returns the blocks of an owner.
func (t *txn) owner(o Owner) (*ownerEntry, error) {
	if t.e.cache.owners[o] == nil {
		if err := t.load(ownerKey(o)); err != nil {
			return nil, err
		}
	}
	return t.e.cache.owners[o], nil
}

// pageKeys appends the keys of those pages that the cache lacks between a block and the whole of its pool.
func (t *txn) pageKeys(keys []string, pool, block netip.Prefix) []string {
	id, _ := leafOf(block)
	for ok := true; ok; {
		if t.e.cache.pages[id] == nil {
			keys = append(keys, id.key())
		}
		if block.Bits()-pageBits*(int(id.level)+1) <= pool.Bits() {
			break // a page of level n spans 2^(pageBits*(n+1)) blocks: this one spans the pool
		}
		id, _, ok = id.parent()
	}
	return keys
}

// page returns a page.
func (t *txn) page(id pageID) (*pageEntry, error) {
	if t.e.cache.pages[id] == nil {
		if err := t.load(id.key()); err != nil {
			return nil, err
		}
	}
	return t.e.cache.pages[id], nil
}

// list reads a range of index records. They show what the store has, so nothing may be pending.
func (t *txn) list(r Range) ([]Record, error) {
	if t.pending() {
		return nil, errFirst
	}
	recs, _, err := t.e.store.List(t.ctx, r)
	return recs, err
}

// guard makes the commit depend on a record being as it is known.
func (t *txn) guard(e *entry) {
	if e.guarded != t.id {
		e.guarded = t.id
		t.guards = append(t.guards, e)
	}
}

// room reserves n records of the commit for a plan. It returns errFirst if they would fit a commit of their own.
func (t *txn) room(n int) error {
	limit := t.e.limits.Ops
	if limit > 0 && t.writes+n > limit {
		if t.pending() {
			return errFirst
		}
		return fmt.Errorf("%w: %d records, at most %d", ErrTooLarge, n, limit)
	}
	t.writes += n
	return nil
}

// setCatalog changes the catalog.
func (t *txn) setCatalog(c *catalog, value string) {
	ce := t.e.cache.catalog
	ce.catalog, ce.dirty = c, t.id
	t.newCat = ce
	t.other = append(t.other, Op{Kind: OpPut, Key: catalogKey, Value: value, Expect: ce.rev})
}

// doubt guards a record that an index record contradicts: one of them is out of date. Where the store cannot verify so
// many in one commit, the answer may be as old as the cache.
func (t *txn) doubt(e *entry) {
	if limit := t.e.limits.Ops; limit == 0 || len(t.guards) < limit*3/4 {
		t.guard(e)
	}
}

// changed notes a block as changed.
func (t *txn) changed(be *blockEntry) {
	if be.dirty != t.id {
		be.dirty = t.id
		t.blocks = append(t.blocks, be)
	}
}

// setOwner changes the blocks of an owner.
func (t *txn) setOwner(oe *ownerEntry, blocks []netip.Prefix) {
	oe.blocks = blocks
	if oe.dirty != t.id {
		oe.dirty = t.id
		t.owners = append(t.owners, oe)
	}
}

// setPage changes a page.
func (t *txn) setPage(pe *pageEntry, p page) {
	pe.page = p
	if pe.dirty != t.id {
		pe.dirty = t.id
		t.pages = append(t.pages, pe)
	}
}

// commit makes the commit, if there is anything to change or to verify.
func (t *txn) commit() error {
	ops := t.build()
	if len(ops) == 0 {
		return nil
	}
	rev, err := t.e.store.Commit(t.ctx, ops)
	if err == nil {
		t.settle(rev)
	}
	return err
}

// build returns the operations of the commit.
func (t *txn) build() []Op {
	ops := t.ops[:0]
	for _, oe := range t.owners {
		op := Op{Kind: OpDelete, Key: oe.key, Expect: oe.rev}
		if len(oe.blocks) > 0 {
			op.Kind, op.Value = OpPut, encodeOwner(oe.blocks)
		}
		ops = append(ops, op)
	}
	for _, pe := range t.pages {
		ops = append(ops, Op{Kind: OpPut, Key: pe.key, Value: pe.encode(), Expect: pe.rev})
	}
	for _, be := range t.blocks {
		if be.Block != nil {
			t.buf = be.Block.encode(t.buf[:0])
			ops = append(ops, Op{Kind: OpPut, Key: be.key, Value: string(t.buf), Expect: be.rev})
		} else {
			ops = append(ops, Op{Kind: OpDelete, Key: be.key, Expect: be.rev})
		}
		ops = appendIndex(ops, be)
	}
	ops = append(ops, t.other...)
	for _, e := range t.guards {
		if e.dirty != t.id {
			ops = append(ops, Op{Kind: OpGuard, Key: e.key, Expect: e.rev})
		}
	}
	t.ops = ops
	return ops
}

// appendIndex appends the changes of the index records of a block.
func appendIndex(ops []Op, be *blockEntry) []Op {
	var is blockIndex
	p := be.at
	if be.Block != nil {
		is = be.index()
	}
	flag := func(kind string, was, is bool, wasValue, isValue int64) {
		switch {
		case is && (!was || wasValue != isValue):
			ops = append(ops, Op{Kind: OpPut, Key: be.indexKey(kind), Value: indexValue(isValue), Expect: AnyRevision})
		case was && !is:
			ops = append(ops, Op{Kind: OpDelete, Key: be.indexKey(kind), Expect: AnyRevision})
		}
	}
	flag(kindRoom, be.was.room, is.room, be.was.ready, is.ready)
	flag(kindEmpty, be.was.empty, is.empty, be.was.since, is.since)
	flag(kindOrphan, be.was.orphan, is.orphan, 0, 0)
	if be.was.due != is.due {
		if be.was.due != 0 {
			ops = append(ops, Op{Kind: OpDelete, Key: dueKey(be.was.due, p), Expect: AnyRevision})
		}
		if is.due != 0 {
			ops = append(ops, Op{Kind: OpPut, Key: dueKey(is.due, p), Expect: AnyRevision})
		}
	}
	return appendTouched(ops, p, be.touches)
}

// appendTouched writes the index records of the handles that came or left. A handle that did both more than once is
// what it is after the last time, and needs nothing if it is as it was before the first.
func appendTouched(ops []Op, p netip.Prefix, touched []touch) []Op {
	if len(touched) < 2 {
		for _, c := range touched {
			ops = append(ops, handleOp(c, p))
		}
		return ops
	}
	last := make(map[string]int, len(touched))
	for i, c := range touched {
		last[c.handle] = i
	}
	first := make(map[string]bool, len(touched))
	for i, c := range touched {
		if _, ok := first[c.handle]; !ok {
			first[c.handle] = c.came
		}
		if last[c.handle] == i && first[c.handle] == c.came {
			ops = append(ops, handleOp(c, p))
		}
	}
	return ops
}

func handleOp(c touch, p netip.Prefix) Op {
	op := Op{Kind: OpDelete, Key: handleKey(c.handle, p), Expect: AnyRevision}
	if c.came {
		op.Kind = OpPut
	}
	return op
}

// indexValue codes the time in an index record; 0 is no value.
func indexValue(v int64) string {
	if v == 0 {
		return ""
	}
	var buf [binary.MaxVarintLen64]byte
	return string(binary.AppendVarint(buf[:0], v))
}

// parseIndexValue is the inverse of indexValue. What does not parse is never due.
func parseIndexValue(s string) int64 {
	if s == "" {
		return 0
	}
	r := &reader{s: s}
	if v := r.varint(); r.err == nil && r.s == "" {
		return v
	}
	return math.MaxInt64
}

// settle notes that the commit was made at revision rev.
func (t *txn) settle(rev uint64) {
	if t.newCat != nil {
		t.newCat.rev = rev
	}
	for _, oe := range t.owners {
		if oe.rev = rev; len(oe.blocks) == 0 {
			oe.rev = 0
		}
	}
	for _, pe := range t.pages {
		pe.rev = rev
	}
	for _, be := range t.blocks {
		if invariant.Enabled && be.Block != nil {
			err := be.Block.Check()
			invariant.Assert(err == nil, "%v", err)
		}
		be.was = blockIndex{}
		if be.rev = rev; be.Block == nil {
			be.rev = 0
		} else {
			be.was = be.index()
		}
		be.touches = be.touches[:0]
	}
}

// forget drops from the cache all that the transaction relied upon or changed, and returns the keys.
func (t *txn) forget() []string {
	keys := make([]string, 0, len(t.owners)+len(t.pages)+len(t.blocks)+len(t.guards))
	for _, oe := range t.owners {
		keys = append(keys, oe.key)
	}
	for _, pe := range t.pages {
		keys = append(keys, pe.key)
	}
	for _, be := range t.blocks {
		keys = append(keys, be.key)
	}
	for _, g := range t.guards {
		if g.dirty != t.id || g.key == catalogKey {
			keys = append(keys, g.key)
		}
	}
	for _, k := range keys {
		t.e.cache.forget(k)
	}
	return keys
}

// insertBlock returns blocks with p, without changing blocks.
func insertBlock(blocks []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i, found := slices.BinarySearchFunc(blocks, p, comparePrefix)
	if found {
		return blocks
	}
	return slices.Insert(slices.Clone(blocks), i, p)
}

// removeBlock returns blocks without p, without changing blocks.
func removeBlock(blocks []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i, found := slices.BinarySearchFunc(blocks, p, comparePrefix)
	if !found {
		return blocks
	}
	return slices.Delete(slices.Clone(blocks), i, i+1)
}
