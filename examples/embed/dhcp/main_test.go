package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/examples/embed/internal/crash"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A day of four clients.
func Example() {
	main()
	// Output:
	// The printer has a reservation: 192.168.1.9
	// Ann asks for an address and is offered 192.168.1.100
	// Ann accepts and leases 192.168.1.100
	// Bob asks for the address of Ann, and is answered: NAK
	// Bob wishes that address and is offered 192.168.1.101
	// The printer asks and is offered 192.168.1.9
	// Ann comes back after the end of her lease, asks to keep her address and leases 192.168.1.100
	// The server restarts. Ann renews her lease of 192.168.1.100
	// A client of another server on this wire wants to renew 192.168.1.200 and is answered: no answer
	// Bob asks again and is offered 192.168.1.101
	// Bob finds something else at that address and declines 192.168.1.101
	// Bob asks again and is offered 192.168.1.102
	// Carol asks and gets none: every address is leased or in quarantine
	// Ann releases 192.168.1.100
	// Ten minutes later Carol asks again and is offered 192.168.1.101
}

func TestMain(m *testing.M) {
	if args := os.Getenv(serverVariable); args != "" { // this process is the server of TestRealClients
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		return
	}
	crash.Main(m, storm)
}

// serverVariable has the flags of the program that a test wants the test binary to be.
const serverVariable = "EMBED_DHCP_SERVE"

var hundred = netipx.MustParseIPRange("192.168.1.100-192.168.1.199")

// storm has twenty clients lease, release and decline addresses, and forty requests of a reserved one.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	l, err := open(ctx, db, hundred, time.Now)
	for err == nil {
		mac := fmt.Sprint("aa:", random.IntN(20))
		err = do(mac, func() ([]string, error) {
			a, err := l.discover(ctx, mac, netip.Addr{})
			if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling) { // declined addresses are out of use
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			switch random.IntN(8) {
			case 0:
				return nil, l.decline(ctx, mac, a)
			case 1, 2:
				return nil, l.release(ctx, mac, a)
			}
			return []string{a.String()}, l.request(ctx, mac, a)
		})
	}
	return err
}

// After the server was killed, a client alone has what it was told is its own.
func TestKilled(t *testing.T) {
	crash.Test(t, func(_ string, holds []string) bool { return len(holds) <= 1 }, func(t *testing.T, file string) map[string][]string {
		db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l, err := open(t.Context(), db, hundred, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return crash.Held(t, l.engine)
	})
}

// The three answers to a client that wants to keep an address: its own, a NAK, silence.
func TestAnswers(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, err := open(ctx, store.NewMemory(), netipx.MustParseIPRange("192.168.1.100-192.168.1.101"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	if err := l.reserve(ctx, "printer", addr("192.168.1.9")); err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{"ann", "bob"} {
		a, err := l.discover(ctx, client, netip.Addr{})
		if err == nil {
			err = l.request(ctx, client, a)
		}
		if err != nil {
			t.Fatal(client, err)
		}
	}
	for _, test := range []struct {
		client, address string
		want            error
	}{
		{"ann", "192.168.1.100", nil},
		{"bob", "192.168.1.101", nil},
		{"ann", "192.168.1.101", errNAK},     // of Bob
		{"ann", "192.168.1.55", errNAK},      // outside of the range
		{"ann", "10.0.0.7", errNAK},          // of another network
		{"eve", "192.168.1.200", errSilent},  // a lease of another server, perhaps
		{"printer", "192.168.1.100", errNAK}, // of Ann, and another is reserved
		{"printer", "192.168.1.9", nil},      // never leased before
		{"printer", "192.168.1.9", nil},      // leased
	} {
		if err := l.resume(ctx, test.client, addr(test.address)); !errors.Is(err, test.want) {
			t.Errorf("resume %s %s: %v, want %v", test.client, test.address, err, test.want)
		}
		if test.address == "192.168.1.55" || test.address == "10.0.0.7" {
			continue // not held: RenewIP leaves it to resume
		}
		if err := l.request(ctx, test.client, addr(test.address)); !errors.Is(err, test.want) {
			t.Errorf("request %s %s: %v, want %v", test.client, test.address, err, test.want)
		}
	}
	// A reservation outlives the release of its address.
	if err := l.release(ctx, "printer", addr("192.168.1.9")); err != nil {
		t.Fatal(err)
	}
	if a, err := l.discover(ctx, "printer", netip.Addr{}); a != addr("192.168.1.9") {
		t.Error(a, err)
	}
}

// After another range has been set, each client moves there, at its next renewal or when it asks for an address, and one that does neither
// loses its lease at its end.
func TestRangeDrains(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	db := store.NewMemory()
	l, err := open(ctx, db, netipx.MustParseIPRange("192.168.1.100-192.168.1.102"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	lease := func(client string) (a netip.Addr) {
		t.Helper()
		a, err := l.discover(ctx, client, netip.Addr{})
		if err == nil {
			err = l.request(ctx, client, a)
		}
		if err != nil {
			t.Fatal(client, err)
		}
		return a
	}
	ann, bob := lease("ann"), lease("bob")
	lease("gone")
	if l, err = open(ctx, db, netipx.MustParseIPRange("192.168.1.200-192.168.1.202"), func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	if err := l.request(ctx, "ann", ann); !errors.Is(err, errNAK) {
		t.Errorf("Ann renews: %v", err)
	}
	if err := l.resume(ctx, "bob", bob); !errors.Is(err, errNAK) {
		t.Errorf("Bob after a restart: %v", err)
	}
	for _, client := range []string{"ann", "bob"} {
		if a := lease(client); a.As4()[3] < 200 {
			t.Errorf("%s has %v", client, a)
		}
	}
	now = now.Add(leaseTime - time.Minute)
	for _, client := range []string{"ann", "bob"} {
		lease(client)
	}
	now = now.Add(2 * time.Minute)
	for al, err := range l.engine.Allocations(ctx, netip.Prefix{}) {
		if err != nil || !al.Cooling && al.Address.As4()[3] < 200 {
			t.Errorf("%+v, %v", al, err)
		}
	}
}
