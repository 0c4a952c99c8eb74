package query

import (
	"context"
	"net/netip"

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
	return e.named(ctx, "attribute", key, record.KindIndex+key+"\x00"+value, func(al alloc.Allocation) bool {
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
	return e.named(ctx, "sharing key", key, record.KindShare+key, func(al alloc.Allocation) bool { return al.Share().Key == key })
}

// named returns the holders that keep accepts, of the addresses whose index records begin with a prefix. what and name are the argument.
func (e *Reader) named(ctx context.Context, what, name, prefix string, keep func(alloc.Allocation) bool) (als []alloc.Allocation, err error) {
	if err = cause.Name(what, name); err == nil {
		als, err = e.indexed(ctx, store.Range{From: prefix + "\x00", To: prefix + "\x01"}, keep)
	}
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Name: name, Err: err})
	}
	return als, nil
}

// indexed returns the holders that keep accepts, of the addresses that the index records of a range name.
func (e *Reader) indexed(ctx context.Context, r store.Range, keep func(alloc.Allocation) bool) ([]alloc.Allocation, error) {
	ids, err := e.IDs(ctx, nil, r)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = record.AddressKey(id.Addr())
	}
	return e.ReadAddresses(ctx, keys, keep)
}

// IDs appends the addresses that the index records of a range name, each with the prefix length of its block, to ids, which is empty.
func (e *Reader) IDs(ctx context.Context, ids []netip.Prefix, r store.Range) ([]netip.Prefix, error) {
	recs, _, err := e.Store.List(ctx, r)
	if err != nil {
		return nil, err
	}
	return record.IdsIn(ids, recs, len(r.From))
}
