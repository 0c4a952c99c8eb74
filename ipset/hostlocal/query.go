package hostlocal

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// Verify checks that an attachment holds the listed addresses. It ignores a listed
// address outside all sets that the attachment does not hold, because another plugin may
// have allocated it.
//
// It fails with ErrNotFound if the attachment holds nothing. It fails with ErrMismatch
// for the first listed address of a set that the attachment does not hold. It also fails
// with ErrMismatch, with [SetError.Addrs], if addresses are listed and the attachment
// holds none of them. It fails with ErrInvalid for a name, with ErrCorrupt and with the
// store's errors. Cost: one read.
func (e *Engine) Verify(ctx context.Context, who Attachment, listed ...netip.Addr) error {
	if err := who.check(); err != nil {
		return e.explain(err, "verify", who)
	}
	listed = slices.Clone(listed) // the plan may run after the call has returned
	return e.do(ctx, "verify", who, func(t *txn) error {
		if _, err := t.begin(e, e.holders(who)...); err != nil {
			return err
		}
		_, held, err := t.held(who)
		if err == nil {
			var of holding
			_, of, err = t.used(e, who)
			held = append(held, of.addresses...)
		}
		switch {
		case err != nil:
			return err
		case len(held) == 0:
			err, _ := setFault(ipalloc.ErrNotFound, -1, netip.Addr{}, "the attachment holds nothing")
			return err
		}
		found := len(listed) == 0
		for _, a := range listed {
			if slices.Contains(held, a) {
				found = true
				continue
			}
			if set := slices.IndexFunc(e.sets, func(s RangeSet) bool { return s.Contains(a) }); set >= 0 {
				err, _ := setFault(ipalloc.ErrMismatch, set, a, "the attachment does not hold it")
				return err
			}
		}
		if !found {
			err, in := setFault(ipalloc.ErrMismatch, -1, netip.Addr{}, "the attachment holds none of the listed addresses")
			in.Addrs = held
			return err
		}
		return nil
	})
}

// Status returns nil if every set has a free address, so an Add could succeed.
//
// It fails with ErrFull, and [SetError.Set], for the first set without a free address. It
// fails with ErrInvalid for an engine without sets, with ErrCorrupt and with the store's
// errors. Cost: a few records for each set, however many addresses are taken.
func (e *Engine) Status(ctx context.Context) error {
	if err := e.checkSets(); err != nil {
		return e.explain(err, "status", Attachment{})
	}
	return e.do(ctx, "status", Attachment{}, func(t *txn) error {
		if _, err := t.begin(e); err != nil {
			return err
		}
		for i, s := range e.sets {
			a, err := t.pick(s, netip.Addr{})
			if err == nil && !a.IsValid() {
				err, _ := setFault(ipalloc.ErrFull, i, a, "no free address in "+s.String())
				return err
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
