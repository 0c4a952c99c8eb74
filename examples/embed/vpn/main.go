// Command vpn gives the machines of VPNs their addresses: one IPv4 and one IPv6 each, both or none, at random, from the range of
// the machine's group. Every customer has the same ranges, in a space of its own. A machine and its addresses are added and
// removed in one commit. A machine that asks again gets the same addresses; the addresses of a deleted machine cool for a day.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// gateway is the owner of all blocks: one process hands out every address.
var gateway = alloc.HostOwner("gateway")

// ranges are the ranges of one customer. A group has a range to itself, inside the range of everybody.
var ranges = []alloc.Pool{
	{Name: "everybody-4", Prefix: netip.MustParsePrefix("100.64.0.0/16"), BlockBits: 22},
	{Name: "everybody-6", Prefix: netip.MustParsePrefix("fd7a:115c:a1e0::/48"), BlockBits: 64},
	{Name: "engineering-4", Prefix: netip.MustParsePrefix("100.64.8.0/22"), BlockBits: 22},
	{Name: "engineering-6", Prefix: netip.MustParsePrefix("fd7a:115c:a1e0:8::/64"), BlockBits: 64},
}

// vpn is the VPN of a customer.
type vpn struct {
	engine *ipset.Engine
	store  store.Store // with a record of ours for each machine
}

// row is the key of the record of a machine. Keys that begin with an upper-case letter are ours.
func row(machine string) string { return "Machine/" + machine }

// random draws the seed of each customer's order of addresses; nil is the generator of the process.
var random rand.Source

// open returns the VPN of a customer.
func open(ctx context.Context, db store.Store, customer string) (*vpn, error) {
	in, err := store.Space(db, customer)
	if err != nil {
		return nil, err
	}
	engine, err := ipset.New(in, ipset.Options{Rand: random})
	if err != nil {
		return nil, err
	}
	for _, p := range ranges {
		p.Order, p.Cooldown = alloc.Random, 24*time.Hour
		p.Manual = true // only for calls that name it
		if err := engine.AddPool(ctx, p); err != nil {
			return nil, err
		}
	}
	return &vpn{engine, in}, nil
}

// register returns the addresses of a machine, the same ones each time it is called.
func (v *vpn) register(ctx context.Context, machine, group, user string) (ips []netip.Addr, err error) {
	got, err := v.engine.AutoAssign(ctx, alloc.AssignArgs{
		Owner: gateway, Num4: 1, Num6: 1, Handle: machine, Existing: true,
		Pools: []string{group + "-4", group + "-6"},
		Also:  []store.Op{{Kind: store.Put, Key: row(machine), Value: user}},
	})
	for _, a := range append(got.V4, got.V6...) {
		ips = append(ips, a.Address)
	}
	return ips, err
}

// machines returns the machines of a user.
func (v *vpn) machines(ctx context.Context, user string) (names []string, err error) {
	recs, _, err := v.store.List(ctx, store.Range{From: "Machine/", To: "Machine0"}) // '0' follows '/'
	for _, r := range recs {
		if r.Value == user {
			names = append(names, r.Key[len("Machine/"):])
		}
	}
	return names, err
}

// remove deletes a machine and takes its addresses back; it may be repeated.
func (v *vpn) remove(ctx context.Context, machine string) ([]netip.Addr, error) {
	return v.engine.Release(ctx, alloc.ReleaseArgs{
		Handle: machine, Also: []store.Op{{Kind: store.Delete, Key: row(machine), Expect: store.AnyRevision}},
	})
}

// fix gives a machine an address that it asks for; it may be repeated.
func (v *vpn) fix(ctx context.Context, machine, address string) error {
	_, err := v.engine.AssignIP(ctx, alloc.AssignIPArgs{
		Address: netip.MustParseAddr(address), Owner: gateway, Handle: machine,
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
		fmt.Println("day", day, "of the program")
		if err := work(ctx, filepath.Join(dir, "vpn.db"), day); err != nil {
			return err
		}
	}
	return nil
}

func work(ctx context.Context, file string, day int) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	var v *vpn
	for _, customer := range []string{"acme", "globex"} {
		if v, err = open(ctx, db, customer); err != nil {
			return err
		}
		for _, m := range []struct{ machine, group string }{{"laptop", "engineering"}, {"phone", "everybody"}} {
			ips, err := v.register(ctx, m.machine, m.group, "ada")
			if err != nil {
				return err
			}
			fmt.Println(customer+"'s", m.machine, "has", ips)
		}
	}
	if day == 1 {
		return nil
	}
	names, err := v.machines(ctx, "ada")
	if err != nil {
		return err
	}
	fmt.Println("ada's machines at globex:", names)
	if err := v.fix(ctx, "printer", "100.64.8.77"); err != nil {
		return err
	}
	var held *ipalloc.Error
	if err := v.fix(ctx, "impostor", "100.64.8.77"); errors.As(err, &held) && errors.Is(err, ipalloc.ErrOccupied) {
		fmt.Println("the impostor asks for 100.64.8.77: refused, the", held.Holder, "holds it")
	}
	freed, err := v.remove(ctx, "printer")
	if err != nil {
		return err
	}
	err = v.fix(ctx, "impostor", "100.64.8.77")
	fmt.Println("the printer is removed and releases", freed)
	fmt.Println("the impostor asks again: refused because the address cools down:", errors.Is(err, ipalloc.ErrCooling))
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
