package prefixes

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// keptCells is the number of pages, and of holdings, that an allocator caches. It takes
// some 10 MB, for the pages of 10,000 pools that are in use at a time.
const keptCells = 1 << 15

// txn is one commit in the making. It names the revision of every record that it read, so
// its answer holds at one moment even if other processes change records.
type txn struct {
	occ.Txn
	a         *Allocator
	rootPools occ.Cache[struct{}, *rootsCell]
	holdings  occ.Cache[netip.Prefix, *holdingCell]
	pages     occ.Cache[pageID, *pageCell]
	given     []netip.Prefix // holdings that the transaction has written, or has meant to
	now       int64          // by the clock, 0 before the first use
	way       path
}

// roots is the root pools in the order of their addition, and their sizes by prefix.
type roots struct {
	pools  []Pool
	sizes  map[netip.Prefix]Sizes
	leases bool // there may be leases
}

func newRoots(pools []Pool, leases bool) roots {
	r := roots{pools, make(map[netip.Prefix]Sizes, len(pools)), leases}
	for _, p := range pools {
		r.sizes[p.Prefix] = p.Sizes
	}
	return r
}

type rootsCell struct{ occ.Var[roots] }

// Write implements occ.Entry.
func (c *rootsCell) Write(o *occ.Ops) {
	roots := c.Get()
	if len(roots.pools) == 0 {
		remove(o, &c.Cell)
		return
	}
	o.Put(&c.Cell)
	w := wire.Write(o.Buf)
	roots.code(w)
	o.Buf = w.B
	o.Value()
}

// holdingCell is a holding; one without an owner has no record. It also writes its index
// entry, which needs no expectation because it follows from the holding.
type holdingCell struct {
	occ.Var[record]
	at      netip.Prefix
	indexed Holding // the one whose index entries the store has
}

// Write implements occ.Entry.
func (c *holdingCell) Write(o *occ.Ops) {
	r := c.Get()
	if r.Owner == "" {
		remove(o, &c.Cell)
	} else {
		w := wire.Coder{B: o.Buf, Writes: true}
		o.Put(&c.Cell)
		r.code(&w)
		o.Buf = w.B
		o.Value()
	}
	was := &c.indexed
	if r.Owner != was.Owner || r.Pool != was.Pool {
		if was.Owner != "" && r.Owner != was.Owner {
			c.index(o, store.Op{Kind: store.Delete, Expect: store.AnyRevision}, was.Owner)
		}
		if r.Owner != "" {
			c.index(o, store.Op{Kind: store.Put, Expect: store.AnyRevision, Value: r.entry()}, r.Owner)
		}
	}
	if r.Until.Equal(was.Until) && r.Pool == was.Pool {
		return
	}
	if !was.Until.IsZero() {
		o.Add(store.Op{Kind: store.Delete, Key: dueKey(was.Until, c.at), Expect: store.AnyRevision})
	}
	if !r.Until.IsZero() {
		o.Add(store.Op{Kind: store.Put, Key: dueKey(r.Until, c.at), Expect: store.AnyRevision, Value: r.entry()})
	}
}

// index adds an operation on an owner's index entry.
func (c *holdingCell) index(o *occ.Ops, op store.Op, owner string) {
	o.Add(op)
	w := wire.Coder{B: o.Buf, Writes: true}
	codeOwnerKey(&w, &owner, &c.at)
	o.Buf = w.B
	o.Key()
}

// entry returns the value of the holding's index entries: the length of its pool.
func (r *record) entry() string { return lengths[r.Pool.Bits() : r.Pool.Bits()+1] }

// Settle implements occ.Entry.
func (c *holdingCell) Settle() { c.indexed = c.Get().Holding }

// pageCell is a page; an empty one has no record.
type pageCell struct {
	occ.Var[page]
	id pageID
}

func (c *pageCell) content() page { return c.Get() }

// Write implements occ.Entry.
func (c *pageCell) Write(o *occ.Ops) {
	p := c.Get()
	if p.empty() {
		remove(o, &c.Cell)
		return
	}
	o.Put(&c.Cell)
	w := wire.Coder{B: o.Buf, Writes: true}
	p.code(&w)
	o.Buf = w.B
	o.Value()
}

