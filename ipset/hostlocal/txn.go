package hostlocal

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making: the records it has read, and what becomes of them. Every record that was read is
// named in the commit with the revision it had, so that a commit stands for one moment whatever other engines do.
type txn struct {
	keys
	ctx   context.Context
	store store.Store
	cells map[string]*cell
	order []*cell // in the order of reading, which makes commits of equal histories equal
	trips int     // reads so far
	buf   []store.Record
}

// cell is one record: as it was read, and as it is to be. An empty value is no record.
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
			t.cells[k] = &cell{} // so that a key named twice is read once
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

// word returns a page.
func (t *txn) word(id pageID) (uint64, error) {
	key := t.page(id)
	v, err := t.get(key)
	if err != nil {
		return 0, err
	}
	w, err := decodeWord(v)
	if err != nil {
		err = fmt.Errorf("%w %q", err, key)
	}
	return w, err
}

// setWord changes a page that was read.
func (t *txn) setWord(id pageID, w uint64) {
	v := ""
	if w != 0 {
		v = encodeWord(w)
	}
	t.put(t.page(id), v)
}

// commit makes the changes, if what was read is still so. Without a change it verifies what was read, unless that was
// read in one moment.
func (t *txn) commit() error {
	ops := make([]store.Op, 0, len(t.order))
	changed := false
	for _, c := range t.order {
		op := store.Op{Key: c.rec.Key, Expect: c.rec.Rev}
		switch {
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

// errPurge is returned by a plan that found attachments of an earlier boot, which have to go first.
var errPurge = errors.New("hostlocal: purge first")

// do makes a plan and commits it, and again after a conflict. The plan reads and changes records through the
// transaction. If its error is an [*Error], it is an answer: nothing is changed, and it is given once the commit has
// shown that what it rests on is true.
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

// explain completes an error of this package, and makes one of what is wrong with a record.
func (e *Engine) explain(err error, op string, who Attachment) error {
	var own *Error
	switch {
	case errors.As(err, &own):
	case errors.Is(err, ErrRecord):
		own = fault(op, err)
		err = own
	default:
		return err
	}
	own.Op, own.Network, own.Attachment = op, e.network, who
	return err
}

// attempt is one plan, with as many commits as it takes.
func (e *Engine) attempt(ctx context.Context, plan func(*txn) error) error {
	for attempt := 1; ; attempt++ {
		t := &txn{keys: e.keys, ctx: ctx, store: e.store, cells: make(map[string]*cell, 32)}
		answer := plan(t)
		if own := (*Error)(nil); errors.As(answer, &own) {
			t.drop()
		} else if answer != nil {
			return answer
		}
		err := t.commit()
		switch {
		case err == nil:
			return answer
		case !errors.Is(err, ipalloc.ErrConflict):
			return err
		case attempt >= e.retry.Attempts:
			return fmt.Errorf("%w: %w", ipset.ErrContention, err)
		}
		if err := e.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// drop takes back all changes.
func (t *txn) drop() {
	for _, c := range t.order {
		c.value = c.rec.Value
	}
}
