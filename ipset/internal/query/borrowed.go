package query

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A borrowed address is routed apart from its block. A controller that programs routes asks for exactly these, without reading
// all blocks.

// Borrowings carries out the call of that name.
func (e *Reader) Borrowings(ctx context.Context) iter.Seq2[alloc.Borrowing, error] {
	return func(yield func(alloc.Borrowing, error) bool) {
		for recs, err := range e.Pages(ctx, store.Range{From: record.KindHost, To: record.KindHost + "\xff"}) {
			for _, rec := range recs {
				var b alloc.Borrowing
				if b, err = borrowing(rec.Key); err != nil {
					break
				}
				if !yield(b, nil) {
					return
				}
			}
			if err != nil {
				yield(alloc.Borrowing{}, cause.Op("list", err))
				return
			}
		}
	}
}

// borrowing reads the key of an index record of a host.
func borrowing(key string) (alloc.Borrowing, error) {
	code, id, _ := strings.Cut(key[1:], "\x00")
	host, err := block.OwnerOf(code)
	at, ok := record.ParseID(id)
	if err != nil || !ok {
		return alloc.Borrowing{}, fmt.Errorf("%w: key %q", ipalloc.ErrCorrupt, key)
	}
	return alloc.Borrowing{Host: host, Address: at.Addr(), Block: at.Masked()}, nil
}
