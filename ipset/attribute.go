package ipset

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The index of attributes has a record i<key>NUL<value>NUL<address> for each attribute of a holder whose key its pool lists. Which
// those are is noted in the address record. So the index follows from the addresses alone, whatever the pool lists by now.

// maxIndex bounds the keys that a pool lists, because each may be a record more for each address of a commit.
const maxIndex = 8

// checkIndex refuses keys that no index can have.
func checkIndex(keys []string) error {
	if len(keys) > maxIndex {
		return fmt.Errorf("%w: %d indexed attributes, at most %d", errBadArgument, len(keys), maxIndex)
	}
	for i, key := range keys {
		if err := block.CheckName("attribute", key); err != nil {
			return err
		}
		if slices.Contains(keys[:i], key) {
			return fmt.Errorf("%w: attribute %q twice", errBadArgument, key)
		}
	}
	return nil
}

// index returns the keys of attributes that the pool of a block lists.
func (c *catalog) index(block netip.Prefix) []string {
	if !c.indexed {
		return nil
	}
	if i := c.containing(block.Addr()); i >= 0 {
		return c.Pools[i].Index
	}
	return nil
}

// attributeRange returns the keys of the index records of an attribute.
func attributeRange(key, value string) store.Range {
	from := kindIndex + key + "\x00" + value
	return store.Range{From: from + "\x00", To: from + "\x01"}
}

// IPsByAttribute returns the addresses whose active attributes have a value under a key, in address order, of an address with
// several holders those of them that have it. It finds addresses of pools whose [Pool].Index lists the key; none is no error. Values
// of more than 1,024 bytes, or with a NUL byte, are not found. Errors: [ipalloc.ErrInvalid] for a key that cannot be indexed; those
// of the store. Cost: two round trips, and the number of addresses found.
func (e *Engine) IPsByAttribute(ctx context.Context, key, value string) ([]Allocation, error) {
	fail := func(err error) ([]Allocation, error) {
		return nil, wrap(ipalloc.Error{Op: "look up", Field: "attribute", Name: key, Err: err})
	}
	if err := block.CheckName("attribute", key); err != nil {
		return fail(err)
	}
	r := attributeRange(key, value)
	recs, _, err := e.store.List(ctx, r)
	if err != nil {
		return fail(err)
	}
	ids, err := idsIn(recs, len(r.From))
	if err != nil {
		return fail(err)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = addressKey(id.Addr())
	}
	als, err := e.readAddresses(ctx, keys, func(al Allocation) bool {
		for k, v := range al.Attributes.All() {
			if k == key {
				return v == value
			}
		}
		return false
	})
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// Reindex brings the index records of the addresses of a pool in line with its Index and returns the number of addresses that it
// changed. Call it after [Engine.UpdatePool] has changed Index. It reads every address of the pool and goes in steps of a commit
// each; repeat one that was interrupted. It returns [ipalloc.ErrNotFound] if there is no such pool, or an error of the store.
func (e *Engine) Reindex(ctx context.Context, pool string) (changed int, err error) {
	fail := func(err error) (int, error) {
		return changed, wrap(ipalloc.Error{Op: "reindex", Name: pool, Err: err})
	}
	cat, err := e.readCatalog(ctx)
	if err != nil {
		return fail(err)
	}
	i := cat.byName(pool)
	if i < 0 {
		return fail(errUnknownPool)
	}
	var ids []netip.Prefix
	step := func() error {
		err := e.inSteps(ids, stepCost{0, opsPerBlock + 1}, func(part []netip.Prefix) error {
			p := reindexPlan{ids: part}
			err := e.do(ctx, &p)
			if err == nil {
				changed += p.n
			}
			return err
		})
		ids = ids[:0]
		return err
	}
	for al, err := range e.Allocations(ctx, cat.Pools[i].Prefix) {
		if err != nil {
			return fail(err)
		}
		if al.Cooling || cat.containing(al.Address) != i {
			continue
		}
		if ids = append(ids, al.Prefix()); len(ids) == stepBlocks {
			if err := step(); err != nil {
				return fail(err)
			}
		}
	}
	if err := step(); err != nil {
		return fail(err)
	}
	return changed, nil
}

// reindexPlan brings the index records of some addresses in line with their pools.
type reindexPlan struct {
	ids []netip.Prefix // with the prefix lengths of their blocks
	n   int            // how many addresses it changed
}

// Plan implements [occ.Plan].
func (p *reindexPlan) Plan(t *txn) error {
	p.n = 0
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	held, err := t.heldAt(cat, p.ids, nil, "")
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, func(h place) bool {
		_, a := h.be.Look(h.x)
		return a.IsMarked(cat.index(h.be.at))
	})
	n := 0
	for i, h := range held {
		_, a := h.be.Look(h.x)
		if n += recordsOf(a) + maxIndex*a.Count(); i == 0 || held[i-1].be != h.be {
			n += t.blockOps(h.be, 0, false, false)
		}
	}
	if err := t.Room(n); err != nil {
		return err
	}
	for _, h := range held {
		h.be.Change(h.x).Mark(cat.index(h.be.at))
		t.Change(h.be)
	}
	p.n = len(held)
	return nil
}
