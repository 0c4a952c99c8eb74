package hostlocal

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Del releases all that an attachment holds and returns it, whatever the ranges are now. One that holds nothing is no
// error: the answer is empty. An attachment without holding answers with that of its container without interface.
//
// It returns [ErrBadName], [ErrRecord], ipset.ErrContention and the store's errors. Cost: a few records for each
// address held, however many are taken.
func (e *Engine) Del(ctx context.Context, who Attachment) ([]netip.Addr, error) {
	if err := who.check(); err != nil {
		return nil, e.explain(fault("del", err), "del", who)
	}
	var freed []netip.Addr
	err := e.do(ctx, "del", who, func(t *txn) (err error) {
		if _, err = t.begin(e, e.holders(who)...); err != nil {
			return err
		}
		for _, a := range []Attachment{who, {Container: who.Container}} {
			if freed, err = t.release(a); err != nil || len(freed) > 0 {
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

// release removes an attachment and frees what it holds.
func (t *txn) release(who Attachment) ([]netip.Addr, error) {
	key := t.attachment(who)
	v, err := t.get(key)
	if err != nil || v == "" {
		return nil, err
	}
	h, err := decodeHolding(v)
	if err != nil {
		return nil, err
	}
	var need []string
	for _, a := range h.addresses {
		id, _ := leafOf(a)
		need = append(need, t.address(a), t.page(id))
	}
	if err := t.load(need...); err != nil {
		return nil, err
	}
	for _, a := range h.addresses {
		v, _ := t.get(t.address(a))
		holder, err := decodeHolder(v)
		if err == nil && holder != who {
			err = fmt.Errorf("%w: %s is in the hands of %s", ErrRecord, a, holder)
		}
		if err != nil {
			return nil, err
		}
		t.put(t.address(a), "")
		if err := t.unmark(a); err != nil {
			return nil, err
		}
	}
	t.put(key, "")
	return h.addresses, nil
}

// GC releases what is held by any attachment that is not in valid, and returns it, by attachment. An attachment without
// interface is valid if its container occurs. An empty list releases everything: who has no list must not call.
//
// It works in steps that are a commit each; after an error the steps before it are done, and their result is returned with
// it. It returns [ErrRecord], ipset.ErrContention and the store's errors. An attachment that is added while it runs may be
// released. Cost: linear in the attachments.
func (e *Engine) GC(ctx context.Context, valid []Attachment) ([]Holding, error) {
	keep := make(map[Attachment]bool, 2*len(valid))
	for _, a := range valid {
		keep[a] = true
		keep[Attachment{Container: a.Container}] = true
	}
	if err := e.do(ctx, "gc", Attachment{}, func(t *txn) error { _, err := t.begin(e); return err }); err != nil {
		return nil, err // or attachments of an earlier boot, which are gone anyway, would be counted
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.unlock()
	freed, err := e.sweep(ctx, func(a Attachment, _ holding) bool { return !keep[a] })
	return freed, e.explain(err, "gc", Attachment{})
}

// Holding is an attachment with all that it holds.
type Holding struct {
	Attachment Attachment
	Addresses  []netip.Addr
}

// sweepPage is how many attachments are read at a time.
const sweepPage = 1024

// sweep releases all attachments that a function says go. The function is asked once more in the commit.
func (e *Engine) sweep(ctx context.Context, goes func(Attachment, holding) bool) (freed []Holding, err error) {
	for r := e.all(kindAttachment); ; {
		r.Limit = sweepPage
		recs, _, err := e.store.List(ctx, r)
		if err != nil {
			return freed, err
		}
		var batch []Attachment
		for _, rec := range recs {
			a, err := e.parseAttachment(rec.Key)
			if err != nil {
				return freed, err
			}
			h, err := decodeHolding(rec.Value)
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
func (e *Engine) sweepStep(ctx context.Context, step []Attachment, goes func(Attachment, holding) bool) (freed []Holding, err error) {
	err = e.attempt(ctx, func(t *txn) error {
		freed = freed[:0]
		need := make([]string, 0, len(step))
		for _, a := range step {
			need = append(need, t.attachment(a))
		}
		if err := t.load(need...); err != nil {
			return err
		}
		for _, a := range step {
			v, _ := t.get(t.attachment(a))
			if v == "" {
				continue
			}
			h, err := decodeHolding(v)
			if err != nil {
				return err
			}
			if !goes(a, h) {
				continue
			}
			addrs, err := t.release(a)
			if err != nil {
				return err
			}
			freed = append(freed, Holding{a, addrs})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}
