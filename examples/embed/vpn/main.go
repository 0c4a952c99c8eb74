// Command vpn gives machines of a VPN their addresses: one IPv4 and one IPv6 each, both or
// none, from the range of the machine's group. A machine that comes back gets its addresses
// back, one may ask for an address, and a deleted one leaves its own alone for a day.
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

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// gateway is the owner of all blocks: one process hands out every address.
var gateway = ipset.HostOwner("gateway")

type vpn struct{ engine *ipset.Engine }

// open returns the VPN whose state is in a file.
func open(ctx context.Context, db *boltstore.Store) (*vpn, error) {
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		return nil, err
	}
	for _, p := range []ipset.Pool{
		{Name: "engineering-4", Prefix: netip.MustParsePrefix("100.64.8.0/22")},
		{Name: "engineering-6", Prefix: netip.MustParsePrefix("fd7a:115c:a1e0:8::/64")},
		{Name: "guests-4", Prefix: netip.MustParsePrefix("100.64.12.0/22")},
		{Name: "guests-6", Prefix: netip.MustParsePrefix("fd7a:115c:a1e0:9::/64")},
	} {
		p.Cooldown = 24 * time.Hour
		p.Manual = true // only for calls that name the pool
		if err := engine.AddPool(ctx, p); err != nil && !errors.Is(err, ipalloc.ErrExists) {
			return nil, err
		}
	}
	return &vpn{engine}, nil
}

// register returns the addresses of a machine, the same ones each time it is called.
func (v *vpn) register(ctx context.Context, machine, group, user string) ([]ipset.Allocation, error) {
	attrs, err := ipset.NewAttributes(map[string]string{"user": user, "group": group})
	if err != nil {
		return nil, err
	}
	got, err := v.engine.AutoAssign(ctx, ipset.AssignArgs{
		Owner: gateway, Num4: 1, Num6: 1, Claim: ipset.Claim{Handle: machine, Attributes: attrs},
		Pools: []string{group + "-4", group + "-6"}, Existing: true,
	})
	return append(got.V4, got.V6...), err
}

// fix gives a machine an address that it asks for.
func (v *vpn) fix(ctx context.Context, machine, address string) error {
	_, err := v.engine.AssignIP(ctx, ipset.AssignIPArgs{
		Address: netip.MustParseAddr(address), Owner: gateway, Claim: ipset.Claim{Handle: machine},
	})
	return err
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "vpn")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for day := 1; day <= 2; day++ { // the second time, everything is there already
		db, err := boltstore.Open(ctx, filepath.Join(dir, "vpn.db"), boltstore.Options{})
		if err != nil {
			return err
		}
		defer db.Close()
		v, err := open(ctx, db)
		if err != nil {
			return err
		}
		fmt.Println("day", day)
		for _, m := range []struct{ machine, group, user string }{{"laptop", "engineering", "ada"}, {"phone", "guests", "bob"}} {
			as, err := v.register(ctx, m.machine, m.group, m.user)
			if err != nil {
				return err
			}
			fmt.Println(m.machine, as[0].Address, as[1].Address)
		}
		if day == 1 {
			if err := db.Close(); err != nil {
				return err
			}
			continue
		}
		if err := v.fix(ctx, "printer", "100.64.8.77"); err != nil {
			return err
		}
		var held *ipalloc.Error
		if err := v.fix(ctx, "impostor", "100.64.8.77"); errors.As(err, &held) && errors.Is(err, ipalloc.ErrOccupied) {
			fmt.Println("100.64.8.77 is taken by", held.Holder)
		}
		freed, err := v.engine.ReleaseByHandle(ctx, "printer")
		if err != nil {
			return err
		}
		err = v.fix(ctx, "impostor", "100.64.8.77")
		fmt.Println("released", freed, "refused to another:", errors.Is(err, ipalloc.ErrCooling))
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
