package hostlocal

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Address is one address that Add handed out.
type Address struct {
	// Prefix is the address with the length of its range's subnet.
	Prefix netip.Prefix
	// Gateway is that of its range.
	Gateway netip.Addr
}

// Add takes one address of every set for an attachment, in the order of the sets, and returns them: all of them, or none
// and an error that names the set.
//
// Of the requested addresses, each set takes the first that lies in one of its ranges and was not taken by a set before.
// Without one, it takes the first free address after the one it gave last without request, wrapping. A request
// does not move that place.
//
// It returns [ErrExists] if the attachment holds an address of a set, whatever is requested; [ErrFull]; [ErrOccupied] or
// [ErrReserved] for a request; [ErrOutOfRange] for requests that no set took; [ErrBadAddress], [ErrBadName],
// [ErrNoRanges]; [ErrRecord]; ipset.ErrContention and the store's errors. After ipalloc.ErrUnknownOutcome the addresses may be
// held: Del settles it. What the attachment holds outside the sets stays held.
//
// Cost: a few records of the store for each address, however many are taken.
func (e *Engine) Add(ctx context.Context, who Attachment, requested ...netip.Addr) ([]Address, error) {
	if err := e.checkAdd(who, requested); err != nil {
		return nil, err
	}
	keys := e.holders(who)
	for i := range e.sets {
		keys = append(keys, e.cursor(i))
	}
	var got []Address
	err := e.do(ctx, "add", who, func(t *txn) error {
		h, err := t.begin(e, slices.Clone(keys)...)
		if err != nil {
			return err
		}
		got, err = t.add(e, h, who, slices.Clone(requested))
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// checkAdd refuses what can be refused without looking.
func (e *Engine) checkAdd(who Attachment, requested []netip.Addr) error {
	err := who.check()
	if err == nil {
		err = checkName("interface", who.Interface)
	}
	if err == nil && len(e.sets) == 0 {
		err = ErrNoRanges
	}
	if err != nil {
		return e.explain(fault("add", err), "add", who)
	}
	for _, a := range requested {
		if err := addr.CheckAddr(a); err != nil {
			own := fault("add", ErrBadAddress)
			own.Address, own.Text = a, err.Error()
			return e.explain(own, "add", who)
		}
	}
	return nil
}

// holders returns the keys of the attachments that answer to a name: it, and the one of its container without interface.
func (e *Engine) holders(who Attachment) []string {
	return []string{e.attachment(who), e.attachment(Attachment{Container: who.Container})}
}

// held returns what the attachment itself holds, and what all that answer to its name hold, by text.
func (t *txn) held(who Attachment) (own holding, all []netip.Addr, err error) {
	for i, key := range []string{t.attachment(who), t.attachment(Attachment{Container: who.Container})} {
		v, err := t.get(key)
		if err != nil || v == "" {
			if err != nil {
				return own, nil, err
			}
			continue
		}
		h, err := decodeHolding(v)
		if err != nil {
			return own, nil, err
		}
		if i == 0 {
			own = h
		}
		all = append(all, h.addresses...)
	}
	slices.SortFunc(all, func(a, b netip.Addr) int { return compareText(a, b) })
	return own, all, nil
}

// compareText orders addresses as host-local comes across them: by the names of its files.
func compareText(a, b netip.Addr) int {
	return slices.Compare([]byte(a.String()), []byte(b.String()))
}

// add plans one Add. It changes nothing before it can fail no more, except that a later set sees what an earlier one took.
func (t *txn) add(e *Engine, h header, who Attachment, requested []netip.Addr) ([]Address, error) {
	own, held, err := t.held(who)
	if err != nil {
		return nil, err
	}
	got := make([]Address, 0, len(e.sets))
	for i, s := range e.sets {
		bad := func(sentinel error, a netip.Addr) *Error {
			err := fault("add", sentinel)
			err.Set, err.Address = i, a
			return err
		}
		if k := slices.IndexFunc(held, func(a netip.Addr) bool { return s.RangeOf(a) >= 0 }); k >= 0 {
			return nil, bad(ErrExists, held[k])
		}
		var a netip.Addr
		in := -1
		asked := slices.IndexFunc(requested, func(a netip.Addr) bool { return s.RangeOf(a) >= 0 })
		if asked >= 0 {
			a = requested[asked]
			in = s.RangeOf(a)
			requested = slices.DeleteFunc(requested, func(b netip.Addr) bool { return a == b })
			if a == s[in].Gateway {
				return nil, bad(ErrReserved, a)
			}
		} else if a, in, err = t.advance(s, t.cursor(i)); err != nil {
			return nil, err
		} else if in < 0 {
			return nil, bad(ErrFull, a)
		}
		holder, err := t.take(a, who)
		if err != nil {
			return nil, err
		}
		if holder != (Attachment{}) {
			err := bad(ErrOccupied, a)
			if asked < 0 {
				err.Err = fmt.Errorf("%w: a page has it free", ErrRecord)
			}
			err.Holder = holder
			return nil, err
		}
		own.addresses = append(own.addresses, a)
		got = append(got, Address{netip.PrefixFrom(a, s[in].Subnet.Bits()), s[in].Gateway})
	}
	if len(requested) > 0 {
		err := fault("add", ErrOutOfRange)
		err.Addresses = requested
		return nil, err
	}
	own.epoch = h.epoch
	t.put(t.attachment(who), own.encode())
	return got, nil
}

// advance picks the next free address of a set and moves its cursor there. The range is -1 if there is none.
func (t *txn) advance(s RangeSet, cursor string) (a netip.Addr, in int, err error) {
	v, err := t.get(cursor)
	if err != nil {
		return a, -1, err
	}
	last, err := decodeCursor(v)
	if err != nil {
		return a, -1, err
	}
	a, in, ok, err := t.pick(s, last)
	if err != nil || !ok {
		return a, -1, err
	}
	t.put(cursor, encodeCursor(a))
	return a, in, nil
}

// take writes that an address belongs to an attachment, or returns whose it is already.
func (t *txn) take(a netip.Addr, who Attachment) (holder Attachment, err error) {
	key := t.address(a)
	v, err := t.get(key)
	if err != nil {
		return holder, err
	}
	if v != "" {
		return decodeHolder(v)
	}
	t.put(key, encodeHolder(who))
	return holder, t.mark(a)
}
