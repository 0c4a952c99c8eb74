package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const (
	offerTime  = 30 * time.Second
	leaseTime  = time.Hour
	cooldown   = 10 * time.Minute // an address whose lease has ended goes to its last client alone for this long
	quarantine = 10 * time.Minute
)

var (
	lan    = alloc.VirtualOwner("lan") // one subnet has no hosts that blocks could belong to
	subnet = netip.MustParsePrefix("192.168.1.0/24")
	ours   = netip.MustParseAddr("192.168.1.1") // of the server and the router
)

// leases are the leases and reservations of one subnet. Their state is in the store alone.
type leases struct {
	engine *ipset.Engine
	keeper *kept.Keeper
}

var (
	// errNAK: the client must give up the address, because another client has it or it is none of this network.
	errNAK = errors.New("NAK")
	// errSilent: this server knows nothing of the client, whose lease may be another server's (RFC 2131, section 4.3.2).
	errSilent = errors.New("no answer")
)

// open returns the leases in a store. The pool is made on the first call; later calls set its range.
func open(ctx context.Context, db store.Store, dynamic netipx.IPRange, now func() time.Time) (*leases, error) {
	engine, err := ipset.New(db, ipset.Options{Now: now})
	if err != nil {
		return nil, err
	}
	pool := alloc.Pool{Name: "lan", Prefix: subnet, BlockBits: subnet.Bits(), Ranges: []netipx.IPRange{dynamic}, Cooldown: cooldown}
	if err = engine.AddPool(ctx, pool); errors.Is(err, ipalloc.ErrExists) {
		err = engine.UpdatePool(ctx, pool)
	}
	if err != nil {
		return nil, err
	}
	keeper, err := kept.New(db, lan, ipset.Options{Now: now})
	return &leases{engine, keeper}, err
}

// reserve keeps an address, inside the dynamic range or outside of it, for a client. It may be repeated.
func (l *leases) reserve(ctx context.Context, client string, a netip.Addr) error {
	return l.keeper.Keep(ctx, a, client)
}

// discover offers a client an address for offerTime: the one reserved for it, the one that it has or had last, the one
// that it wishes, or any other. If the client holds an address that the range no longer has, it gets another one: a client
// that looks for a server uses no address.
func (l *leases) discover(ctx context.Context, client string, wish netip.Addr) (netip.Addr, error) {
	offer := alloc.AssignArgs{Owner: lan, Num4: 1, Choose: alloc.Prefer(wish), Handle: client, TTL: offerTime, WithinRules: true}
	got, err := l.keeper.Offer(ctx, offer)
	if errors.Is(answer(err), errNAK) {
		released, failed := l.engine.ReleaseByHandle(ctx, client)
		if failed != nil {
			return netip.Addr{}, failed
		}
		if len(released) > 0 {
			got, err = l.keeper.Offer(ctx, offer)
		}
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return got.V4[0].Address, nil
}

// request makes an offer a lease, and renews a lease that the range still has: a client whose address has been taken out of
// the range, or been reserved, has to find another one.
func (l *leases) request(ctx context.Context, client string, a netip.Addr) error {
	_, err := l.keeper.RenewIP(ctx, a, client, alloc.RenewArgs{TTL: leaseTime, WithinRules: true, Owner: lan})
	if errors.Is(err, ipalloc.ErrNotHeld) || errors.Is(err, ipalloc.ErrCooling) || errors.Is(err, ipalloc.ErrNotFound) {
		return l.resume(ctx, client, a) // the lease has ended
	}
	return answer(err)
}

// resume leases a client the address that it remembers from before a restart, of its own or of the server.
func (l *leases) resume(ctx context.Context, client string, a netip.Addr) error {
	known, err := l.knows(ctx, client, a)
	if err != nil {
		return err
	}
	if !known {
		return errSilent
	}
	if !subnet.Contains(a) {
		return errNAK
	}
	_, err = l.keeper.AssignIP(ctx, alloc.AssignIPArgs{Address: a, Owner: lan, Sticky: true, Handle: client, TTL: leaseTime})
	return answer(err)
}

// knows reports whether the server has a record of the client: an address that it holds, that is reserved for it, or that
// it had a short while ago.
func (l *leases) knows(ctx context.Context, client string, a netip.Addr) (bool, error) {
	held, err := l.engine.IPsByHandle(ctx, client)
	if err != nil || len(held) > 0 {
		return err == nil, err
	}
	reserved, err := l.keeper.Of(ctx, client)
	if err != nil || len(reserved) > 0 {
		return err == nil, err
	}
	last, err := l.engine.Lookup(ctx, a)
	if errors.Is(err, ipalloc.ErrCooling) { // of its last client
		return last.Handle == client, nil
	} else if errors.Is(err, ipalloc.ErrNotHeld) {
		return false, nil
	}
	return false, err
}

// answer turns each refusal of an address into a NAK.
func answer(err error) error {
	for _, refused := range []error{
		ipalloc.ErrMismatch, ipalloc.ErrOccupied, ipalloc.ErrCooling, ipalloc.ErrReserved, ipalloc.ErrNotFound, ipalloc.ErrOutOfRange,
	} {
		if errors.Is(err, refused) {
			return errNAK
		}
	}
	return err
}

// release ends a lease. The guard makes a late message about an address of another client harmless.
func (l *leases) release(ctx context.Context, client string, a netip.Addr) error {
	_, err := l.engine.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: alloc.Guard{Handle: client}})
	return err
}

// decline takes an address that something else on the network uses out of use for quarantine.
func (l *leases) decline(ctx context.Context, client string, a netip.Addr) error {
	reserved, err := l.keeper.Of(ctx, client)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(reserved, func(k kept.Kept) bool { return k.Address == a }) {
		return l.keeper.Decline(ctx, a, client, quarantine)
	}
	_, err = l.engine.Decline(ctx, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: client}, For: quarantine, Reason: "DHCPDECLINE"})
	return err
}
