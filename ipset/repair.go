package ipset

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Step is one commit of a repair: it restores derived records, or releases addresses.
type Step struct {
	Text string
	// Ops name the revisions that were checked. With Releases they are guards alone.
	Ops      []store.Op
	Releases []Release
}

// Repair carries out the steps of a report, each in a commit of its own on the revisions that were checked, and returns the
// number of steps done. It leaves out a step whose records have changed; the next check looks at them again. It goes on after a
// step that is refused otherwise, such as with [ipalloc.ErrCorrupt], and returns those errors together at the end. Any other
// error ends it.
func (e *Engine) Repair(ctx context.Context, steps []Step) (done int, err error) {
	if err := e.run.Current(ctx); err != nil {
		return 0, wrap(ipalloc.Error{Op: "repair", Err: err})
	}
	var refused []error
	for _, s := range steps {
		changed, err := e.repair(ctx, s)
		switch {
		case err == nil && changed:
			done++
		case err == nil || errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrMismatch): // changed since
		case isRefusal(err):
			refused = append(refused, wrap(ipalloc.Error{Op: "repair", Text: s.Text, Err: err}))
		default:
			return done, errors.Join(append(refused, wrap(ipalloc.Error{Op: "repair", Text: s.Text, Err: err}))...)
		}
	}
	return done, errors.Join(refused...)
}

// isRefusal reports whether an error is about a step and not about the store.
func isRefusal(err error) bool {
	for _, is := range []error{ipalloc.ErrLimit, ipalloc.ErrCorrupt, ipalloc.ErrInvalid} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// repair carries out a step and reports whether it changed something.
func (e *Engine) repair(ctx context.Context, s Step) (bool, error) {
	if len(s.Releases) == 0 {
		return true, e.run.Write(ctx, s.Ops)
	}
	// A caller that renews a lease of the address or changes its attributes meanwhile uses it.
	p := releaseAllPlan{args: ReleaseArgs{Addresses: s.Releases}, guards: s.Ops}
	err := occ.Conflict("ipset", e.do(ctx, &p))
	return len(p.released) > 0, err
}

// stepOps is how many records one step of a repair names, on a store that allows no fewer. More would be no faster.
const stepOps = 100

// fitting returns how many operations a commit takes beside some others, at least one; most bounds those of all.
func fitting(l store.Limits, most int, ops []store.Op, beside ...store.Op) int {
	if l.Ops > 0 {
		most = min(most, l.Ops)
	}
	bytes := 0
	for _, op := range beside {
		bytes += len(op.Key) + len(op.Value)
	}
	for i, op := range ops {
		bytes += len(op.Key) + len(op.Value)
		if i > 0 && (i+len(beside) >= most || l.Bytes > 0 && bytes > l.Bytes) {
			return i
		}
	}
	return len(ops)
}
