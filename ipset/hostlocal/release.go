package hostlocal

import (
	"context"
	"net/netip"
	"slices"
)

// Del releases and returns all addresses of an attachment, even if the ranges have changed since.
// If the attachment holds none, Del releases those that its container holds without an interface;
// if there are none either, the result is empty.
//
// It returns ErrInvalid for a name, ErrCorrupt, ErrConflict and the store's errors. After an Add
// that ended with ErrUnknownOutcome, Del of the same engine is final: unless the lost commit has
// already been made, Del makes it fail. Cost: a few records for each address held, however many are
// taken.
func (e *Engine) Del(ctx context.Context, who Attachment) ([]netip.Addr, error) {
	if err := who.check(); err != nil {
		return nil, e.explain(err, "del", who)
	}
	var freed []netip.Addr
	err := e.do(ctx, "del", who, func(t *txn) (err error) {
		if _, err = t.begin(e, e.holders(who)...); err != nil {
			return err
		}
		if e.scope != "" {
			if err := t.touch(); err != nil {
				return err
			}
		}
		if freed, err = t.release(who); err == nil && len(freed) == 0 {
			freed, err = t.release(Attachment{Container: who.Container})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// release removes an attachment and frees what it holds.
func (t *txn) release(who Attachment) ([]netip.Addr, error) {
	h, err := t.holding(who)
	if err != nil || len(h.addresses) == 0 {
		return nil, err
	}
	if err := t.Load(t.records(h.addresses)...); err != nil {
		return nil, err
	}
	for _, a := range h.addresses {
		holder, err := t.holder(a)
		if err == nil && holder != who {
			err = corrupt(t.address(a), "held by %q, but %s has it", holder, who)
		}
		if err != nil {
			return nil, err
		}
		t.put(t.address(a), "")
		if err := t.mark(a, false); err != nil {
			return nil, err
		}
	}
	t.put(t.attachment(who), "")
	return h.addresses, nil
}

// records returns the keys of addresses and of their pages of the lowest level.
func (t *txn) records(as []netip.Addr) (need []string) {
	for _, a := range as {
		id, _ := leafOf(a)
		need = append(need, t.address(a), t.page(id))
	}
	return need
}

// GC releases the addresses of every attachment of the engine's scope that is not in valid, and
// returns them by attachment. An attachment without interface is valid if valid names its container.
// With an empty valid, GC releases everything.
//
// It works in steps of one commit each. After an error the earlier steps are done, and their result
// is returned with the error: ErrInvalid for an impossible attachment in valid, before anything is
// released; ErrCorrupt, ErrConflict and the store's errors. GC can also release an attachment that
// is added while it runs. Cost: linear in the attachments.
func (e *Engine) GC(ctx context.Context, valid []Attachment) ([]Holding, error) {
	keep := make(map[Attachment]bool, 2*len(valid))
	for _, a := range valid {
		if err := a.check(); err != nil {
			return nil, e.explain(err, "gc", a)
		}
		keep[a] = true
		keep[Attachment{Container: a.Container}] = true
	}
	// Attachments of an earlier boot are gone anyway and must not be counted.
	err := e.do(ctx, "gc", Attachment{}, func(t *txn) error {
		_, err := t.begin(e)
		if err == nil && e.scope != "" {
			err = t.touch()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	freed, err := e.sweep(ctx, func(a Attachment, h holding) bool { return !keep[a] && h.scope == e.scope })
	return freed, e.explain(err, "gc", Attachment{})
}

// Holding is an attachment with all its addresses.
type Holding struct {
	Attachment Attachment
	Addresses  []netip.Addr
	// Scope is the scope of the engine that added it. Import does not read it.
	Scope string
}

// sweepPage is how many attachments are read at a time.
const sweepPage = 1024

// sweep releases the attachments for which goes returns true. The commit asks again.
func (e *Engine) sweep(ctx context.Context, goes func(Attachment, holding) bool) (freed []Holding, err error) {
	for r := e.all(kindAttachment); ; {
		r.Limit = sweepPage
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return freed, err
		}
		var batch []Attachment
		for _, rec := range recs {
			a, h, err := e.parseAttachment(rec)
			if err != nil {
				return freed, err
			}
			if goes(a, h) {
				batch = append(batch, a)
			}
		}
		for step := range slices.Chunk(batch, e.stepSize()) {
			done, err := e.sweepStep(ctx, step, goes)
			freed = append(freed, done...)
			if err != nil {
				return freed, err
			}
		}
		if len(recs) < sweepPage {
			return freed, nil
		}
		r.From = recs[len(recs)-1].Key + "\x00"
	}
}

// stepSize is how many attachments go into one commit.
func (e *Engine) stepSize() int {
	if most := e.store.Limits().Ops; most > 0 {
		return max(1, most/16) // two addresses with a record, a leaf and some pages above each, and the header
	}
	return sweepPage
}

// sweepStep releases attachments in one commit.
func (e *Engine) sweepStep(ctx context.Context, step []Attachment, goes func(Attachment, holding) bool) ([]Holding, error) {
	var freed []Holding
	need := []string{e.header()}
	for _, a := range step {
		need = append(need, e.attachment(a))
	}
	err := e.attempt(ctx, func(t *txn) error {
		freed = nil
		if err := t.Load(need...); err != nil {
			return err
		}
		if _, _, err := t.Get(t.header()); err != nil { // every commit names it
			return err
		}
		for _, a := range step {
			h, err := t.holding(a)
			if err == nil && len(h.addresses) > 0 && goes(a, h) {
				if _, err = t.release(a); err == nil {
					freed = append(freed, Holding{a, h.addresses, h.scope})
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}
