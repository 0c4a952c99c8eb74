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
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A borrowed address is routed apart from its block. A controller that programs routes asks for exactly these, without reading
// all blocks.

// Borrowings carries out the call of that name.
func (e *Reader) Borrowings(ctx context.Context) iter.Seq2[alloc.Borrowing, error] {
	return func(yield func(alloc.Borrowing, error) bool) {
		var err error
		more := true
		r := store.Range{From: record.KindHost, To: record.KindHost + "\xff", Limit: txn.ReadMost}
		pages := e.EachPage(ctx, r, func(recs []store.Record) bool {
			for _, rec := range recs {
				var b alloc.Borrowing
				if b, err = borrowing(rec.Key); err != nil {
					return false
				}
				if more = yield(b, nil); !more {
					return false
				}
			}
			return true
		})
		if err == nil {
			err = pages
		}
		if more && err != nil {
			yield(alloc.Borrowing{}, cause.Wrap(ipalloc.Error{Op: "list", Err: err}))
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
