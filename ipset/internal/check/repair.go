package check

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A repair runs while callers assign and release. Each step names the revisions that the check saw, so a step whose ground has changed
// does nothing, and the next check looks again.

// Repair carries out the call of that name.
func (e *Checker) Repair(ctx context.Context, steps []audit.Step) (done int, err error) {
	if err := e.Run.Current(ctx); err != nil {
		return 0, cause.Wrap(ipalloc.Error{Op: "repair", Err: err})
	}
	var refused []error
	for _, s := range steps {
		changed, err := e.repair(ctx, s)
		switch {
		case err == nil && changed:
			done++
		case err == nil || errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrMismatch): // changed since
		case e.isRefusal(s, err):
			refused = append(refused, cause.Wrap(ipalloc.Error{Op: "repair", Text: s.Text, Err: err}))
		default:
			return done, errors.Join(append(refused, cause.Wrap(ipalloc.Error{Op: "repair", Text: s.Text, Err: err}))...)
		}
	}
	return done, errors.Join(refused...)
}

// isRefusal reports whether an error is about a step and not about the store. A full disk is a limit as well, and no later step passes it.
func (e *Checker) isRefusal(s audit.Step, err error) bool {
	if errors.Is(err, ipalloc.ErrLimit) {
		return len(s.Releases) > 0 || errors.Is(store.CheckOps("ipset", s.Ops, e.Limits), ipalloc.ErrLimit)
	}
	return errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrVersion) || errors.Is(err, ipalloc.ErrInvalid)
}

// repair carries out a step and reports whether it changed something.
func (e *Checker) repair(ctx context.Context, s audit.Step) (bool, error) {
	if len(s.Releases) == 0 {
		return true, e.Run.Write(ctx, s.Ops)
	}
	// A caller that renews a lease of the address or changes its attributes meanwhile uses it.
	released, err := e.ReleaseIf(ctx, alloc.ReleaseArgs{Addresses: s.Releases}, s.Ops)
	return len(released) > 0, err
}

// stepOps is how many records one step of a repair names, on a store that allows no fewer. More would be no faster.
const stepOps = 100
