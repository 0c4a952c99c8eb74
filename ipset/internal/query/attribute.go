package query

import (
	"context"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An index turns a question over all addresses into one range. Attributes are indexed by choice, because each costs a record with every
// assignment; sharing keys always are, because shared addresses are few.

// IPsByAttribute carries out the call of that name.
func (e *Reader) IPsByAttribute(ctx context.Context, key, value string) ([]alloc.Allocation, error) {
	return e.indexed(ctx, "attribute", key, record.KindIndex+key+"\x00"+value, func(al alloc.Allocation) bool {
		for k, v := range al.Attributes.All() {
			if k == key {
				return v == value
			}
		}
		return false
	})
}

// IPsByShare carries out the call of that name.
func (e *Reader) IPsByShare(ctx context.Context, key string) ([]alloc.Allocation, error) {
	return e.indexed(ctx, "sharing key", key, record.KindShare+key, func(al alloc.Allocation) bool { return al.Share().Key == key })
}

// indexed returns the holders that keep accepts, of the addresses whose index records begin with a prefix. what and name are the argument.
func (e *Reader) indexed(ctx context.Context, what, name, prefix string, keep func(alloc.Allocation) bool) ([]alloc.Allocation, error) {
	fail := func(err error) ([]alloc.Allocation, error) {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Name: name, Err: err})
	}
	if err := cause.Name(what, name); err != nil {
		return fail(err)
	}
	recs, _, err := e.Store.List(ctx, store.Range{From: prefix + "\x00", To: prefix + "\x01"})
	if err != nil {
		return fail(err)
	}
	ids, err := record.IdsIn(recs, len(prefix)+1)
	if err != nil {
		return fail(err)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = record.AddressKey(id.Addr())
	}
	als, err := e.ReadAddresses(ctx, keys, keep)
	if err != nil {
		return fail(err)
	}
	return als, nil
}
