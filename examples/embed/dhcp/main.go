// Command dhcp keeps the leases of a DHCP server: DISCOVER, REQUEST, RENEW, RELEASE and
// DECLINE on a dynamic range of a subnet, static addresses outside of it. A client gets its
// last address back as long as that is free, also after a restart.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const (
	offerTime  = 30 * time.Second
	leaseTime  = time.Hour
	quarantine = 10 * time.Minute
)

var (
	server  = alloc.HostOwner("server")
	dynamic = netipx.MustParseIPRange("192.168.1.100-192.168.1.102")
)

type dhcp struct{ engine *ipset.Engine }

// errNAK refuses a client that asks for an address that it does not have.
var errNAK = errors.New("NAK")

// discover offers a client an address: the one it has or had last, else a free one, for half a minute.
func (d *dhcp) discover(ctx context.Context, mac string) (netip.Addr, error) {
	got, err := d.engine.Offer(ctx, alloc.AssignArgs{Owner: server, Num4: 1, Handle: mac, TTL: offerTime})
	if err != nil {
		return netip.Addr{}, err
	}
	return got.V4[0].Address, nil
}

// request makes an offer a lease, and renews a lease.
func (d *dhcp) request(ctx context.Context, mac string, a netip.Addr) error {
	_, err := d.engine.RenewIP(ctx, a, alloc.Guard{Handle: mac}, leaseTime)
	if errors.Is(err, ipalloc.ErrMismatch) || errors.Is(err, ipalloc.ErrNotHeld) || errors.Is(err, ipalloc.ErrCooling) {
		return errNAK
	}
	return err
}

// release ends a lease; guarded by the client, as the message may be an old one.
func (d *dhcp) release(ctx context.Context, mac string, a netip.Addr) error {
	_, err := d.engine.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: alloc.Guard{Handle: mac}})
	return err
}

// decline takes an address that something else on the network uses out of circulation for a while.
func (d *dhcp) decline(ctx context.Context, mac string, a netip.Addr) error {
	_, err := d.engine.Decline(ctx, alloc.DeclineArgs{Address: a, Guard: alloc.Guard{Handle: mac}, For: quarantine, Reason: "DHCPDECLINE"})
	return err
}

// open returns the server whose leases are in a store. Nothing is held outside it.
func open(ctx context.Context, db store.Store, now func() time.Time) (*dhcp, error) {
	engine, err := ipset.New(db, ipset.Options{Now: now})
	if err != nil {
		return nil, err
	}
	err = engine.AddPool(ctx, alloc.Pool{
		Name: "lan", Prefix: netip.MustParsePrefix("192.168.1.0/24"), BlockBits: 24,
		Ranges: []netipx.IPRange{dynamic},
	})
	if err != nil && !errors.Is(err, ipalloc.ErrExists) {
		return nil, err
	}
	return &dhcp{engine}, nil
}

// reserve gives a client a static address, in the dynamic range or outside of it; it may be repeated.
func (d *dhcp) reserve(ctx context.Context, mac, address string) error {
	_, err := d.engine.AssignIP(ctx, alloc.AssignIPArgs{Address: netip.MustParseAddr(address), Owner: server, Handle: mac})
	return err
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "dhcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := boltstore.Open(ctx, filepath.Join(dir, "leases.db"), boltstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	start := func() (*dhcp, error) { return open(ctx, db, func() time.Time { return now }) }
	d, err := start()
	if err != nil {
		return err
	}
	if err := d.reserve(ctx, "aa:printer", "192.168.1.9"); err != nil {
		return err
	}
	a, err := d.discover(ctx, "aa:01")
	if err != nil {
		return err
	}
	fmt.Println("offer", a, "request:", d.request(ctx, "aa:01", a), "by another:", d.request(ctx, "aa:02", a))
	now = now.Add(2 * time.Hour) // the lease ends
	fmt.Println("renew too late:", d.request(ctx, "aa:01", a))
	if d, err = start(); err != nil {
		return err
	}
	b, err := d.discover(ctx, "aa:02")
	if err != nil {
		return err
	}
	again, err := d.discover(ctx, "aa:01")
	if err != nil {
		return err
	}
	fmt.Println("after a restart", b, "and", again, "again")
	if err := d.decline(ctx, "aa:02", b); err != nil {
		return err
	}
	c, err := d.discover(ctx, "aa:02")
	if err != nil {
		return err
	}
	_, err = d.discover(ctx, "aa:03")
	fmt.Println("declined, offer", c, "cooling:", errors.Is(err, ipalloc.ErrCooling))
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
