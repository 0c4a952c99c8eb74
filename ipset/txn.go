package ipset

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making: what it relies upon and what it changes. Plans read through it and change the
// cached blocks, owners and pages in place; when the commit does not succeed, all that it touched is forgotten.
type txn struct {
	e      *Engine
	ctx    context.Context
	id     uint64 // never repeats in an engine
	now    int64
	past   int64 // what ends at this moment or before has ended by every engine's clock
	guards []*entry
	blocks []*blockEntry
	owners []*ownerEntry
	pages  []*pageEntry
	newCat *catalogEntry           // the catalog if it changes
	other  []store.Op              // blind writes, requests, the catalog
	seen   map[string]string       // answers to request keys that this transaction writes, by key
	prior  map[string]store.Record // answers that were found to exist, by key; kept over the attempts
	before int                     // how many plans came before this one
	// committing is set while the store's Commit runs.
	committing bool
	expects    int // how many of the other records are written on an expected revision
	writes     int // an upper bound of the records written
	text       text
}

// errFirst is returned by a plan that can only be made when nothing is pending in the transaction.
var errFirst = errors.New("ipset: plan must be the first of its transaction")

func newTxn(e *Engine) txn {
	return txn{e: e, seen: make(map[string]string), prior: make(map[string]store.Record)}
}

// begin empties the transaction.
func (t *txn) begin(ctx context.Context) {
	t.id++
	t.ctx, t.now = ctx, block.Stamp(t.e.now())
	t.past = t.now - t.e.skew
	t.guards, t.blocks, t.owners, t.pages = t.guards[:0], t.blocks[:0], t.owners[:0], t.pages[:0]
	clear(t.other)
	t.newCat = nil
	t.other, t.writes, t.expects = t.other[:0], 0, 0
	clear(t.seen)
}

// pending reports whether the transaction changes anything so far.
func (t *txn) pending() bool { return t.writes > 0 }

// opsPerBlock bounds the records of a block itself: the block, its room and empty entries, that of its owner or as an orphan,
// and two
// of due.
const opsPerBlock = 6

// opsPerAddress bounds the records of an address: its own, its handle and its host.
const opsPerAddress = 3

// ownerOps bounds the records that a change of a block's owner adds: that addresses are held for the former one and no longer for
// the new one, and that one has room and the other not.
const ownerOps = 4

// blockOps bounds the records that a plan adds to the commit by changing a block; n is how many those of its addresses are, timed
// says that it may end a time or begin one, a lease or a cooldown, and fills that the block may get room or lose it. A block that
// another plan of the transaction has changed costs no more than those.
func (t *txn) blockOps(be *blockEntry, n int, timed, fills bool) int {
	if be.dirty != t.id {
		n += 2 + opsPerAddress*len(be.changes.List) // the block, its empty entry
		timed = timed || be.shown.due != 0 || be.Block != nil && (be.NextLease() != 0 || be.Cooling() > 0)
		fills = fills || be.Block == nil || !be.shown.room || be.shown.ready != 0 || be.Owner().Kind == Nobody
	}
	if timed {
		n += 2 // the entries of the former and the next time
	}
	if fills {
		n += 2 // the room entries of the block, and of its owner or as an orphan
	}
	return n
}

// room reserves n records of the commit for a plan, which has read all that it rests upon, and as many expectations besides its
// guards as it has records of its own. It returns errFirst if they would fit a commit of their own.
func (t *txn) room(n, expects int) error {
	limit := t.e.limits.Ops
	if guards := len(t.guards) + t.expects + expects; limit > 0 && (t.writes+n > limit || guards > limit) {
		if t.before > 0 {
			return errFirst
		}
		return fmt.Errorf("%w: %d records, at most %d", ipalloc.ErrLimit, max(n, guards), limit)
	}
	t.writes += n
	t.expects += expects
	return nil
}

// setCatalog changes the catalog.
func (t *txn) setCatalog(c *catalog, value string) {
	ce := t.e.cache.catalog
	ce.catalog, ce.dirty = c, t.id
	t.newCat = ce
	t.other = append(t.other, store.Op{Kind: store.Put, Key: catalogKey, Value: value, Expect: ce.rev})
}

// changed notes a block as changed.
func (t *txn) changed(be *blockEntry) {
	if be.dirty != t.id {
		be.dirty = t.id
		t.blocks = append(t.blocks, be)
	}
}

// setOwner changes the blocks of an owner.
func (t *txn) setOwner(oe *ownerEntry, blocks blockList) {
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
	t.committing = true
	rev, err := t.e.store.Commit(t.ctx, ops)
	t.committing = false
	if err == nil {
		t.settle(rev)
	}
	return err
}

// build returns the operations of the commit.
func (t *txn) build() []store.Op {
	x := &t.text
	x.reset()
	for _, oe := range t.owners {
		if oe.blocks.len() == 0 {
			x.begin(store.Op{Kind: store.Delete, Key: oe.key, Expect: oe.rev})
			continue
		}
		x.begin(store.Op{Kind: store.Put, Key: oe.key, Value: oe.blocks.encode(), Expect: oe.rev})
	}
	for _, pe := range t.pages {
		x.begin(store.Op{Kind: store.Put, Key: pe.key, Value: pe.encode(), Expect: pe.rev})
	}
	for _, be := range t.blocks {
		t.writeBlock(be)
	}
	x.ops = append(x.ops, t.other...)
	for _, e := range t.guards {
		if e.dirty != t.id {
			x.begin(store.Op{Kind: store.Guard, Key: e.key, Expect: e.rev})
		}
	}
	return x.finish()
}

// settle notes that the commit was made at revision rev.
func (t *txn) settle(rev uint64) {
	if t.newCat != nil {
		t.newCat.rev = rev
	}
	for _, oe := range t.owners {
		if oe.rev = rev; oe.blocks.len() == 0 {
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
		be.shown = blockIndex{}
		if be.rev = rev; be.Block == nil {
			be.rev = 0
		} else {
			be.shown = indexOf(be.Block)
		}
		be.changes.Settle()
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
