package ipset

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
)

// digestOf returns what tells requests with different arguments apart: a digest of the text of each. The strings of lists and maps
// are quoted, because what joins them may be part of one.
func digestOf(args ...any) string {
	h := sha256.New()
	for _, a := range args {
		format := "%v"
		switch a.(type) {
		case []string, map[string]string:
			format = "%q"
		}
		s := fmt.Sprintf(format, a)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return string(h.Sum(nil)[:16])
}

// recall returns what of the answer that the request key was given before is still held by the handle, in the order of the
// answer. A record that is not known is assumed not to exist, and the commit verifies that: the first call of a key so needs no
// read of its own, and whatever else it finds, an answer that there is comes first. A shortage is not kept: a repetition asks for
// what is missing.
func (t *txn) recall(cat *catalogEntry, m *memo, handle string) ([]place, error) {
	value, ok := t.Assume(m.key)
	was, err := decodeMemo(m.key, value, ok)
	if err != nil || !ok {
		return nil, err
	}
	if was.digest != m.digest {
		return nil, fmt.Errorf("%w: the request key was used for a request with other arguments", errBadArgument)
	}
	m.at = was.at
	return t.heldAt(cat, was.ids, was.seqs, handle)
}

// existing puts what the handle holds into the result and reports whether that is anything. If it is not, the assignment writes an
// answer under a key that only such calls of the handle use, so that of two at the same time one meets a conflict.
func (p *assignPlan) existing(t *txn) (bool, error) {
	key := kindRequest + "\x00" + p.Handle
	value, ok := t.Assume(key)
	was, err := decodeMemo(key, value, ok)
	if err != nil {
		return false, err
	}
	p.memo = memo{key: key, at: was.at}
	if t.changes(p.Handle) {
		return false, occ.ErrFirst // the index does not show it yet
	}
	cat, err := t.catalog()
	if err != nil {
		return false, err
	}
	p.cat = cat
	held, err := t.heldBy(cat, p.Handle)
	if err != nil {
		return false, err
	}
	if p.offer {
		short := slices.DeleteFunc(slices.Clone(held), func(h place) bool {
			return h.Until == 0 || h.Until >= block.LeaseEnd(t.now, p.TTL)
		})
		if _, err := t.extend(short, block.LeaseEnd(t.now, p.TTL)); err != nil {
			return false, err
		}
	}
	p.answer(held)
	return len(held) > 0, nil
}

// answer puts what the handle holds already into the result.
func (p *assignPlan) answer(held []place) {
	for _, h := range held {
		p.result.add(h.be.AllocationOf(h.x, p.Handle))
	}
}

func (r *Assigned) add(al Allocation) {
	if al.Address.Is4() {
		r.V4 = append(r.V4, al)
	} else {
		r.V6 = append(r.V6, al)
	}
}

// changes reports whether the transaction gives an address to a handle or takes one from it.
func (t *txn) changes(handle string) bool {
	for _, e := range t.Entries() {
		be, ok := e.(*blockEntry)
		if !ok {
			continue
		}
		for _, c := range be.changes.List {
			if holds(c.Was, handle) {
				return true
			}
			if be.Block == nil {
				continue
			}
			if _, a := be.Look(c.X); holds(a, handle) {
				return true
			}
		}
	}
	return false
}

// holds reports whether a handle is one of the holders of an address, which is nil if it has no record.
func holds(a *block.Address, handle string) bool {
	if a == nil || a.Cooling {
		return false
	}
	_, ok := a.Find(Guard{Handle: handle})
	return ok
}

// place is an ordinal of a block and one of its holders.
type place struct {
	be *blockEntry
	x  uint64
	block.Holder
}

// heldBy returns the addresses that a handle holds, in address order. The transaction rests on the blocks.
func (t *txn) heldBy(cat *catalogEntry, handle string) ([]place, error) {
	r := handleRange(handle)
	recs, err := t.ListStored(r)
	if err != nil {
		return nil, err
	}
	ids, err := idsIn(recs, len(r.From))
	if err != nil {
		return nil, err
	}
	return t.heldAt(cat, ids, nil, handle)
}

// heldAt returns those of some addresses, each with the prefix length of its block, that a handle holds: under the sequence number
// of each, if there are any.
func (t *txn) heldAt(cat *catalogEntry, ids []netip.Prefix, seqs []uint64, handle string) ([]place, error) {
	f := fetch{t: t}
	for _, id := range ids {
		f.add(id.Masked(), id.Addr())
	}
	if err := f.run(); err != nil {
		return nil, err
	}
	var held []place
	for i, id := range ids {
		be, err := t.block(cat, id.Masked())
		if err != nil {
			return nil, err
		}
		if be.Block == nil {
			continue
		}
		x, err := be.Block.Ordinal(id.Addr())
		if err != nil {
			continue
		}
		if st, a := be.Look(x); st == block.Held {
			g := Guard{Handle: handle}
			if seqs != nil {
				g.Seq = seqs[i]
			}
			if h, ok := a.Find(g); ok {
				held = append(held, place{be, x, h})
			}
		}
	}
	return held, nil
}
