package txn

import (
	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A caller that keeps a row of a machine beside its address needs both or neither. Its records join the commit of the plan, with
// keys that no record of this package can have.

// Also is the caller's own records on their way through a plan, which writes them in its commit.
type Also struct {
	Ops  []store.Op
	Runs int // how often the plan has run
}

// CheckAlso refuses operations that are not on the caller's own records, or that no commit could carry out. A commit of several
// callers may not fail by what one of them wants.
func (e *Engine) CheckAlso(ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if key, found := occ.NotYours(ops); found {
		return cause.Wrap(ipalloc.Error{Op: "check", Text: key, Err: cause.Invalid("Also", "a key of yours begins with an upper-case letter other than L and X")})
	}
	return store.CheckOps("ipset", ops, e.Limits)
}

// Reserve makes room for the records. After a conflict it finds out whether one of them was the cause: a revision that is not
// the present one will not be so later, so the call ends.
func (a *Also) Reserve(t *Txn) error {
	if len(a.Ops) == 0 {
		return nil
	}
	for _, op := range a.Ops {
		if t.Adds(op.Key) {
			return occ.ErrFirst // a record is written once in a commit
		}
	}
	if a.Runs > 1 {
		if err := t.Expect(a.Ops); err != nil {
			return err
		}
	}
	return t.Room(len(a.Ops))
}

// Write adds the records to the commit. There is room for them.
func (a *Also) Write(t *Txn) {
	for _, op := range a.Ops {
		t.Add(op)
	}
}
