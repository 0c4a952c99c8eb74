package hostlocal

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// A key stands for something that outlives its containers, such as a virtual machine. It
// holds addresses like an attachment, under a name that no container has. One attachment
// at a time uses it.

// keyPrefix begins the container name in a key's record.
const keyPrefix = "key/"

// keyOf returns the attachment under which the addresses of a key are held, for an interface.
func keyOf(key string, who Attachment) Attachment {
	return Attachment{Container: keyPrefix + key, Interface: who.Interface}
}

// checkKey refuses a key that cannot be part of a record's name.
func checkKey(key string) error {
	if err := checkName("key", key); err != nil {
		return err
	}
	return checkName("key", keyPrefix+key)
}

// AddKey is Add for an attachment that uses a key; the key holds the addresses. If the
// key holds none for that interface, AddKey allocates them as Add does. Otherwise it
// moves them to the attachment, in any scope. The attachment that used the key before
// keeps nothing: its Del then changes nothing, and Verify no longer finds it. Del of the
// present user leaves the addresses with the key, out of use, until an AddKey uses them
// or until [Engine.GC] or [Engine.EndKey] releases them.
//
// It fails as Add does, and also with ErrExists if the attachment already uses a key. It
// fails with ErrMismatch if the key holds addresses and a set contains none of them, or
// if another address is requested. It fails with ErrInvalid for an impossible key and for
// an engine without Config.Keys.
func (e *Engine) AddKey(ctx context.Context, key string, who Attachment, requested ...netip.Addr) ([]Address, error) {
	err := e.checkAdd(who, requested)
	if err == nil {
		err = checkKey(key)
	}
	if err == nil && !e.uses {
		err = fault(ipalloc.ErrInvalid, "Keys", "Config.Keys is not set")
	}
	if err != nil {
		return nil, e.explain(err, "addkey", who)
	}
	keys := append(e.holders(who), e.holders(keyOf(key, who))...)
	for i := range e.sets {
		keys = append(keys, e.cursor(i))
	}
	var got []Address
	err = e.do(ctx, "addkey", who, func(t *txn) error {
		h, err := t.grant(e, slices.Clone(keys)...)
		if err == nil {
			got, err = t.addKey(e, h, key, who, slices.Clone(requested))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// addKey plans one AddKey.
func (t *txn) addKey(e *Engine, h header, key string, who Attachment, requested []netip.Addr) ([]Address, error) {
	_, held, err := t.held(who)
	if err != nil {
		return nil, err
	}
	used, of, err := t.used(e, who)
	if held = append(held, of.addresses...); err == nil && len(held) > 0 {
		err, _ := setFault(ipalloc.ErrExists, max(0, slices.IndexFunc(e.sets, func(s RangeSet) bool { return s.Contains(held[0]) })), held[0],
			"the attachment holds it already")
		err.Holder = used.key
		return nil, err
	}
	at := keyOf(key, who)
	has, err := t.holding(at)
	if err != nil {
		return nil, err
	}
	var got []Address
	if len(has.addresses) == 0 {
		if got, err = t.add(e, h, at, requested); err == nil {
			has, err = t.holding(at)
		}
	} else if got, err = moved(e.sets, has.addresses, requested); err == nil {
		err = t.endUse(e, has.user)
	}
	if err != nil {
		return nil, err
	}
	has.user, has.scope, has.epoch, has.added = who, e.scope, h.epoch, e.now()
	has.sequence++
	t.put(t.attachment(at), encode(has))
	t.put(t.use(who), encode(use{key, has.sequence}))
	return got, nil
}

// moved returns the addresses that a key holds in the form that Add returns.
func moved(sets []RangeSet, held, requested []netip.Addr) (got []Address, err error) {
	for i, s := range sets {
		k := slices.IndexFunc(held, s.Contains)
		if k < 0 {
			err, in := setFault(ipalloc.ErrMismatch, i, netip.Addr{}, "the key holds no address of the set")
			in.Addrs = held
			return nil, err
		}
		r := s[s.RangeOf(held[k])]
		got = append(got, Address{netip.PrefixFrom(held[k], r.Subnet.Bits()), r.Gateway})
	}
	for _, a := range requested {
		if !slices.Contains(held, a) {
			err, in := setFault(ipalloc.ErrMismatch, -1, a, "the key holds other addresses")
			in.Addrs = held
			return nil, err
		}
	}
	return got, nil
}

// used returns the key that an attachment uses, and the key's holding.
func (t *txn) used(e *Engine, who Attachment) (u use, h holding, err error) {
	if !e.uses {
		return u, h, nil
	}
	if u, err = get[use](t, t.use(who)); err != nil || u.key == "" {
		return u, h, err
	}
	at := keyOf(u.key, who)
	if err = t.Load(t.attachment(at)); err == nil {
		h, err = t.holding(at)
	}
	if err == nil && (h.user != who || h.sequence != u.sequence) {
		err = corrupt(t.use(who), "the key %q is used by %s", u.key, h.user)
	}
	return u, h, err
}

// endUse puts a key out of use, if the attachment uses one.
func (t *txn) endUse(e *Engine, who Attachment) error {
	if !e.uses || who == (Attachment{}) {
		return nil
	}
	if err := t.Load(t.use(who)); err != nil {
		return err
	}
	u, h, err := t.used(e, who)
	if err != nil || u.key == "" {
		return err
	}
	h.user, h.scope, h.epoch, h.added = Attachment{}, "", 0, e.now()
	t.put(t.attachment(keyOf(u.key, who)), encode(h))
	t.put(t.use(who), "")
	return nil
}

// EndKey releases and returns the addresses of a key that no attachment uses. If the key
// holds none, the result is empty.
//
// It fails with ErrInvalid for an impossible key, with ErrCorrupt, with ErrConflict and
// with the store's errors.
func (e *Engine) EndKey(ctx context.Context, key string) ([]Holding, error) {
	if err := checkKey(key); err != nil {
		return nil, e.explain(err, "endkey", Attachment{})
	}
	freed, err := e.sweep(ctx, func(a Attachment, h holding) fate {
		if a.Container == keyPrefix+key && h.user == (Attachment{}) {
			return ends
		}
		return stays
	})
	return freed, e.explain(err, "endkey", Attachment{})
}
