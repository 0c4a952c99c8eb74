// Command dhcp is a DHCP server for one IPv4 subnet: 192.168.1.0/24, whose server and router is 192.168.1.1. Leases and
// reservations are in a file and survive a crash. A client gets its last address again while that is free.
//
// Without flags it plays four clients through a day and prints each step. With -interface it serves real clients:
//
//	ip addr add 192.168.1.1/24 dev eth1
//	dhcp -interface eth1 -file leases.db -range 192.168.1.100-192.168.1.199 -reserve 02:00:00:00:00:09=192.168.1.9
//
// leases.go is the allocation part, wire.go the protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func main() {
	iface := flag.String("interface", "", "serve clients on this interface")
	file := flag.String("file", "leases.db", "file of the leases")
	dynamic := flag.String("range", "192.168.1.100-192.168.1.199", "addresses for clients without a reservation")
	var reserved []string
	flag.Func("reserve", "client=address, such as 02:00:00:00:00:09=192.168.1.9; may be repeated", func(s string) error {
		reserved = append(reserved, s)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *iface != "" {
		err = serve(ctx, *iface, *file, *dynamic, reserved)
	} else {
		err = play(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, iface, file, dynamic string, reserved []string) error {
	addresses, err := netipx.ParseIPRange(dynamic)
	if err != nil {
		return err
	}
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := open(ctx, db, addresses, nil)
	if err != nil {
		return err
	}
	for _, r := range reserved {
		client, text, _ := strings.Cut(r, "=")
		a, err := netip.ParseAddr(text)
		if err == nil {
			err = l.reserve(ctx, client, a)
		}
		if err != nil {
			return fmt.Errorf("reserve %s: %w", r, err)
		}
	}
	fmt.Println("serving on", iface)
	return (&server{l, os.Stdout}).serve(ctx, iface)
}

// play shows the calls on a range of three addresses, with a clock of its own.
func play(ctx context.Context) error {
	db := store.NewMemory()
	now := time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)
	dynamic := netipx.MustParseIPRange("192.168.1.100-192.168.1.102")
	l, err := open(ctx, db, dynamic, func() time.Time { return now })
	if err != nil {
		return err
	}
	step := func(what string, a netip.Addr, err error) {
		switch {
		case errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling):
			fmt.Println(what, "and gets none: every address is leased or in quarantine")
		case err != nil:
			fmt.Println(what, "and is answered:", err)
		default:
			fmt.Println(what, a)
		}
	}
	none := netip.Addr{}
	static := netip.MustParseAddr("192.168.1.9")
	step("The printer has a reservation:", static, l.reserve(ctx, "printer", static))
	a, err := l.discover(ctx, "ann", none)
	step("Ann asks for an address and is offered", a, err)
	step("Ann accepts and leases", a, l.request(ctx, "ann", a))
	step("Bob asks for the address of Ann,", a, l.request(ctx, "bob", a))
	b, err := l.discover(ctx, "bob", a)
	step("Bob wishes that address and is offered", b, err)
	p, err := l.discover(ctx, "printer", none)
	step("The printer asks and is offered", p, err)
	now = now.Add(leaseTime + cooldown/2)
	step("Ann comes back after the end of her lease, asks to keep her address and leases", a, l.resume(ctx, "ann", a))
	if l, err = open(ctx, db, dynamic, func() time.Time { return now }); err != nil {
		return err
	}
	step("The server restarts. Ann renews her lease of", a, l.request(ctx, "ann", a))
	step("A client of another server on this wire wants to renew 192.168.1.200", none, l.request(ctx, "eve", netip.MustParseAddr("192.168.1.200")))
	b, err = l.discover(ctx, "bob", none)
	step("Bob asks again and is offered", b, err)
	step("Bob finds something else at that address and declines", b, l.decline(ctx, "bob", b))
	c, err := l.discover(ctx, "bob", none)
	step("Bob asks again and is offered", c, err)
	_, err = l.discover(ctx, "carol", none)
	step("Carol asks", none, err)
	step("Ann releases", a, l.release(ctx, "ann", a))
	now = now.Add(cooldown)
	d, err := l.discover(ctx, "carol", none)
	step("Ten minutes later Carol asks again and is offered", d, err)
	return nil
}
