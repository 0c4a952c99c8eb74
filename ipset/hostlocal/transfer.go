package hostlocal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// State is all that a network holds, for [Engine.Export] and [Engine.Import].
type State struct {
	// Holdings are in the order of [Attachment.Compare].
	Holdings []Holding
	// Cursors are the addresses after which each set goes on, by the number of the set.
	Cursors map[int]netip.Addr
}

// Export returns what the network holds: one consistent view. What a boot before the present one left behind is in it
// unless the engine has leases.
//
// It returns [ErrRecord], ipset.ErrContention and the store's errors. Cost: linear in the attachments.
func (e *Engine) Export(ctx context.Context) (State, error) {
	// Attachments of an earlier boot go first, if they have to.
	if err := e.do(ctx, "export", Attachment{}, func(t *txn) error { _, err := t.begin(e); return err }); err != nil {
		return State{}, err
	}
	recs, _, err := e.store.List(ctx, e.all(0))
	if err != nil {
		return State{}, err
	}
	s := State{Cursors: make(map[int]netip.Addr)}
	for _, r := range recs {
		switch e.kindOf(r.Key) {
		case kindAttachment:
			who, err := e.parseAttachment(r.Key)
			if err != nil {
				return State{}, e.explain(err, "export", Attachment{})
			}
			h, err := decodeHolding(r.Value)
			if err != nil {
				return State{}, e.explain(err, "export", who)
			}
			s.Holdings = append(s.Holdings, Holding{who, h.addresses})
		case kindCursor:
			a, err := decodeCursor(r.Value)
			rest := e.rest(r.Key)
			if err == nil && len(rest) != 4 {
				err = fmt.Errorf("%w: key %q", ErrRecord, r.Key)
			}
			if err != nil {
				return State{}, e.explain(err, "export", Attachment{})
			}
			s.Cursors[int(binary.BigEndian.Uint32([]byte(rest)))] = a
		}
	}
	slices.SortFunc(s.Holdings, func(a, b Holding) int { return a.Attachment.Compare(b.Attachment) })
	return s, nil
}

// Import adds what another allocator of the network has handed out, whatever the sets are. What cannot be taken over is
// left out and returned, one [*Error] for each: [ErrOccupied] for an address that another attachment holds,
// [ErrBadAddress], [ErrBadName]. What is there already, as it is there, is none. The cursors replace those that are there.
//
// It works in steps that are a commit each, cursors last; an error ends it there, and repeating it goes on. It returns
// [ErrRecord], ipset.ErrContention and the store's errors. Cost: linear in what is imported.
func (e *Engine) Import(ctx context.Context, s State) (left []*Error, err error) {
	var good []Holding
	for _, h := range s.Holdings {
		if err := h.Attachment.check(); err != nil {
			left = append(left, e.leftOut(h.Attachment, netip.Addr{}, err))
			continue
		}
		take := Holding{Attachment: h.Attachment}
		for _, a := range h.Addresses {
			if err := addr.CheckAddr(a); err != nil {
				left = append(left, e.leftOut(h.Attachment, a, fmt.Errorf("%w: %w", ErrBadAddress, err)))
				continue
			}
			take.Addresses = append(take.Addresses, a)
		}
		if len(take.Addresses) > 0 {
			good = append(good, take)
		}
	}
	for size := e.stepSize(); len(good) > 0; {
		n := min(size, len(good))
		more, err := e.importStep(ctx, good[:n])
		if errors.Is(err, ipalloc.ErrLimit) && n > 1 {
			size = n / 2
			continue
		}
		if err != nil {
			return left, err
		}
		left, good = append(left, more...), good[n:]
	}
	for set, a := range s.Cursors {
		if err := addr.CheckAddr(a); err != nil || set < 0 || uint64(set) > 1<<32-1 {
			own := e.leftOut(Attachment{}, a, ErrBadAddress)
			own.Set, own.Text = set, "cursor"
			left = append(left, own)
			continue
		}
		err := e.do(ctx, "import", Attachment{}, func(t *txn) error {
			if _, err := t.begin(e, t.cursor(set)); err != nil {
				return err
			}
			t.put(t.cursor(set), encodeCursor(a))
			return nil
		})
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

func (e *Engine) leftOut(who Attachment, a netip.Addr, err error) *Error {
	own := fault("import", err)
	own.Network, own.Attachment, own.Address = e.network, who, a
	return own
}

// importStep adds holdings in one commit.
func (e *Engine) importStep(ctx context.Context, step []Holding) (left []*Error, err error) {
	err = e.do(ctx, "import", Attachment{}, func(t *txn) error {
		left = left[:0]
		var need []string
		for _, h := range step {
			need = append(need, t.attachment(h.Attachment))
			for _, a := range h.Addresses {
				id, _ := leafOf(a)
				need = append(need, t.address(a), t.page(id))
			}
		}
		head, err := t.begin(e, need...)
		if err != nil {
			return err
		}
		for _, h := range step {
			key := t.attachment(h.Attachment)
			var own holding
			if v, _ := t.get(key); v != "" {
				if own, err = decodeHolding(v); err != nil {
					return err
				}
			}
			for _, a := range h.Addresses {
				holder, err := t.take(a, h.Attachment)
				switch {
				case err != nil:
					return err
				case holder == Attachment{}:
					own.addresses, own.epoch = append(own.addresses, a), head.epoch
				case holder != h.Attachment:
					own := e.leftOut(h.Attachment, a, ErrOccupied)
					own.Holder = holder
					left = append(left, own)
				}
			}
			if len(own.addresses) > 0 {
				t.put(key, own.encode())
			}
		}
		return nil
	})
	return left, err
}
