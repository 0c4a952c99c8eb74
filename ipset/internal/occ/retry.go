package occ

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
)

// ErrGaveUp is the error of a call that met too many conflicts. It comes with the last one.
var ErrGaveUp = errors.New("gave up after repeated conflicts")

// Retry says how long to wait between attempts. Zero fields mean the default.
type Retry struct {
	// Base is the longest wait before the second retry, 1 ms by default. It doubles for each further retry, up to Max, 100 ms
	// by default.
	Base, Max time.Duration
	// Sleep waits, with a timer by default.
	Sleep func(ctx context.Context, d time.Duration) error
	// Rand draws the waits; by default the process's generator.
	Rand rand.Source
}

// Backoff returns a function that waits before the retry that follows an attempt. The first retry does not wait. Each other
// wait is drawn at random between half of the longest and all of it. One runner uses it at a time.
func Backoff(r Retry) func(ctx context.Context, attempt int) error {
	if r.Base <= 0 {
		r.Base = time.Millisecond
	}
	if r.Max <= 0 {
		r.Max = 100 * time.Millisecond
	}
	if r.Sleep == nil {
		r.Sleep = combine.Sleep
	}
	draw := rand.Int64N
	if r.Rand != nil {
		draw = rand.New(r.Rand).Int64N
	}
	return func(ctx context.Context, attempt int) error {
		if attempt <= 1 {
			return nil
		}
		d := min(r.Base<<min(attempt-2, 20), r.Max)
		return r.Sleep(ctx, d/2+time.Duration(draw(int64(d/2)+1)))
	}
}

// again begins the next attempt after a conflict: it reads the touched records again, all at once, after a wait that
// grows with the conflicts met so far.
func (r *Runner[T]) again(ctx context.Context, tries int, wait bool, conflict error) error {
	keys := r.txn.forget()
	if tries >= r.attempts {
		return fmt.Errorf("%w: %w", ErrGaveUp, conflict)
	}
	if wait {
		if err := r.wait(ctx, tries); err != nil {
			return err
		}
	}
	r.txn.begin(ctx)
	r.txn.again = true
	if len(keys) == 0 {
		return nil // a conflict that a plan made up
	}
	if err := r.txn.Read(keys...); !errors.Is(err, ipalloc.ErrConflict) {
		return err
	}
	return nil // changed again while it was read: the plan reads it, and the next attempt counts that
}
