package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making: the records it has read and their new values. The
// commit names every record that was read with the revision it had, so it stands for
// one moment whatever other engines do.
type txn struct {
	keys
	ctx   context.Context
	store store.Store
	fence bool // write the header even if it does not change
	cells map[string]*cell
	order []*cell // in the order of reading: equal histories make equal commits
	trips int     // reads so far
	buf   []store.Record
}

// cell is one record: as it was read, and its new value. An empty value is no record.
type cell struct {
	rec   store.Record
	value string
}

// load reads those of the records that are not known yet, in one round trip.
func (t *txn) load(keys ...string) error {
	missing := make([]string, 0, len(keys))
	for _, k := range keys {
		if t.cells[k] == nil {
			missing = append(missing, k)
			t.cells[k] = &cell{} // a key named twice is read once
		}
	}
	if len(missing) == 0 {
		return nil
	}
	recs, err := t.store.Get(t.ctx, t.buf[:0], missing...)
	if err != nil {
		return err
	}
	t.trips++
	t.buf = recs
	for _, r := range recs {
		c := t.cells[r.Key]
		c.rec, c.value = r, r.Value
		t.order = append(t.order, c)
	}
	return nil
}

// get returns a record's value as the transaction has it.
func (t *txn) get(key string) (string, error) {
	if c := t.cells[key]; c != nil {
		return c.value, nil
	}
	if err := t.load(key); err != nil {
		return "", err
	}
	return t.cells[key].value, nil
}

// put changes a record that was read; an empty value removes it.
func (t *txn) put(key, value string) { t.cells[key].value = value }

// holding returns what an attachment holds.
func (t *txn) holding(who Attachment) (h holding, err error) {
	key := t.attachment(who)
	v, err := t.get(key)
	if err == nil && v != "" {
		h, err = decodeHolding(key, v)
	}
	return h, err
}

// holder returns which attachment holds an address; the zero Attachment if it is free.
func (t *txn) holder(a netip.Addr) (who Attachment, err error) {
	key := t.address(a)
	v, err := t.get(key)
	if err == nil && v != "" {
		who, err = decodeHolder(key, v)
	}
	return who, err
}

// commit makes the changes if every record is still as it was read. Without a change
// it verifies what was read, unless one round trip read it all.
func (t *txn) commit() error {
	ops := make([]store.Op, 0, len(t.order))
	changed := false
	for _, c := range t.order {
		op := store.Op{Key: c.rec.Key, Expect: c.rec.Rev}
		switch {
		case t.fence && c.rec.Key == t.header() && c.value == "":
			op.Kind, op.Value, changed = store.Put, header{}.encode(), true
		case t.fence && c.rec.Key == t.header():
			op.Kind, op.Value, changed = store.Put, c.value, true
		case c.value == c.rec.Value:
		case c.value == "":
			op.Kind, changed = store.Delete, true
		default:
			op.Kind, op.Value, changed = store.Put, c.value, true
		}
		ops = append(ops, op)
	}
	if !changed && t.trips <= 1 {
		return nil
	}
	_, err := t.store.Commit(t.ctx, ops)
	return err
}

// errPurge is returned by a plan that found attachments of an earlier boot, which have
// to go first.
var errPurge = errors.New("hostlocal: purge first")

// begin reads the header and further records in one round trip, and notes a new boot.
func (t *txn) begin(e *Engine, keys ...string) (header, error) {
	key := t.header()
	t.fence = e.unsettled
	if err := t.load(append(keys, key)...); err != nil {
		return header{}, err
	}
	v, _ := t.get(key)
	h, err := decodeHeader(key, v)
	if err != nil {
		return h, err
	}
	if e.boot != "" && h.boot != e.boot {
		if h.boot != "" {
			h.epoch++
		}
		h.boot = e.boot
		t.put(key, h.encode())
	}
	if e.leases && h.purged < h.epoch {
		return h, errPurge
	}
	return h, nil
}

// do makes a plan and commits it, again after each conflict. The plan reads and
// changes records through the transaction. An error of this package is an answer: it
// changes nothing, and is returned once the commit has verified what it rests on.
func (e *Engine) do(ctx context.Context, op string, who Attachment, plan func(*txn) error) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	err := e.attempt(ctx, plan)
	for errors.Is(err, errPurge) {
		if err = e.purge(ctx); err == nil {
			err = e.attempt(ctx, plan)
		}
	}
	return e.explain(err, op, who)
}

// attempt carries out one plan, with as many commits as it takes.
func (e *Engine) attempt(ctx context.Context, plan func(*txn) error) error {
	for attempt := 1; ; attempt++ {
		t := &txn{keys: e.keys, ctx: ctx, store: e.store, cells: make(map[string]*cell, 32)}
		answer := plan(t)
		if own(answer) != nil {
			for _, c := range t.order {
				c.value = c.rec.Value
			}
		} else if answer != nil {
			return answer
		}
		err := t.commit()
		switch {
		case err == nil:
			e.unsettled = e.unsettled && !t.fence
			return answer
		case !errors.Is(err, ipalloc.ErrConflict):
			e.unsettled = e.unsettled || errors.Is(err, ipalloc.ErrUnknownOutcome)
			return err
		case attempt >= e.tries:
			return fault(err, "", fmt.Sprintf("other writers were faster %d times", attempt))
		}
		if err := e.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// wait sleeps before the retry that follows an attempt; after the first it does not.
func wait(ctx context.Context, attempt int) error {
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
