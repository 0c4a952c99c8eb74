package faults

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Silent is a store whose commits do not say that the context has ended. A suite that ends contexts fails for it.
type Silent struct{ store.Store }

// Commit implements [store.Store].
func (s Silent) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if ctx.Err() != nil {
		return 0, errors.New("not made")
	}
	return s.Store.Commit(ctx, ops)
}
