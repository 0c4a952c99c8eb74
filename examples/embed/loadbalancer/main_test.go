package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/examples/embed/internal/crash"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Services get what they ask for, and give it back.
func Example() {
	main()
	// Output:
	// shop/web [203.0.113.0]
	// shop/dns [203.0.113.1]
	// shop/dns-tls [203.0.113.1]
	// shop/mail is pending: ipset: assign 203.0.113.1 for "virtual:loadbalancer": occupied, held by "shop/dns"
	// data/db [10.9.0.0]
	// shop/late is pending: ipset: assign for "virtual:loadbalancer" in "public": not enough addresses: full
	// dns is deleted
	// shop/web [203.0.113.0]
	// shop/dns-tls [203.0.113.1]
	// data/db [10.9.0.0]
	// shop/dns is gone and gave back 203.0.113.1
	// dns-tls is deleted
	// shop/web [203.0.113.0]
	// data/db [10.9.0.0]
	// shop/dns-tls is gone and gave back 203.0.113.1
	// shop/web [203.0.113.0]
	// data/db [10.9.0.0]
	// shop/late [203.0.113.1]
}

func TestMain(m *testing.M) { crash.Main(m, storm) }

// storm serves twenty services and takes from them what they have, with fewer addresses than services.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	e, err := open(ctx, db)
	for err == nil {
		i, ends := random.IntN(20), random.IntN(3) == 0
		s := &service{name: fmt.Sprint("s", i)}
		if i%3 > 0 {
			s.namespace = map[string]string{"tier": "internal"}
		}
		if i%4 == 0 {
			s.address, s.share = shared, "edge"
		}
		err = do(s.name, func() ([]string, error) {
			if ends {
				_, err := e.ReleaseByHandle(ctx, s.name)
				return nil, err
			}
			err := ensure(ctx, e, s)
			if err != nil && pending(err) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			return []string{s.addresses[0].String()}, nil
		})
	}
	return err
}

// shared is the address that some services share.
var shared = netip.MustParseAddr("203.0.113.1")

// What a service was told is its own, it has alone, or with one other where it is shared, after the controller was killed.
func TestKilled(t *testing.T) {
	crash.Test(t, map[string]int{shared.String(): 2}, func(_ string, holds []string) bool { return len(holds) <= 1 }, func(t *testing.T, file string) map[string][]string {
		db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		e, err := open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		return crash.Held(t, e)
	})
}
