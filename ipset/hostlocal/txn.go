package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making. It names every record that it read, with its revision,
// so its answer holds at one moment even if other engines change records. It caches
// nothing for the next transaction.
type txn struct {
	occ.Txn
	keys
}

// plan is a call's part of a transaction.
type plan = occ.Func[*txn]

// newRunner returns the runner of the engine's plans.
func (e *Engine) newRunner(db store.Store) *occ.Runner[*txn] {
	return occ.New(&txn{keys: e.keys}, occ.Config{Package: pkg, Store: db, Attempts: e.tries, Wait: e.wait, Fence: e.fence})
}

// fence chooses the header, because every commit names it. A header that does not exist
// yet may be deleted again, but nothing is granted on it.
func (e *Engine) fence(op store.Op) (rank int, value string) {
	if op.Key != e.header() || op.Expect == 0 {
		return 0, ""
	}
	return 1, ""
}

// get returns the content of a record as the transaction has it, the zero T if there is
// none.
func get[T any, P coded[T]](t *txn, key string) (v T, err error) {
	value, ok, err := t.Get(key)
	if err != nil || !ok {
		return v, err
	}
	return decode[T, P](key, value)
}

// put changes a record that the transaction has read; an empty value removes it.
func (t *txn) put(key, value string) {
	if value == "" {
		t.Delete(key)
	} else {
		t.Put(key, value)
	}
}

// touch writes the header even if it does not change. Without a header, no commit that
// grants can be in flight.
func (t *txn) touch() error {
	_, _, err := t.Get(t.header())
	t.Touch(t.header())
	return err
}

// holding returns the holding of an attachment.
func (t *txn) holding(who Attachment) (holding, error) { return get[holding](t, t.attachment(who)) }

// holder returns the attachment that holds an address; the zero Attachment if it is free.
func (t *txn) holder(a netip.Addr) (Attachment, error) { return get[Attachment](t, t.address(a)) }

// A plan returns errPurge if it found attachments of an earlier boot, which must be
// released first.
var errPurge = errors.New("hostlocal: purge first")

// A plan that grants returns errNoHeader if the scope has no header, which must be
// written first.
var errNoHeader = errors.New("hostlocal: no header")

// grant is begin for a plan that allocates addresses or moves a cursor.
func (t *txn) grant(e *Engine, keys ...string) (header, error) {
	h, err := t.begin(e, keys...)
	if err == nil && t.Known(t.header()).Rev == 0 {
		err = errNoHeader
	}
	if err == nil && h.closing {
		h.closing = false
		t.put(t.header(), encode(h))
	}
	return h, err
}

// begin reads the header and further records in one round trip, and records a new boot.
func (t *txn) begin(e *Engine, keys ...string) (header, error) {
	key := t.header()
	if err := t.Load(append(keys, key)...); err != nil {
		return header{}, err
	}
	h, err := get[header](t, key)
	if err != nil {
		return h, err
	}
	if e.boot != "" && h.boot != e.boot {
		if h.boot != "" {
			h.epoch++
		}
		h.boot = e.boot
		t.put(key, encode(h))
	}
	if e.leases && h.purged < h.epoch {
		return h, errPurge
	}
	return h, nil
}

// do carries out a plan, after any purge or header that it needs first.
func (e *Engine) do(ctx context.Context, op string, who Attachment, p plan) error {
	for {
		err := e.attempt(ctx, p)
		switch {
		case errors.Is(err, errPurge):
			err = e.purge(ctx)
		case errors.Is(err, errNoHeader):
			err = e.run.Write(ctx, []store.Op{{Kind: store.Put, Key: e.header(), Value: encode(header{boot: e.boot})}})
			if errors.Is(err, ipalloc.ErrConflict) {
				err = nil // another engine was faster
			}
		default:
			return e.explain(err, op, who)
		}
		if err != nil {
			return e.explain(err, op, who)
		}
	}
}

// attempt carries out one plan, in as many commits as needed.
func (e *Engine) attempt(ctx context.Context, p plan) error {
	err := e.run.Do(ctx, p)
	if errors.Is(err, occ.ErrGaveUp) {
		return fault(err, "", fmt.Sprintf("other writers were faster %d times", e.tries))
	}
	return err
}
