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
	return cause.As("Also", store.CheckOps("ipset", ops, e.Limits))
}

// Join adds the records to the commit. After a conflict it finds out whether one of them was the cause.
func (a *Also) Join(t *Txn) error {
	if len(a.Ops) == 0 {
		return nil
	}
	if err := t.Rooted(); err != nil {
		return err
	}
	return t.Join(a.Ops, a.Runs > 1)
}
