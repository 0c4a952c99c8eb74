package prefixes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// cell is what is known of one record: as the store has it, and as the transaction
// changes it. An empty value is no record.
type cell struct {
	key         string
	rev         uint64
	value, next string
	page        page // of a page: the decoded next
	depth       uint8
	isPage      bool
	created     bool   // assumed not to exist
	seen, dirty uint64 // the transaction that relies on it, and that changes it
}

// txn is one commit in the making. It names the revision of every record that it read,
// so its answer holds at one moment whatever other processes do.
type txn struct {
	a     *Allocator
	ctx   context.Context
	id    uint64
	cells []*cell
	trips int  // reads so far
	old   bool // relies on a record that was read before it began
	err   error
	blind []store.Op // of the index, which follows from the holdings
	ops   []store.Op
	way   path
}

// tree returns the free space of a pool.
func (t *txn) tree(pool netip.Prefix) tree { return tree{pool, t, &t.way} }

// cell returns the cell of a key and makes the transaction rely on it; nil if the record
// has not been read.
func (t *txn) cell(key []byte) *cell {
	c := t.a.cells.get(key)
	if c != nil && c.seen != t.id {
		c.seen, t.old = t.id, true
		t.cells = append(t.cells, c)
	}
	return c
}

// add makes the transaction rely on a record that was not known.
func (t *txn) add(c *cell) *cell {
	c.seen = t.id
	t.a.cells.put(c)
	t.cells = append(t.cells, c)
	return c
}

// read returns the cell of a key; it reads the record if it is not known.
func (t *txn) read(key []byte) (*cell, error) {
	if c := t.cell(key); c != nil {
		return c, nil
	}
	if err := t.load(string(key)); err != nil {
		return nil, err
	}
	return t.cell(key), nil
}

// load reads those of the records that are not known, in one round trip.
func (t *txn) load(keys ...string) error {
	keys = slices.DeleteFunc(keys, func(k string) bool { return t.cell([]byte(k)) != nil })
	if len(keys) == 0 {
		return nil
	}
	recs, err := t.a.store.Get(t.ctx, nil, keys...)
	t.trips++
	for _, r := range recs {
		t.add(&cell{key: r.Key, rev: r.Rev, value: r.Value, next: r.Value})
	}
	return err
}

// create returns the cell of a record that should not exist. It is not read: the commit
// verifies it, and after a conflict it is known.
func (t *txn) create(key []byte) *cell {
	if c := t.cell(key); c != nil {
		return c
	}
	return t.add(&cell{key: string(key), created: true})
}

// set changes a record; an empty value removes it.
func (t *txn) set(c *cell, value string) { c.next, c.dirty = value, t.id }

// page implements pages.
func (t *txn) page(id pageID) (page, error) {
	var buf [48]byte
	c, err := t.read(id.appendKey(buf[:0]))
	if err != nil {
		return page{}, err
	}
	if !c.isPage {
		if c.page, err = decodePage(c.value, int(id.depth)); err != nil {
			err.(*ipalloc.Error).Prefix = id.pool
			return page{}, err
		}
		c.isPage, c.depth = true, id.depth
	}
	return c.page, nil
}

// prefetch reads the pages on the way to a prefix of a pool, in one round trip.
func (t *txn) prefetch(tr tree, at netip.Prefix) error {
	var buf [48]byte
	var missing []string
	base, n := addr.FromAddr(at.Addr()), at.Bits()-tr.pool.Bits()
	for id := tr.root(); ; id = tr.under(id, tr.slotAt(base, int(id.depth))) {
		if key := id.appendKey(buf[:0]); t.a.cells.get(key) == nil {
			missing = append(missing, string(key))
		}
		if n <= pageBits*(int(id.depth)+1) {
			return t.load(missing...)
		}
	}
}

// setPage implements pages. A page that was not read has no record, because no slot
// above it is divided.
func (t *txn) setPage(id pageID, p page) {
	var buf [48]byte
	c := t.create(id.appendKey(buf[:0]))
	if !c.isPage && c.value != "" {
		t.err = damaged(id)
	}
	c.page, c.isPage, c.depth, c.dirty = p, true, id.depth, t.id
}

