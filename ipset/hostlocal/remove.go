package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A network keeps headers and cursors after its last address is released, so that its sets continue where they stopped.
// Remove deletes those too, for stores whose networks come and go.

// Remove deletes every record of a network in which nothing is held, in all of its scopes. It is idempotent, and the network
// may be used again. A concurrent Add either keeps Remove from deleting its scope, or is retried afterwards.
//
// It returns ErrInUse, with Holder and Addr, for the first attachment that holds something; ErrCorrupt; ErrConflict if other
// engines were faster each time; and the store's errors. If it fails, the positions of some sets may be deleted already;
// repeat the call. In [store.Together] it fails with ErrInvalid. Cost: linear in the scopes and sets; two commits, more if
// one cannot hold them all.
func (e *Engine) Remove(ctx context.Context) error { return e.close(ctx, "remove", e.removeStep) }

// CloseScope closes the engine's scope if no attachment of the scope holds anything: from then on, every Add and Import in
// it, also one in flight, fails with ErrClosed until [Engine.OpenScope]. It is idempotent. Remove also deletes a closed
// scope, which is then open again.
//
// It returns the errors of Remove. Cost: linear in the attachments of the network, two commits.
func (e *Engine) CloseScope(ctx context.Context) error {
	return e.close(ctx, "closescope", e.closeStep)
}

// OpenScope undoes CloseScope. It returns ErrCorrupt, ErrConflict and the store's errors.
func (e *Engine) OpenScope(ctx context.Context) error {
	return e.do(ctx, "openscope", Attachment{}, func(t *txn) error {
		h, err := t.begin(e)
		if err == nil && h.closed {
			h.closed = false
			t.put(t.header(), encode(h))
		}
		return err
	})
}

// close carries out the two steps of Remove or CloseScope: one that marks, and one that finds the marks as they were.
func (e *Engine) close(ctx context.Context, op string, stepOf func(context.Context) (bool, error)) error {
	var err error
	if e.store.Limits().Deferred { // no Add would see the marks
		err = fault(ipalloc.ErrInvalid, "store", "not in store.Together: it takes commits of its own")
	} else if e.leases { // attachments of an earlier boot go first
		err = e.do(ctx, op, Attachment{}, func(t *txn) error { _, err := t.begin(e); return err })
	}
	for step, more := 1, true; more && err == nil; step++ {
		more, err = stepOf(ctx)
		again := errors.Is(err, ipalloc.ErrConflict) || more && step > 1 // Adds have cleared the marks before they were read
		last := step == 2*e.tries                                        // an attempt marks, and then deletes
		switch {
		case again && !last:
			more, err = true, e.wait(ctx, (step+1)/2)
		case again && more:
			err = fault(ipalloc.ErrConflict, "", fmt.Sprintf("other writers were faster %d times", e.tries))
		}
	}
	return e.explain(err, op, Attachment{})
}

// closeStep marks the header of the scope, and, when it is marked and nothing is held in the scope, closes it.
func (e *Engine) closeStep(ctx context.Context) (more bool, err error) {
	if err := e.run.Current(ctx); err != nil {
		return false, err
	}
	recs, _, err := e.store.List(ctx, e.all(0))
	if err != nil {
		return false, err
	}
	h, op := header{boot: e.boot}, store.Op{Kind: store.Put, Key: e.header()}
	for _, r := range recs {
		switch kind, _ := e.split(r.Key); {
		case kind == kindAttachment:
			if err := e.heldBy(r, func(h holding) bool { return h.scope == e.scope }); err != nil {
				return false, err
			}
		case r.Key == op.Key:
			op.Expect = r.Rev
			if h, err = decode[header](r.Key, r.Value); err != nil || h.closed {
				return false, err
			}
		}
	}
	more = !h.closing
	h.closing, h.closed = more, !more
	op.Value = encode(h)
	return more, e.run.Write(ctx, []store.Op{op})
}

// heldBy returns ErrInUse if a record is that of an attachment that is meant, or says why it cannot be read.
func (e *Engine) heldBy(r store.Record, meant func(holding) bool) error {
	who, h, err := e.parseAttachment(r)
	if err == nil && meant(h) {
		in, _ := setFault(ipalloc.ErrInUse, -1, h.addresses[0], "an attachment holds addresses")
		in.Holder, err = who.String(), in
	}
	return err
}

// removeStep marks the headers of all scopes, and, when all are marked and nothing is held, deletes every record. An Add since
// the mark has written the header of its scope, which is then at another revision.
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
			return false, e.heldBy(r, func(holding) bool { return true })
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
