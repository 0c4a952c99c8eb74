package prefixes

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Checked is the result of Check. The Prefix of a problem is the holding, or the pool of
// a page.
type Checked struct {
	Problems []audit.Problem
	Pools    int // root pools
	Holdings int // with the leases that have ended, until that is written
}

// Check verifies all records of this package in one consistent view. Every record must be
// readable, each holding must have its pool and overlap no other, and the index and the
// pages must agree with the holdings. It reads everything into memory, some 500 bytes a
// holding. Problems are in the report, not in the error.
func (a *Allocator) Check(ctx context.Context) (*Checked, error) {
	c, err := a.check(ctx)
	if err != nil {
		return nil, explain(err, ipalloc.Error{Op: "check"})
	}
	return &c.Checked, nil
}

// Repair restores the index and the pages, one commit for each record, and returns what
// Check found before. It is safe while others write: Repair examines a record that
// changes meanwhile again. If the report has a problem of another kind, Repair fails with
// ErrCorrupt and changes nothing, because a repaired page could then mark a held prefix
// as free.
func (a *Allocator) Repair(ctx context.Context) (*Checked, error) {
	call := ipalloc.Error{Op: "repair"}
	var first *Checked
	for try := 1; ; try++ {
		c, err := a.check(ctx)
		if err != nil {
			return first, explain(err, call)
		}
		if first == nil {
			first = &c.Checked
		}
		for _, p := range c.Problems {
			if p.Kind == audit.Damaged || p.Kind == audit.NoPool || p.Kind == audit.Overlapping {
				return first, explain(corrupt(p.Prefix, "holdings are damaged: "+p.String()), call)
			}
		}
		for _, fix := range c.fixes {
			if err = c.apply(ctx, a, fix); err != nil {
				break
			}
		}
		if !errors.Is(err, ipalloc.ErrConflict) || try == 16 {
			return first, explain(err, call)
		}
	}
}

// checker compares all records with the holdings.
type checker struct {
	Checked
	pools    map[netip.Prefix]bool // that exist
	leases   bool                  // that the root pools say that there are
	holdings []record
	have     map[string]store.Record // index entries and pages
	want     map[string]string
	from     map[string]string // the holding behind an index entry
	pages    map[pageID]page
	fixes    []string // keys of records to restore; of pages the deepest first
}

func newChecker() *checker {
	return &checker{pools: map[netip.Prefix]bool{}, have: map[string]store.Record{}, want: map[string]string{}, from: map[string]string{}, pages: map[pageID]page{}}
}

func (a *Allocator) check(ctx context.Context) (*checker, error) {
	if err := a.run.Current(ctx); err != nil {
		return nil, err
	}
	recs, _, err := a.store.List(ctx, store.Range{From: "X", To: "Y"})
	if err != nil {
		return nil, err
	}
	c := newChecker()
	for _, rec := range recs {
		c.read(rec)
	}
	c.tree()
	c.derive()
	c.compare()
	return c, nil
}

func (c *checker) add(kind audit.Kind, key string, p netip.Prefix) {
	c.Problems = append(c.Problems, audit.Problem{Kind: kind, Key: key, Prefix: p})
}

// read adds one record. Holdings come in the order of their keys.
func (c *checker) read(rec store.Record) {
	switch {
	case rec.Key == keyRoots:
		roots, err := decodeRoots(rec.Value)
		if err != nil {
			c.add(audit.Damaged, rec.Key, netip.Prefix{})
		}
		for _, r := range roots.pools {
			c.pools[r.Prefix] = true
		}
		c.Pools, c.leases = len(roots.pools), roots.leases
	case strings.HasPrefix(rec.Key, kindHolding):
		r, err := decodeRecord(rec)
		if err != nil {
			p, _ := parseHoldingKey(rec.Key)
			c.add(audit.Damaged, rec.Key, p)
			return
		}
		c.holdings = append(c.holdings, r)
	case strings.HasPrefix(rec.Key, kindOwner), strings.HasPrefix(rec.Key, kindDue), strings.HasPrefix(rec.Key, kindPage):
		c.have[rec.Key] = rec
	default:
		c.add(audit.Damaged, rec.Key, netip.Prefix{})
	}
}

// tree verifies the place of every holding. A holding that contains another one comes
// before it.
func (c *checker) tree() {
	c.Holdings = len(c.holdings)
	var around []*record // the holdings that contain the present one
	for i := range c.holdings {
		r := &c.holdings[i]
		key := holdingKey(r.Prefix)
		for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(r.Prefix) {
			around = around[:len(around)-1]
		}
		above := ""
		if len(around) > 0 {
			up := around[len(around)-1]
			if above = up.above; up.Prefix != r.Pool {
				c.add(audit.Overlapping, key, r.Prefix)
				continue
			}
		}
		if !r.Until.IsZero() && !c.leases {
			c.add(audit.Damaged, keyRoots, r.Prefix) // no call would see the lease end
		}
		if !c.pools[r.Pool] || above != r.above[:r.Level-1] {
			c.add(audit.NoPool, key, r.Prefix)
		}
		if r.Children != (Sizes{}) {
			c.pools[r.Prefix] = true
		}
		around = append(around, r)
	}
}

