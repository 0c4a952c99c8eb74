package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/examples/embed/internal/crash"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Leases begin, end and come back.
func Example() {
	main()
	// Output:
	// offer 192.168.1.100 request: <nil> by another: NAK
	// renew too late: NAK
	// after a restart 192.168.1.101 and 192.168.1.100 again
	// declined, offer 192.168.1.102 cooling: true
}

func TestMain(m *testing.M) { crash.Main(m, storm) }

// storm has twenty clients get, renew, release and decline leases.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	dynamic = netipx.MustParseIPRange("192.168.1.100-192.168.1.199")
	d, err := open(ctx, db, time.Now)
	for err == nil {
		mac := fmt.Sprint("aa:", random.IntN(20))
		err = do(mac, func() ([]string, error) {
			a, err := d.discover(ctx, mac)
			if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling) { // declined addresses are out of use
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			switch random.IntN(8) {
			case 0:
				return nil, d.decline(ctx, mac, a)
			case 1, 2:
				return nil, d.release(ctx, mac, a)
			}
			return []string{a.String()}, d.request(ctx, mac, a)
		})
	}
	return err
}

// What a client was told is its own, it has alone after the server was killed.
func TestKilled(t *testing.T) {
	crash.Test(t, func(_ string, holds []string) bool { return len(holds) <= 1 }, func(t *testing.T, file string) map[string][]string {
		db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		d, err := open(t.Context(), db, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return crash.Held(t, d.engine)
	})
}