// remove deletes the record of a cell, if there is one.
func remove(o *occ.Ops, c *occ.Cell) {
	if c.Rev == 0 {
		o.Guard(c)
	} else {
		o.Delete(c)
	}
}

// newRunner returns the runner of an allocator's plans.
func newRunner(a *Allocator, db store.Store, attempts int) *occ.Runner[*txn] {
	t := &txn{a: a}
	t.rootPools = occ.NewCache(1, func(string) (k struct{}, ok bool) { return k, true }, func(_ struct{}, r store.Record) (*rootsCell, error) {
		if r.Rev == 0 {
			return &rootsCell{occ.NewVar(r, roots{})}, nil
		}
		roots, err := decodeRoots(r.Value)
		return &rootsCell{occ.NewVar(r, roots)}, err
	})
	t.holdings = occ.NewCache(keptCells, parseHoldingKey, func(at netip.Prefix, r store.Record) (*holdingCell, error) {
		if r.Rev == 0 {
			return &holdingCell{Var: occ.NewVar(r, record{}), at: at}, nil
		}
		h, err := decodeHolding(at, r.Value)
		return &holdingCell{occ.NewVar(r, h), at, h.Holding}, err
	})
	t.pages = occ.NewCache(keptCells, parsePageKey, func(id pageID, r store.Record) (*pageCell, error) {
		if r.Rev == 0 {
			return &pageCell{occ.NewVar(r, page{}), id}, nil
		}
		p, err := decodePage(r.Value, id)
		return &pageCell{occ.NewVar(r, p), id}, err
	})
	t.Register(keyRoots, &t.rootPools)
	t.Register(kindHolding, &t.holdings)
	t.Register(kindPage, &t.pages)
	return occ.New(t, occ.Config{Package: pkg, Store: db, Attempts: attempts, Fence: fence})
}

// noRoots is the record of the root pools with no pool in it.
var noRoots = func() string {
	c := wire.Write(nil)
	new(roots).code(c)
	return string(c.B)
}()

// fence ranks the records that a lost commit expects. A record that it also writes is
// best, because other calls rarely depend on it. The root pools are last, because all
// calls depend on them.
func fence(op store.Op) (rank int, value string) {
	switch {
	case op.Expect == 0:
		return 0, ""
	case op.Key == keyRoots:
		return 1, ""
	case op.Kind == store.Guard:
		return 2, ""
	}
	return 3, ""
}

// Begin implements occ.Transaction.
func (t *txn) Begin() error {
	t.given, t.now = t.given[:0], 0
	return nil
}

// joined is a plan with records of its caller, which are written if the plan changes a holding.
type joined struct {
	plan occ.Plan[*txn]
	ops  []store.Op
	runs int
}

// Plan implements occ.Plan.
func (j *joined) Plan(t *txn) error {
	j.runs++
	before := len(t.given)
	err := j.plan.Plan(t)
	if err == nil && len(t.given) > before {
		err = t.Join(j.ops, j.runs > 1)
	}
	return err
}

// join returns a plan that writes records of the caller in its commit.
func (a *Allocator) join(plan occ.Plan[*txn], also []store.Op) (occ.Plan[*txn], error) {
	if len(also) == 0 {
		return plan, nil
	}
	if key, found := occ.NotYours(also); found {
		err := invalid("also", "a key of yours begins with an upper-case letter other than L and X")
		err.Text = key
		return nil, err
	}
	return &joined{plan: plan, ops: slices.Clone(also)}, store.CheckOps(pkg, also, a.store.Limits())
}

// do carries out a plan, or returns bad if that is set, and completes the error of
// either.
func (a *Allocator) do(ctx context.Context, call ipalloc.Error, bad error, plan occ.Plan[*txn], also ...store.Op) error {
	if bad == nil {
		plan, bad = a.join(plan, also)
	}
	if bad == nil {
		for bad = a.run.Do(ctx, plan); errors.Is(bad, errDue); bad = a.run.Do(ctx, plan) {
			if _, err := a.Sweep(ctx); err != nil {
				return explain(err, call)
			}
		}
	}
	return explain(bad, call)
}