// mostCells bounds what a call of several steps does in one commit on a store without
// limits; 26 cells are more than any one step has.
const mostCells = 1000

// fits reports whether the commit has room for another step.
func (t *txn) fits() bool {
	limit := t.a.store.Limits().Ops
	if limit == 0 {
		limit = mostCells
	}
	return len(t.cells) == 0 || len(t.cells)+len(t.blind)+26 <= limit
}

// roots returns the root pools.
func (t *txn) roots() ([]Pool, error) {
	c, err := t.read([]byte(keyRoots))
	if err != nil {
		return nil, err
	}
	return decodeRoots(c.next)
}

// setRoots replaces the root pools.
func (t *txn) setRoots(pools []Pool) error {
	c, err := t.read([]byte(keyRoots))
	if err == nil {
		t.set(c, encodeRoots(pools))
	}
	return err
}

// holding returns what is held under exactly this prefix.
func (t *txn) holding(at netip.Prefix) (r record, ok bool, err error) {
	var buf [20]byte
	c, err := t.read(appendID(append(buf[:0], kindHolding...), at))
	if err != nil || c.next == "" {
		return r, false, err
	}
	r, err = decodeHolding(at, c.next)
	return r, err == nil, err
}

// setHolding writes a holding and its index entry. was is the one that it replaces, nil
// if there was none.
func (t *txn) setHolding(r, was *record) error {
	var buf [20]byte
	c := t.create(appendID(append(buf[:0], kindHolding...), r.Prefix))
	if was == nil && c.next != "" {
		return corrupt(r.Prefix, "held, but free by the pages of its pool")
	}
	t.set(c, r.encode())
	if was != nil && was.Owner == r.Owner {
		return nil
	}
	if was != nil {
		t.blind = append(t.blind, store.Op{Kind: store.Delete, Key: ownerKey(was.Owner, r.Prefix), Expect: store.AnyRevision})
	}
	t.blind = append(t.blind, store.Op{Kind: store.Put, Key: ownerKey(r.Owner, r.Prefix), Value: string(r.above[r.Level-1]), Expect: store.AnyRevision})
	return nil
}

// dropHolding removes a holding and its index entry.
func (t *txn) dropHolding(r *record) {
	var buf [20]byte
	t.set(t.cell(appendID(append(buf[:0], kindHolding...), r.Prefix)), "")
	t.blind = append(t.blind, store.Op{Kind: store.Delete, Key: ownerKey(r.Owner, r.Prefix), Expect: store.AnyRevision})
}

// begin empties the transaction.
func (t *txn) begin(ctx context.Context) {
	t.id++
	t.ctx, t.trips, t.old, t.err = ctx, 0, false, nil
	t.cells, t.blind = t.cells[:0], t.blind[:0]
}

// undo takes back all changes, so that the commit verifies what an answer rests on.
func (t *txn) undo() {
	for _, c := range t.cells {
		if c.dirty == t.id {
			c.next, c.dirty, c.isPage = c.value, 0, false
		}
	}
	t.blind = t.blind[:0]
}

// commit makes the changes if every record is as it was read. It needs no commit if
// nothing changes and one round trip has read everything.
func (t *txn) commit() error {
	t.ops = t.ops[:0]
	changes := len(t.blind) > 0
	for _, c := range t.cells {
		op := store.Op{Kind: store.Guard, Key: c.key, Expect: c.rev}
		if c.dirty == t.id {
			changes = true
			if c.isPage {
				c.next = c.page.encode(int(c.depth))
			}
			if op.Kind, op.Value = store.Put, c.next; c.next == "" {
				op.Kind = store.Delete
			}
		}
		t.ops = append(t.ops, op)
	}
	if !changes && !t.old && t.trips <= 1 {
		return nil
	}
	t.ops = append(t.ops, t.blind...)
	rev, err := t.a.store.Commit(t.ctx, t.ops)
	if err != nil {
		return err
	}
	for _, c := range t.cells {
		c.created = false
		if c.dirty == t.id {
			if c.rev, c.value = rev, c.next; c.next == "" {
				c.rev = 0
			}
		}
	}
	return nil
}

