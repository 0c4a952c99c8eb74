// Package kept keeps addresses for handles that need not hold them. Examples are the host
// reservations of a DHCP server, the address of a virtual machine that is off, and the
// address of a service that does not exist yet.
//
//	keeper, err := kept.New(db, alloc.VirtualOwner("dhcp"), ipset.Options{})
//	err = keeper.Keep(ctx, printer, mac)
//	got, err := keeper.Offer(ctx, alloc.AssignArgs{Owner: server, Num4: 1, Handle: mac, TTL: offerTime})
//
// A kept address is a shared address with up to two holders. One is its keeper, whose
// handle begins with "kept/"; the other is the handle that it is kept for, while that
// handle holds it. Lists, exports, copies, checks and changes therefore show it like any
// other address. It stays kept when its user releases it, when the lease expires and when
// the user's host is removed, and no other handle can get it. All other calls refuse
// handles and sharing keys that begin with "kept/", and a release without a guard does
// not change a kept address. [ipset.Engine.Assign] ignores kept addresses; the calls of a
// Keeper use them. Each call is one commit of [store.Together].
package kept

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// notBefore is the attribute of a keeper whose address was declined: its handle can get
// the address again from that time on.
const notBefore = "not before"

// Keeper keeps addresses. Make a Keeper with [New].
type Keeper struct {
	db    store.Store
	owner alloc.Owner
	o     ipset.Options
}

// Kept is an address that is kept for a handle. After a Decline its handle can get it
// from NotBefore on.
type Kept struct {
	Address   netip.Addr
	Handle    string
	NotBefore time.Time
}

// New returns a keeper on a store, or on a space that [store.Space] returns. Its engines
// have the given options. New blocks belong to owner, and so do the keepers: removing
// that host drops all kept addresses.
func New(db store.Store, owner alloc.Owner, o ipset.Options) (*Keeper, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	_, err := ipset.New(db, o)
	return &Keeper{db, owner, o}, errors.Join(err, owner.Check())
}

// do calls f with an engine, and commits f's changes.
func (k *Keeper) do(ctx context.Context, f func(ctx context.Context, e *ipset.Engine) error) error {
	return store.Together(ctx, k.db, func(tx store.Store) error {
		e, err := ipset.New(tx, k.o)
		if err != nil {
			return err
		}
		return f(keep.In(ctx), e)
	})
}

func share(handle string) alloc.Share { return alloc.Share{Max: 2, Key: keep.Prefix + handle} }

// Keep keeps an address for a handle. If the handle already holds the address, it keeps
// its lease and attributes, with a new sequence number. Keep is safe to repeat. It fails
// with [ipalloc.ErrOccupied] or [ipalloc.ErrCooling] if another handle holds or released
// the address, and with [ipalloc.ErrMismatch] if the address is kept for another handle.
func (k *Keeper) Keep(ctx context.Context, a netip.Addr, handle string) error {
	return k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		al, err := e.Lookup(ctx, a)
		for h := range al.Holders() {
			if h.Handle == keep.Prefix+handle {
				return nil
			}
		}
		own := err == nil && al.Handle == handle
		if err != nil && !errors.Is(err, ipalloc.ErrNotHeld) {
			return err
		}
		if own { // alone, or it would be the second holder: let it share
			args := alloc.AssignIPArgs{Address: a, Owner: al.Host, Handle: handle, Attributes: al.Attributes, Share: share(handle), Since: al.Since}
			if !al.Cooling && !al.Until.IsZero() {
				args.TTL = max(al.Until.Sub(k.o.Now()), time.Second)
			}
			if !al.Cooling {
				_, err = e.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: alloc.Guard{Handle: handle, Seq: al.Seq}})
			}
			if err == nil {
				_, err = e.AssignIP(ctx, args)
			}
			if err != nil {
				return err
			}
		}
		_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: a, Owner: k.owner, Handle: keep.Prefix + handle, Share: share(handle)})
		if err == nil && own && al.Cooling {
			_, err = e.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: alloc.Guard{Handle: handle}})
		}
		return err
	})
}

// of returns the addresses that are kept for a handle.
func of(ctx context.Context, e *ipset.Engine, handle string) (all []Kept, err error) {
	als, err := e.IPsByHandle(ctx, keep.Prefix+handle)
	for _, al := range als {
		all = append(all, keptOf(al))
	}
	return all, err
}

func keptOf(al alloc.Allocation) Kept {
	at, _ := time.Parse(time.RFC3339Nano, al.Attributes.Map()[notBefore])
	return Kept{al.Address, strings.TrimPrefix(al.Handle, keep.Prefix), at}
}

// Of returns the addresses that are kept for a handle, in address order.
func (k *Keeper) Of(ctx context.Context, handle string) ([]Kept, error) {
	e, err := ipset.New(k.db, k.o)
	if err != nil {
		return nil, err
	}
	return of(ctx, e, handle)
}

// All yields all kept addresses, in address order. Cost: as for
// [ipset.Engine.Allocations] of all addresses.
func (k *Keeper) All(ctx context.Context) iter.Seq2[Kept, error] {
	return func(yield func(Kept, error) bool) {
		e, err := ipset.New(k.db, k.o)
		if err != nil {
			yield(Kept{}, err)
			return
		}
		for al, err := range e.Allocations(ctx, netip.Prefix{}) {
			if err != nil {
				yield(Kept{}, err)
				return
			}
			if al.Cooling { // it was dropped
				continue
			}
			for h := range al.Holders() {
				if keep.Is(h.Handle) && !yield(keptOf(h), nil) {
					return
				}
			}
		}
	}
}

