package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A network keeps headers and cursors after its last address is released, so its sets
// continue where they stopped. Remove deletes those too, which a store needs if networks
// are added and removed.

// Remove deletes every record of a network without held addresses, in all of its scopes.
// It is idempotent, and the network may be used again. A concurrent Add either keeps
// Remove from deleting its scope, or is retried afterwards.
//
// It fails with ErrInUse if an attachment holds addresses; Holder names the first such
// attachment, and Addr an address of it. It fails with ErrConflict if every attempt
// conflicts with other engines, with ErrCorrupt and with the store's errors. If it fails,
// some cursors may have been deleted already; repeat the call. In [store.Together] it
// fails with ErrInvalid. Cost: linear in the scopes and sets; two commits, more if one
// cannot hold them all.
func (e *Engine) Remove(ctx context.Context) error {
	var err error
	if e.store.Limits().Deferred { // no Add would see the marks
		err = fault(ipalloc.ErrInvalid, "store", "not in store.Together: it takes commits of its own")
	} else if e.leases { // attachments of an earlier boot go first
		err = e.do(ctx, "remove", Attachment{}, func(t *txn) error { _, err := t.begin(e); return err })
	}
	for step, more := 1, true; more && err == nil; step++ {
		more, err = e.removeStep(ctx)
		again := errors.Is(err, ipalloc.ErrConflict) || more && step > 1 // Adds have cleared the marks before they were read
		last := step == 2*e.tries                                        // an attempt marks, and then deletes
		switch {
		case again && !last:
			more, err = true, e.wait(ctx, (step+1)/2)
		case again && more:
			err = fault(ipalloc.ErrConflict, "", fmt.Sprintf("other writers were faster %d times", e.tries))
		}
	}
	return e.explain(err, "remove", Attachment{})
}

// heldBy returns ErrInUse with the attachment of a record, or an error for an unreadable
// record.
func (e *Engine) heldBy(r store.Record) error {
	who, h, err := e.parseAttachment(r)
	if err == nil {
		in, _ := setFault(ipalloc.ErrInUse, -1, h.addresses[0], "an attachment holds addresses")
		in.Holder, err = who.String(), in
	}
	return err
}

// removeStep marks the headers of all scopes. When all are marked and nothing is held, it
// deletes every record. An Add since the mark has written the header of its scope, which
// then has another revision.
func (e *Engine) removeStep(ctx context.Context) (more bool, err error) {
	if err := e.run.Current(ctx); err != nil {
		return false, err
	}
	recs, _, err := e.store.List(ctx, e.all(0))
	if err != nil {
		return false, err
	}
	var mark, drop []store.Op // cursors come before headers
	for _, r := range recs {
		switch kind, _ := e.split(r.Key); kind {
		case kindAttachment:
			return false, e.heldBy(r)
		case kindHeader:
			h, err := decode[header](r.Key, r.Value)
			if err != nil {
				return false, err
			}
			if !h.closing {
				h.closing = true
				mark = append(mark, store.Op{Kind: store.Put, Key: r.Key, Value: encode(h), Expect: r.Rev})
			}
		case kindCursor:
		default:
			err = corrupt(r.Key, "nothing is held")
		}
		drop = append(drop, store.Op{Kind: store.Delete, Key: r.Key, Expect: r.Rev})
	}
	if len(mark) > 0 {
		drop = mark
	} else if err != nil {
		return false, err // no attachment explains a record
	}
	size := sweepPage
	if most := e.store.Limits().Ops; most > 0 {
		size = most
	}
	for part := range slices.Chunk(drop, size) {
		if err := e.run.Write(ctx, part); err != nil {
			return false, err
		}
	}
	return len(mark) > 0, nil
}