// forget drops from the cache all that the transaction relied on, and returns the keys
// of the records that it assumed not to exist.
func (t *txn) forget() (created []string) {
	for _, c := range t.cells {
		t.a.cells.drop(c.key)
		if c.created {
			created = append(created, c.key)
		}
	}
	return created
}

// cells is what an allocator has read, in two generations: what is used is or becomes
// young, and when the young are as many as the limit, the old ones are forgotten.
type cells struct{ young, old map[string]*cell }

const keptCells = 1 << 14

func (m *cells) get(key []byte) *cell {
	if c := m.young[string(key)]; c != nil || len(m.old) == 0 {
		return c
	}
	c := m.old[string(key)]
	if c != nil {
		delete(m.old, c.key)
		m.young[c.key] = c
	}
	return c
}

func (m *cells) put(c *cell) { m.young[c.key] = c }

func (m *cells) drop(key string) {
	delete(m.young, key)
	delete(m.old, key)
}

func (m *cells) age() {
	if len(m.young) >= keptCells {
		clear(m.old)
		m.young, m.old = m.old, m.young
	}
}

// do carries out a plan and commits it, again after each conflict. An error of this
// package is an answer: it changes nothing, and is returned once the commit has verified
// what it rests on.
func (a *Allocator) do(ctx context.Context, call ipalloc.Error, plan func(*txn) error) error {
	select {
	case a.lead <- struct{}{}:
	case <-ctx.Done():
		return explain(ctx.Err(), call)
	}
	defer func() { <-a.lead }()
	t := &a.txn
	var created []string
	for attempt := 1; ; attempt++ {
		a.cells.age()
		t.begin(ctx)
		err := a.settle(ctx)
		if err == nil {
			err = t.load(created...)
		}
		if err != nil {
			return explain(err, call)
		}
		answer := plan(t)
		if answer == nil {
			answer = t.err
		}
		if answer != nil && !isAnswer(answer) {
			t.undo()
			return explain(answer, call)
		} else if answer != nil {
			t.undo()
		}
		err = t.commit()
		switch {
		case err == nil:
			return explain(answer, call)
		case errors.Is(err, ipalloc.ErrUnknownOutcome):
			a.lost = append(a.lost, slices.Clone(t.ops))
		}
		created = t.forget()
		if !errors.Is(err, ipalloc.ErrConflict) {
			return explain(err, call)
		}
		if attempt >= a.attempts {
			return explain(fmt.Errorf("other writers were faster %d times: %w", attempt, err), call)
		}
		if err := pause(ctx, attempt); err != nil {
			return explain(err, call)
		}
	}
}

// settle makes commits of unknown outcome impossible that have not been made: it writes
// a record again that such a commit names.
func (a *Allocator) settle(ctx context.Context) error {
	for len(a.lost) > 0 {
		i := slices.IndexFunc(a.lost[0], func(o store.Op) bool { return o.Expect != 0 && o.Expect != store.AnyRevision })
		op := store.Op{Kind: store.Put, Key: keyRoots, Value: encodeRoots(nil)}
		if i >= 0 {
			op.Key, op.Expect = a.lost[0][i].Key, a.lost[0][i].Expect
		}
		recs, err := a.store.Get(ctx, nil, op.Key)
		if err != nil {
			return err
		}
		a.cells.drop(op.Key)
		if recs[0].Rev == op.Expect {
			if op.Expect != 0 {
				op.Value = recs[0].Value
			}
			_, err := a.store.Commit(ctx, []store.Op{op})
			if errors.Is(err, ipalloc.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
		}
		a.lost = a.lost[1:]
	}
	return nil
}

// pause sleeps before the retry that follows an attempt; after the first it does not.
func pause(ctx context.Context, attempt int) error {
	if attempt == 1 {
		return nil
	}
	d := min(time.Millisecond<<min(attempt-2, 20), 100*time.Millisecond)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