// Drop stops keeping addresses for a handle and returns these addresses. If the handle
// holds such an address, it continues to hold it.
func (k *Keeper) Drop(ctx context.Context, handle string) ([]netip.Addr, error) {
	e, err := ipset.New(k.db, k.o)
	if err != nil {
		return nil, err
	}
	return e.ReleaseByHandle(keep.In(ctx), keep.Prefix+handle)
}

// due returns the addresses that a handle can get now, of one family if a is valid.
func (k *Keeper) due(ctx context.Context, e *ipset.Engine, handle string, a netip.Addr) (as []netip.Addr, err error) {
	all, err := of(ctx, e, handle)
	for _, x := range all {
		if !x.NotBefore.After(k.o.Now()) && (!a.IsValid() || a.Is4() == x.Address.Is4()) {
			as = append(as, x.Address)
		}
	}
	return as, err
}

// Offer assigns a handle the addresses that are kept for it, even outside of the pools'
// Ranges. If none is kept, it calls [ipset.Engine.Offer] instead. Num4, Num6, Pools,
// Choose and WithinRules apply only to that call, not to kept addresses. If the lease of
// a kept address has less than TTL left, Offer extends it to TTL.
func (k *Keeper) Offer(ctx context.Context, a alloc.AssignArgs) (got alloc.Assigned, err error) {
	err = k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		as, err := k.due(ctx, e, a.Handle, netip.Addr{})
		if err != nil {
			return err
		}
		if len(as) == 0 {
			got, err = e.Offer(ctx, a)
			return err
		}
		b := alloc.AssignArgs{Owner: a.Owner, Handle: a.Handle, Attributes: a.Attributes, TTL: a.TTL, Share: share(a.Handle), Use: a.Use, Also: a.Also}
		if got, err = e.AssignIPs(ctx, b, as...); err != nil {
			return err
		}
		for _, als := range [][]alloc.Allocation{got.V4, got.V6} {
			for i, al := range als {
				if a.TTL > 0 && !al.Until.IsZero() && al.Until.Before(k.o.Now().Add(a.TTL)) {
					if als[i], err = e.RenewIP(ctx, al.Address, alloc.Guard{Handle: a.Handle}, alloc.RenewArgs{TTL: a.TTL}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	return got, err
}

// Assign is [ipset.Engine.Assign], but assigns a handle the first address that is kept
// for it.
func (k *Keeper) Assign(ctx context.Context, owner alloc.Owner, handle string, pools ...string) (al alloc.Allocation, err error) {
	err = k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		as, err := k.due(ctx, e, handle, netip.Addr{})
		if err == nil && len(as) > 0 {
			al, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: as[0], Owner: owner, Handle: handle, Share: share(handle)})
		} else if err == nil {
			al, err = e.Assign(ctx, owner, handle, pools...)
		}
		return err
	})
	return al, err
}

// other returns ErrMismatch if other addresses of the family of a are kept for a handle.
func (k *Keeper) other(op string, as []netip.Addr, a netip.Addr, handle string) error {
	if len(as) == 0 || slices.Contains(as, a) {
		return nil
	}
	return &ipalloc.Error{Package: "kept", Op: op, Addr: a, Handle: handle, Reason: as[0].String() + " is kept for it", Err: ipalloc.ErrMismatch}
}

// AssignIP assigns a client the requested address, or refuses it. It assigns a kept
// address if it is kept for the handle, and any other address if the rules of its pool
// allow it. It fails with [ipalloc.ErrMismatch] if another address is kept for the
// handle, and as [ipset.Engine.AssignIP] with WithinRules does for an address that is
// not: with [ipalloc.ErrReserved] outside the pool's Ranges, whoever it is kept for.
func (k *Keeper) AssignIP(ctx context.Context, a alloc.AssignIPArgs) (al alloc.Allocation, err error) {
	err = k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		as, err := k.due(ctx, e, a.Handle, a.Address)
		if err == nil {
			err = k.other("assign IP", as, a.Address, a.Handle)
		}
		if err != nil {
			return err
		}
		if a.WithinRules = len(as) == 0; !a.WithinRules {
			a.Share = share(a.Handle)
		}
		al, err = e.AssignIP(ctx, a)
		return err
	})
	return al, err
}

// RenewIP is [ipset.Engine.RenewIP] with the handle as guard. WithinRules does not apply
// to an address that is kept for the handle. RenewIP fails with [ipalloc.ErrMismatch] if
// only other addresses of the family are kept for the handle: the client has to move.
func (k *Keeper) RenewIP(ctx context.Context, at netip.Addr, handle string, a alloc.RenewArgs) (al alloc.Allocation, err error) {
	err = k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		as, err := k.due(ctx, e, handle, at)
		if err == nil {
			err = k.other("renew IP", as, at, handle)
		}
		if len(as) > 0 {
			a = alloc.RenewArgs{TTL: a.TTL}
		}
		if err == nil {
			al, err = e.RenewIP(ctx, at, alloc.Guard{Handle: handle}, a)
		}
		return err
	})
	return al, err
}

// Decline releases a kept address from its handle, which found it in use elsewhere. The
// address stays kept, and the handle can get it again after the given time; until then
// Offer assigns another one.
func (k *Keeper) Decline(ctx context.Context, a netip.Addr, handle string, during time.Duration) error {
	until, err := alloc.NewAttributes(map[string]string{notBefore: k.o.Now().Add(during).UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return err
	}
	return k.do(ctx, func(ctx context.Context, e *ipset.Engine) error {
		if _, err := e.Release(ctx, alloc.ReleaseArgs{Addresses: []alloc.Release{{Address: a, Guard: alloc.Guard{Handle: handle}}}}); err != nil {
			return err
		}
		return e.Update(ctx, alloc.UpdateArgs{Address: a, Guard: alloc.Guard{Handle: keep.Prefix + handle}, Active: &until})
	})
}
