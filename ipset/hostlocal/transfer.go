package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// State is all holdings and cursors of a network, for [Engine.Export] and
// [Engine.Import].
type State struct {
	// Holdings are in the order of [Attachment.Compare].
	Holdings []Holding
	// Cursors are the last addresses that the sets allocated, by the number of the set.
	Cursors map[int]netip.Addr
}

// Networks yields the names of the networks that have records in a store, in byte order. An error is the last thing that it yields:
// ErrInvalid for a nil store, or the store's. Cost: a record for each network.
func Networks(ctx context.Context, db store.Store) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if absent.Is(db) {
			err := fault(ipalloc.ErrInvalid, "db", "is nil")
			err.Op = "networks"
			yield("", err)
			return
		}
		r := store.Range{From: "L", To: "M", Limit: 1}
		for {
			recs, _, err := db.List(ctx, r)
			if err != nil {
				yield("", err)
				return
			}
			if len(recs) == 0 {
				return
			}
			name, _, known := strings.Cut(recs[0].Key[1:], "\x00")
			r.From = "L" + name + "\x01"
			if known && !yield(name, nil) {
				return
			}
		}
	}
}

// Export returns the network's state in one consistent view. It includes attachments made
// before the last reboot, unless the engine has Leases.
//
// It fails with ErrCorrupt, with ErrConflict and with the store's errors. Cost: linear in
// the attachments.
func (e *Engine) Export(ctx context.Context) (State, error) {
	// With Leases, first release the attachments of an earlier boot.
	if err := e.do(ctx, "export", Attachment{}, func(t *txn) error { _, err := t.begin(e); return err }); err != nil {
		return State{}, err
	}
	recs, _, err := e.store.List(ctx, e.all(0))
	s := State{Cursors: make(map[int]netip.Addr)}
	for _, r := range recs {
		switch kind, _ := e.split(r.Key); kind {
		case kindAttachment:
			who, h, bad := e.parseAttachment(r)
			s.Holdings, err = append(s.Holdings, h.of(who)), bad
		case kindCursor:
			set, a, bad := e.parseCursor(r)
			if err = bad; set >= 0 {
				s.Cursors[set] = a
			}
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return State{}, e.explain(err, "export", Attachment{})
	}
	slices.SortFunc(s.Holdings, func(a, b Holding) int { return a.Attachment.Compare(b.Attachment) })
	return s, nil
}

// Import adds the holdings of another allocator of the network, whether or not they are
// in the sets. The given cursors replace the stored ones. Import skips addresses that it
// cannot take and returns an error for each, with Owner and Addr. The error is
// ErrOccupied, with Holder, for an address that another attachment holds, and ErrInvalid
// for an address or a name. Addresses that the attachment already holds do not change.
//
// It works in steps of one commit each, cursors last. After an error the earlier steps
// are done; repeat the call to continue. It fails with ErrCorrupt, with ErrConflict and
// with the store's errors. Cost: linear in s.
func (e *Engine) Import(ctx context.Context, s State) (left []*ipalloc.Error, err error) {
	leave := func(who Attachment, err error) {
		left = append(left, own(e.explain(err, "import", who)))
	}
	var good []Holding
	for _, h := range s.Holdings {
		if err := h.Attachment.check(); err != nil {
			leave(h.Attachment, err)
			continue
		}
		take := h
		take.Addresses = nil
		for _, a := range h.Addresses {
			if err := checkAddr(a); err != nil {
				leave(h.Attachment, err)
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
		if checkAddr(a) != nil || set < 0 || uint64(set) > 1<<32-1 {
			err := fault(ipalloc.ErrInvalid, fmt.Sprintf("Cursors[%d]", set), "not the number of a set and an address")
			err.Addr = a
			leave(Attachment{}, err)
			continue
		}
		err := e.do(ctx, "import", Attachment{}, func(t *txn) error {
			_, err := t.grant(e, e.cursor(set))
			if err == nil {
				t.put(e.cursor(set), encode(place{a}))
			}
			return err
		})
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// importStep adds holdings in one commit.
func (e *Engine) importStep(ctx context.Context, step []Holding) ([]*ipalloc.Error, error) {
	var left []*ipalloc.Error
	err := e.do(ctx, "import", Attachment{}, func(t *txn) error {
		left = nil
		var need []string
		for _, h := range step {
			need = append(append(need, t.attachment(h.Attachment)), t.records(h.Addresses)...)
		}
		head, err := t.grant(e, need...)
		if err != nil {
			return err
		}
		for _, h := range step {
			has, err := t.holding(h.Attachment)
			if err != nil {
				return err
			}
			for _, a := range h.Addresses {
				holder, err := t.holder(a)
				if err == nil && holder == (Attachment{}) {
					has.addresses, has.epoch, has.scope = append(has.addresses, a), head.epoch, e.scope
					if has.added = e.now(); !h.Added.IsZero() {
						has.added = h.Added.UnixNano()
					}
					if strings.HasPrefix(h.Attachment.Container, keyPrefix) && has.sequence == 0 {
						has.scope, has.epoch, has.sequence = "", 0, max(1, h.Sequence) // out of use
					}
					err = t.take(a, h.Attachment)
				}
				if err != nil {
					return err
				}
				if holder != (Attachment{}) && holder != h.Attachment {
					err, _ := setFault(ipalloc.ErrOccupied, -1, a, "")
					err.Holder = holder.String()
					e.explain(err, "import", h.Attachment)
					left = append(left, err)
				}
			}
			if len(has.addresses) > 0 {
				t.put(t.attachment(h.Attachment), encode(has))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return left, nil
}
