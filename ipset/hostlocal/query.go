package hostlocal

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Verify says whether an attachment holds what it should. Listed are the addresses that the caller believes it has; those
// outside all sets that it does not hold are taken for somebody else's business.
//
// It returns [ErrNotFound] if the attachment holds nothing; [ErrMismatch] naming the first listed address in a set
// that it does not hold, or if addresses are listed and it holds none of them; [ErrBadName], [ErrRecord] and the
// store's errors. Cost: one read.
func (e *Engine) Verify(ctx context.Context, who Attachment, listed ...netip.Addr) error {
	if err := who.check(); err != nil {
		return e.explain(fault("verify", err), "verify", who)
	}
	return e.do(ctx, "verify", who, func(t *txn) error {
		if _, err := t.begin(e, e.holders(who)...); err != nil {
			return err
		}
		_, held, err := t.held(who)
		switch {
		case err != nil:
			return err
		case len(held) == 0:
			return fault("verify", ErrNotFound)
		}
		found := len(listed) == 0
		for _, a := range listed {
			if slices.Contains(held, a) {
				found = true
				continue
			}
			set := slices.IndexFunc(e.sets, func(s RangeSet) bool { return s.RangeOf(a) >= 0 })
			if set >= 0 {
				err := fault("verify", ErrMismatch)
				err.Set, err.Address = set, a
				return err
			}
		}
		if !found {
			err := fault("verify", ErrMismatch)
			err.Addresses = held
			return err
		}
		return nil
	})
}

// Status returns nil if an Add could succeed now: if every set has a free address.
//
// It returns [ErrFull] naming the first set that has none, [ErrNoRanges], [ErrRecord] and the store's errors. Cost: a few
// records for each set, however many addresses are taken.
func (e *Engine) Status(ctx context.Context) error {
	if len(e.sets) == 0 {
		return e.explain(fault("status", ErrNoRanges), "status", Attachment{})
	}
	return e.do(ctx, "status", Attachment{}, func(t *txn) error {
		if _, err := t.begin(e); err != nil {
			return err
		}
		for i, s := range e.sets {
			_, _, ok, err := t.pick(s, netip.Addr{})
			if err != nil {
				return err
			}
			if !ok {
				err := fault("status", ErrFull)
				err.Set = i
				return err
			}
		}
		return nil
	})
}

// Holder returns who holds an address; ok is false if nobody does.
//
// It returns [ErrBadAddress], [ErrRecord] and the store's errors. Cost: one read.
func (e *Engine) Holder(ctx context.Context, a netip.Addr) (who Attachment, ok bool, err error) {
	if err := addr.CheckAddr(a); err != nil {
		own := fault("holder", ErrBadAddress)
		own.Address, own.Text = a, err.Error()
		return who, false, e.explain(own, "holder", who)
	}
	err = e.do(ctx, "holder", Attachment{}, func(t *txn) error {
		if _, err := t.begin(e, t.address(a)); err != nil {
			return err
		}
		v, _ := t.get(t.address(a))
		if who, ok = (Attachment{}), v != ""; !ok {
			return nil
		}
		var err error
		who, err = decodeHolder(v)
		return err
	})
	if err != nil {
		return Attachment{}, false, err
	}
	return who, ok, nil
}

// Count is a number of addresses: Hi * 2^64 + Lo.
type Count = addr.U128

// Usage is how much of a set is used.
type Usage struct {
	// Capacity is the number of addresses that the set can hand out; the gateways are not among them. Used are
	// those of them that are held. Gateways that are held, which happens when the gateway was another one before,
	// are in neither.
	Capacity, Used Count
}

// Stats is what an engine has handed out.
type Stats struct {
	Attachments int
	Addresses   int     // all that is held, also outside the sets
	Sets        []Usage // of the sets as they are now
}

// Stats counts. It returns [ErrRecord] and the store's errors. Cost: linear in the addresses held.
func (e *Engine) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Sets: make([]Usage, len(e.sets))}
	for i, s := range e.sets {
		for _, r := range s {
			n := addr.FromAddr(r.End).Sub(addr.FromAddr(r.Start)).Add(Count{Lo: 1})
			if r.Contains(r.Gateway) {
				n = n.Sub(Count{Lo: 1})
			}
			st.Sets[i].Capacity = st.Sets[i].Capacity.Add(n)
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
					st.Sets[i].Used = st.Sets[i].Used.Add(Count{Lo: 1})
				}
			}
		}
	}
	return st, nil
}
