package ipset

import (
	"context"
	"iter"
)

// Borrowings yields the borrowed addresses, by host, then in address order; an error is the last thing it yields. It reads index
// records alone, a page at a time: the cost is the number of borrowed addresses, whatever else is held. No snapshot.
func (e *Engine) Borrowings(ctx context.Context) iter.Seq2[Borrowing, error] {
	return e.query.Borrowings(ctx)
}
