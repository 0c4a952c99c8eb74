package hostlocal

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Verify checks that an attachment holds the listed addresses. A listed address outside
// all sets that the attachment does not hold is ignored, because another plugin may have
// given it.
//
// It returns ErrNotFound if the attachment holds nothing; ErrMismatch for the first
// listed address of a set that it does not hold, or, with [SetError.Addrs], if addresses
// are listed and it holds none of them; ErrInvalid for a name, ErrCorrupt and the
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

// Status returns nil if every set has a free address, so that an Add could succeed.
//
// It returns ErrFull, with [SetError.Set], for the first set that has none, ErrInvalid
// for an engine without sets, ErrCorrupt and the store's errors. Cost: a few records for
// each set, however many addresses are taken.
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

// Holder returns which attachment holds an address; ok is false if it is free.
//
// It returns ErrInvalid for the address, ErrCorrupt and the store's errors. Cost: one
// read.
func (e *Engine) Holder(ctx context.Context, a netip.Addr) (who Attachment, ok bool, err error) {
	if err := checkAddr(a); err != nil {
		return who, false, e.explain(err, "holder", who)
	}
	var found Attachment
	err = e.do(ctx, "holder", Attachment{}, func(t *txn) (err error) {
		if _, err = t.begin(e, t.address(a)); err == nil {
			found, err = t.holder(a)
		}
		return err
	})
	if err != nil {
		return Attachment{}, false, err
	}
	return found, found != Attachment{}, nil
}

// Usage is how much of a set is used.
type Usage struct {
	// Capacity is the number of addresses that the set can hand out, without gateways; at
	// most 2^64-1. Used is how many of them are held. A gateway that is held, because the
	// gateway was another address before, is in neither.
	Capacity uint64
	Used     int
}

// Stats counts what a network holds.
type Stats struct {
	Attachments int
	Addresses   int     // all that are held, also outside the sets
	Sets        []Usage // of the engine's sets
}

// Stats counts. It returns ErrCorrupt and the store's errors. Cost: linear in the
// addresses held.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Sets: make([]Usage, len(e.sets))}
	for i, s := range e.sets {
		for _, r := range s {
			n := addr.FromAddr(r.End).Sub(addr.FromAddr(r.Start))
			if !r.Contains(r.Gateway) {
				n = n.Add(addr.U128{Lo: 1})
			}
			if n = n.Add(addr.U128{Lo: st.Sets[i].Capacity}); n.Hi > 0 {
				n.Lo = math.MaxUint64
			}
			st.Sets[i].Capacity = n.Lo
		}
	}
	state, err := e.Export(ctx)
	if err != nil {
		return Stats{}, err
	}
	st.Attachments = len(state.Holdings)
	for _, h := range state.Holdings {
		st.Addresses += len(h.Addresses)
		for _, a := range h.Addresses {
			for i, s := range e.sets {
				if k := s.RangeOf(a); k >= 0 && s[k].Gateway != a {
					st.Sets[i].Used++
				}
			}
		}
	}
	return st, nil
}