// derive computes the index entries and the pages from the holdings.
func (c *checker) derive() {
	for i := range c.holdings {
		r := &c.holdings[i]
		for _, key := range r.entries() {
			c.want[key], c.from[key] = r.entry(), holdingKey(r.Prefix)
		}
		tr := tree{pool: r.Pool}
		base, n := addr.FromAddr(r.Prefix.Addr()), r.Prefix.Bits()-r.Pool.Bits()
		for id := tr.root(); ; {
			p, d := c.pages[id], id.depth()
			if n <= pageBits*(d+1) {
				p.hold(tr.slotOf(base, d, n))
				c.pages[id] = p
				break
			}
			slot := tr.slotAt(base, d)
			c.pages[id] = p.divide(slot, p.under(slot))
			id = tr.under(id, slot)
		}
	}
	for _, id := range c.deepestFirst() {
		p := c.pages[id]
		c.want[id.key()] = p.value()
		if id.depth() > 0 {
			tr := tree{pool: id.of()}
			up := tr.at(id.base, id.depth()-1)
			c.pages[up] = c.pages[up].divide(tr.slotAt(id.base, up.depth()), p.sizes(id.depth()))
		}
	}
}

func (c *checker) deepestFirst() []pageID {
	ids := make([]pageID, 0, len(c.pages))
	for id := range c.pages {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b pageID) int {
		return cmp.Or(cmp.Compare(b.depth(), a.depth()), strings.Compare(a.key(), b.key()))
	})
	return ids
}

// compare finds the differences.
func (c *checker) compare() {
	var pages []string
	note := func(key string) {
		if id, ok := parsePageKey(key); ok {
			c.add(audit.WrongPage, key, id.of())
			pages = append(pages, key)
			return
		}
		kind := audit.StaleIndex
		if c.from[key] != "" {
			kind = audit.MissingIndex
		}
		_, p, ok := parseOwnerKey(key)
		if !ok {
			_, p, _ = parseDueKey(key)
		}
		c.add(kind, key, p)
		c.fixes = append(c.fixes, key)
	}
	for key, value := range c.want {
		if rec, ok := c.have[key]; !ok || rec.Value != value {
			note(key)
		}
	}
	for key := range c.have {
		if _, ok := c.want[key]; !ok {
			note(key)
		}
	}
	slices.SortFunc(pages, func(a, b string) int {
		x, _ := parsePageKey(a)
		y, _ := parsePageKey(b)
		return cmp.Or(cmp.Compare(y.depth(), x.depth()), strings.Compare(a, b))
	})
	c.fixes = append(c.fixes, pages...)
	slices.SortStableFunc(c.Problems, func(a, b audit.Problem) int { return strings.Compare(a.Key, b.Key) })
}

// apply repairs one record. The commit verifies the records that it was derived from: for
// an index entry the holding, for a page the pages below it. The slots of the page have
// not changed, because every change of a slot writes the page.
func (c *checker) apply(ctx context.Context, a *Allocator, key string) error {
	op := store.Op{Kind: store.Put, Key: key, Value: c.want[key], Expect: c.have[key].Rev}
	if op.Value == "" {
		op.Kind = store.Delete
	}
	ops := []store.Op{op}
	if id, ok := parsePageKey(key); ok {
		p := c.pages[id]
		for slot := range 1 << pageBits {
			if p.divided>>slot&1 == 1 {
				below := (tree{pool: id.of()}).under(id, slot).key()
				ops = append(ops, store.Op{Key: below, Expect: c.have[below].Rev})
			}
		}
	} else if from := c.from[key]; from != "" {
		recs, err := a.store.Get(ctx, nil, from)
		if err != nil {
			return err
		}
		if r, err := decodeRecord(recs[0]); err != nil || !slices.Contains(r.entries(), key) {
			return store.Conflict(pkg, from)
		}
		ops = append(ops, store.Op{Key: from, Expect: recs[0].Rev})
	}
	if err := a.run.Write(ctx, ops); err != nil {
		return err
	}
	recs, err := a.store.Get(ctx, nil, key)
	if err != nil {
		return err
	}
	if c.have[key] = recs[0]; recs[0].Value != c.want[key] {
		return store.Conflict(pkg, key)
	}
	return nil
}
