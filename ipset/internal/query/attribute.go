package query

import (
	"context"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// An indexed attribute turns a question over all addresses into one range. Attributes are indexed by choice, because each costs a
// record with every assignment.

// attributeRange returns the keys of the index records of an attribute.
func attributeRange(key, value string) store.Range {
	from := record.KindIndex + key + "\x00" + value
	return store.Range{From: from + "\x00", To: from + "\x01"}
}

// IPsByAttribute carries out the call of that name.
func (e *Reader) IPsByAttribute(ctx context.Context, key, value string) ([]block.Allocation, error) {
	fail := func(err error) ([]block.Allocation, error) {
		return nil, cause.Wrap(ipalloc.Error{Op: "look up", Field: "attribute", Name: key, Err: err})
	}
	if err := block.CheckName("attribute", key); err != nil {
		return fail(err)
	}
	r := attributeRange(key, value)
	recs, _, err := e.Store.List(ctx, r)
	if err != nil {
		return fail(err)
	}
	ids, err := record.IdsIn(recs, len(r.From))
	if err != nil {
		return fail(err)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = record.AddressKey(id.Addr())
	}
	als, err := e.ReadAddresses(ctx, keys, func(al block.Allocation) bool {
		for k, v := range al.Attributes.All() {
			if k == key {
				return v == value
			}
		}
		return false
	})
	if err != nil {
		return fail(err)
	}
	return als, nil
}
