package occ

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// Stale is the error of a plan whose caller names a revision that a record no longer has. It does not match
// [ipalloc.ErrConflict], because the plan would meet the same conflict each time it is repeated.
type Stale struct{ Key string }

// Error implements error.
func (e *Stale) Error() string { return fmt.Sprintf("%q is at another revision", e.Key) }

// Conflict returns a Stale as the conflict that it is for the caller, and any other error as it is.
func Conflict(pkg string, err error) error {
	if s := (*Stale)(nil); errors.As(err, &s) {
		return store.Conflict(pkg, s.Key)
	}
	return err
}

// Expect returns a [Stale] if a record is not at the revision that an operation expects. It reads them in one round trip.
func (t *Txn) Expect(ops []store.Op) error {
	var keys []string
	var want []uint64
	for _, op := range ops {
		if op.Expect != store.AnyRevision {
			keys, want = append(keys, op.Key), append(want, op.Expect)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	recs, err := t.Records(keys...)
	if err != nil {
		return err
	}
	for i, r := range recs {
		if r.Rev != want[i] {
			return &Stale{r.Key}
		}
	}
	return nil
}

// Join adds operations of the caller to the commit. If again is set, the plan has met a conflict. An expected revision that is not
// the present one will not be so later, so such an operation ends the call with a [Stale].
func (t *Txn) Join(ops []store.Op, again bool) error {
	for _, op := range ops {
		if t.Adds(op.Key) {
			return ErrFirst // a record is written once in a commit
		}
	}
	if again {
		if err := t.Expect(ops); err != nil {
			return err
		}
	}
	t.other = append(t.other, ops...)
	return nil
}

// Write makes a commit of operations as they are, and of nothing else. It returns a conflict if a record is not at the revision
// that its operation expects. As after Do, a commit of unknown outcome is settled before anything else is planned.
func (r *Runner[T]) Write(ctx context.Context, ops []store.Op) error {
	return Conflict(r.txn.pkg, r.Do(ctx, &write[T]{ops: slices.Clone(ops)}))
}

// write is the plan of Write.
type write[T Transaction] struct {
	ops  []store.Op
	runs int
}

// Plan implements [Plan]. A conflict may be about a record that has changed and changed back, or that no operation names. So it
// ends the call only if an expectation has failed.
func (p *write[T]) Plan(x T) error {
	t := x.base()
	if t.plans > 0 {
		return ErrFirst
	}
	if p.runs++; p.runs > 1 {
		if err := t.Expect(p.ops); err != nil {
			return err
		}
	}
	for _, op := range p.ops {
		if op.Kind != store.Guard {
			t.Forget(op.Key)
		}
		t.Add(op)
	}
	t.alone = true
	return nil
}
