package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// txn is one commit in the making. It names every record that was read with the revision
// it had, so it stands for one moment whatever other engines do. Nothing is cached from
// one to the next.
type txn struct {
	occ.Txn
	keys
}

// plan is a call's part of a transaction.
type plan = occ.Func[*txn]

// newRunner returns what carries out the plans of the engine.
func (e *Engine) newRunner(db store.Store, c Config) *occ.Runner[*txn] {
	return occ.New(&txn{keys: e.keys}, occ.Config{Package: pkg, Store: db, Attempts: e.tries, Wait: c.Wait, Fence: e.fence})
}

// fence chooses the header, because every commit names it.
func (e *Engine) fence(op store.Op) (rank int, value string) {
	if op.Key != e.header() {
		return 0, ""
	}
	return 1, encode(header{})
}

// get returns the content of a record as the transaction has it, the zero T if there is none.
func get[T any, P coded[T]](t *txn, key string) (v T, err error) {
	value, ok, err := t.Get(key)
	if err != nil || !ok {
		return v, err
	}
	return decode[T, P](key, value)
}

// put changes a record that was read; an empty value removes it.
func (t *txn) put(key, value string) {
	if value == "" {
		t.Delete(key)
	} else {
		t.Put(key, value)
	}
}

// touch writes the header even if it does not change.
func (t *txn) touch() error {
	_, ok, err := t.Get(t.header())
	if err == nil && !ok {
		t.put(t.header(), encode(header{}))
	}
	t.Touch(t.header())
	return err
}

// holding returns what an attachment holds.
func (t *txn) holding(who Attachment) (holding, error) { return get[holding](t, t.attachment(who)) }

// holder returns which attachment holds an address; the zero Attachment if it is free.
func (t *txn) holder(a netip.Addr) (Attachment, error) { return get[Attachment](t, t.address(a)) }

// errPurge is returned by a plan that found attachments of an earlier boot, which have
// to go first.
var errPurge = errors.New("hostlocal: purge first")

// begin reads the header and further records in one round trip, and notes a new boot.
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

// do carries out a plan, after the purge if one is due.
func (e *Engine) do(ctx context.Context, op string, who Attachment, p plan) error {
	err := e.attempt(ctx, p)
	for errors.Is(err, errPurge) {
		if err = e.purge(ctx); err == nil {
			err = e.attempt(ctx, p)
		}
	}
	return e.explain(err, op, who)
}

// attempt carries out one plan, with as many commits as it takes.
func (e *Engine) attempt(ctx context.Context, p plan) error {
	err := e.run.Do(ctx, p)
	if errors.Is(err, occ.ErrGaveUp) {
		return fault(err, "", fmt.Sprintf("other writers were faster %d times", e.tries))
	}
	return err
}