// answer is do for a plan that returns a value besides the error.
func answer[T any](ctx context.Context, a *Allocator, call ipalloc.Error, bad error, plan func(*txn) (T, error), also ...store.Op) (T, error) {
	var got, none T
	err := a.do(ctx, call, bad, occ.Func[*txn](func(t *txn) (err error) {
		got, err = plan(t)
		return err
	}), also...)
	if err != nil {
		return none, err // a plan that its caller has left may still write to got
	}
	return got, nil
}

// tree returns the space of a pool.
func (t *txn) tree(pool netip.Prefix) tree { return tree{pool, t, &t.way} }

// roots returns the root pools.
func (t *txn) roots() (roots, error) {
	c := t.rootPools.Get(struct{}{})
	if c == nil {
		if err := t.Load(keyRoots); err != nil {
			return roots{}, err
		}
		c = t.rootPools.Get(struct{}{})
	}
	t.Guard(&c.Cell)
	return c.Get(), nil
}

// setRoots replaces the root pools, which have been read.
func (t *txn) setRoots(pools []Pool, leases bool) {
	occ.Set(&t.Txn, t.rootPools.Get(struct{}{}), newRoots(pools, leases))
}

// holding returns the holding of exactly this prefix; ok is false if there is none.
func (t *txn) holding(at netip.Prefix) (r record, ok bool, err error) {
	if r, err = t.stored(at); err == nil && !r.Until.IsZero() {
		var past int64
		if past, err = t.past(); r.ended(past) {
			r = record{}
		}
	}
	return r, r.Owner != "", err
}

// stored returns the record of a prefix, also of an expired lease; the zero record if
// there is none.
func (t *txn) stored(at netip.Prefix) (record, error) {
	c := t.holdings.Get(at)
	if c == nil {
		if err := t.Load(holdingKey(at)); err != nil {
			return record{}, err
		}
		c = t.holdings.Get(at)
	}
	t.Guard(&c.Cell)
	return c.Get(), nil
}

// give writes a new holding; the pages of its pool show that it does not exist. Its
// record is not read, because the commit verifies that it does not exist; after a
// conflict it is known.
func (t *txn) give(r *record) error {
	c := t.holdings.Get(r.Prefix)
	if c == nil {
		c = &holdingCell{Var: occ.NewVar(store.Record{Key: holdingKey(r.Prefix)}, record{}), at: r.Prefix}
		t.holdings.Put(r.Prefix, c)
	}
	t.Guard(&c.Cell)
	if c.Get().Owner != "" {
		return corrupt(r.Prefix, "held, but free by the pages of its pool")
	}
	t.replace(r.Prefix, r)
	return nil
}

// replace changes a holding that was read; the zero record removes it.
func (t *txn) replace(at netip.Prefix, r *record) {
	occ.Set(&t.Txn, t.holdings.Get(at), *r)
	t.given = append(t.given, at)
}

// page implements pages.
func (t *txn) page(id pageID) (*pageCell, error) {
	c := t.pages.Get(id)
	if c == nil || t.Doubtful(&c.Cell) {
		if err := t.Read(id.key()); err != nil {
			return nil, err
		}
		c = t.pages.Get(id)
	}
	t.Guard(&c.Cell)
	return c, nil
}

// create implements pages. It does not read the page: the commit verifies that it has no
// record.
func (t *txn) create(id pageID) *pageCell {
	c := t.pages.Get(id)
	if c == nil || t.Doubtful(&c.Cell) { // what is cached may be a page that has gone
		c = &pageCell{occ.NewVar(store.Record{Key: id.key()}, page{}), id}
		t.pages.Put(id, c)
	}
	t.Guard(&c.Cell)
	return c
}

// set implements pages.
func (t *txn) set(c *pageCell, p page) { occ.Set(&t.Txn, c, p) }

// prefetch reads the pages on the path to a prefix of a pool, in one round trip, unless
// the last one is known.
func (t *txn) prefetch(tr tree, at netip.Prefix) error {
	base, n := addr.FromAddr(at.Addr()), at.Bits()-tr.pool.Bits()
	last := max(n-1, 0) / pageBits
	if t.pages.Get(tr.at(base, last)) != nil {
		return nil
	}
	keys := make([]string, last+1)
	for d := range keys {
		keys[d] = tr.at(base, d).key()
	}
	return t.Load(keys...)
}
