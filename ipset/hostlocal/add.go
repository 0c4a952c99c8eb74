package hostlocal

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// Address is one address that Add allocated.
type Address struct {
	// Prefix is the address with the prefix length of its range's subnet.
	Prefix netip.Prefix
	// Gateway is the gateway of its range.
	Gateway netip.Addr
}

// Add allocates one address of every set for an attachment and returns them in the order
// of the sets. It allocates all of them, or none and returns an error whose [SetError]
// names the set.
//
// Each set takes the first requested address that is in its ranges and that no earlier
// set took. Without such an address, it takes the first free address after its last
// allocated one, wrapping. A request does not move that position.
//
// It fails with ErrExists if the attachment already holds an address of a set, even if
// other addresses are requested. It fails with ErrFull if a set has no free address. For
// a requested address, it fails with ErrOccupied, and Holder, if the address is held, and
// with ErrReserved if it is the gateway or excluded. It fails with ErrOutOfRange for
// requests that no set took. It fails with ErrInvalid for a name, an address, or an
// engine without sets, with ErrCorrupt, with ErrConflict and with the store's errors.
// Addresses that the attachment holds outside the sets stay held. On error nothing
// changes, except that after ErrUnknownOutcome the addresses may be held: call
// [Engine.Del] on the same engine.
//
// Cost: a few records of the store for each address, however many are taken; the first
// Add of a network, or of a scope, makes one more commit.
func (e *Engine) Add(ctx context.Context, who Attachment, requested ...netip.Addr) ([]Address, error) {
	if err := e.checkAdd(who, requested); err != nil {
		return nil, e.explain(err, "add", who)
	}
	keys := e.holders(who)
	for i := range e.sets {
		keys = append(keys, e.cursor(i))
	}
	requested = slices.Clone(requested) // the plan may run after the call has returned
	var got []Address
	err := e.do(ctx, "add", who, func(t *txn) error {
		h, err := t.grant(e, slices.Clone(keys)...)
		if err == nil {
			got, err = t.add(e, h, who, slices.Clone(requested))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// checkAdd refuses arguments that are wrong in any state of the store.
func (e *Engine) checkAdd(who Attachment, requested []netip.Addr) error {
	err := checkName("Container", who.Container)
	if err == nil && strings.HasPrefix(who.Container, keyPrefix) {
		err = fault(ipalloc.ErrInvalid, "Container", "the name of a key: see AddKey")
	}
	if err == nil {
		err = checkName("Interface", who.Interface)
	}
	if err == nil {
		err = e.checkSets()
	}
	for _, a := range requested {
		if err == nil {
			err = checkAddr(a)
		}
	}
	return err
}

func (e *Engine) checkSets() error {
	if len(e.sets) == 0 {
		return fault(ipalloc.ErrInvalid, "Sets", "no range sets to allocate from")
	}
	return nil
}

func checkAddr(a netip.Addr) error {
	if bad := addr.CheckAddr(a); bad != nil {
		err := fault(ipalloc.ErrInvalid, "address", bad.Error())
		err.Addr = a
		return err
	}
	return nil
}

// holders returns the keys of the records for a name. These are its own record, the
// record of its container without interface, and the record of the key that it uses.
func (e *Engine) holders(who Attachment) []string {
	keys := []string{e.attachment(who), e.attachment(Attachment{Container: who.Container})}
	if e.uses {
		keys = append(keys, e.use(who))
	}
	return keys
}

// held returns the attachment's own holding, and the addresses of all records for its
// name, in the order of host-local's file names.
func (t *txn) held(who Attachment) (own holding, all []netip.Addr, err error) {
	if own, err = t.holding(who); err != nil {
		return own, nil, err
	}
	all = slices.Clone(own.addresses)
	if who.Interface != "" {
		old, err := t.holding(Attachment{Container: who.Container})
		if err != nil {
			return own, nil, err
		}
		all = append(all, old.addresses...)
	}
	slices.SortFunc(all, func(a, b netip.Addr) int { return strings.Compare(a.String(), b.String()) })
	return own, all, nil
}

// add plans one Add.
func (t *txn) add(e *Engine, h header, who Attachment, requested []netip.Addr) ([]Address, error) {
	own, held, err := t.held(who)
	if err == nil {
		var of holding
		_, of, err = t.used(e, who)
		held = append(held, of.addresses...)
	}
	if err != nil {
		return nil, err
	}
	got := make([]Address, 0, len(e.sets))
	for i, s := range e.sets {
		refuse := func(sentinel error, a netip.Addr, reason string) error {
			err, _ := setFault(sentinel, i, a, reason)
			return err
		}
		if k := slices.IndexFunc(held, s.Contains); k >= 0 {
			return nil, refuse(ipalloc.ErrExists, held[k], "the attachment holds it already")
		}
		var a netip.Addr
		if k := slices.IndexFunc(requested, s.Contains); k >= 0 {
			a = requested[k]
			requested = slices.DeleteFunc(requested, func(b netip.Addr) bool { return a == b })
			switch r := s[s.RangeOf(a)]; {
			case a == r.Gateway:
				return nil, refuse(ipalloc.ErrReserved, a, "the gateway of its range")
			case r.excluding(a).IsValid():
				return nil, refuse(ipalloc.ErrReserved, a, "excluded from its range")
			}
			holder, err := t.holder(a)
			if err != nil {
				return nil, err
			}
			if holder != (Attachment{}) {
				err, _ := setFault(ipalloc.ErrOccupied, i, a, "")
				err.Holder = holder.String()
				return nil, err
			}
		} else if a, err = t.advance(s, e.cursor(i)); err != nil {
			return nil, err
		} else if !a.IsValid() {
			return nil, refuse(ipalloc.ErrFull, a, "no free address in "+s.String())
		}
		if err := t.take(a, who); err != nil {
			return nil, err
		}
		r := s[s.RangeOf(a)]
		own.addresses = append(own.addresses, a)
		got = append(got, Address{netip.PrefixFrom(a, r.Subnet.Bits()), r.Gateway})
	}
	if len(requested) > 0 {
		err, in := setFault(ipalloc.ErrOutOfRange, -1, requested[0], "in no set that still gives an address")
		in.Addrs = requested
		return nil, err
	}
	own.epoch, own.scope, own.added = h.epoch, e.scope, e.now()
	t.put(t.attachment(who), encode(own))
	return got, nil
}

// advance picks the next free address of a set, the zero Addr if there is none, and
// moves the set's cursor there.
func (t *txn) advance(s RangeSet, cursor string) (netip.Addr, error) {
	last, err := get[place](t, cursor)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := t.pick(s, last.Addr)
	if err == nil && a.IsValid() {
		t.put(cursor, encode(place{a}))
	}
	return a, err
}

// take assigns a free address to an attachment.
func (t *txn) take(a netip.Addr, who Attachment) error {
	holder, err := t.holder(a)
	if err == nil && holder != (Attachment{}) {
		err = corrupt(t.address(a), "held by %s, but its page has it free", holder)
	}
	if err != nil {
		return err
	}
	t.put(t.address(a), encode(who))
	return t.mark(a, true)
}
