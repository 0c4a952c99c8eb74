package hostlocal

import (
	"context"
	"net/netip"
)

// Del releases and returns all addresses of an attachment, even if the ranges have
// changed since. If the attachment holds none, Del releases the addresses that its
// container holds without an interface. If there are none either, the result is empty. A
// key that the attachment uses keeps its addresses, out of use; see [Engine.AddKey].
//
// It fails with ErrInvalid for a name, with ErrCorrupt, with ErrConflict and with the
// store's errors. After an Add that failed with ErrUnknownOutcome, Del of the same engine
// is final: if the lost commit has not been made yet, Del makes it fail. Cost: a few
// records for each released address, however many are taken.
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
		if err == nil {
			err = t.endUse(e, who)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// release removes an attachment and frees its addresses.
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
	if h.user != (Attachment{}) {
		if err := t.Load(t.use(h.user)); err != nil {
			return nil, err
		}
		if _, _, err := t.Get(t.use(h.user)); err != nil {
			return nil, err
		}
		t.put(t.use(h.user), "")
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
