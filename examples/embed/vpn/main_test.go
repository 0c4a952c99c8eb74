package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/examples/embed/internal/crash"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Machines keep their addresses over a restart.
func Example() {
	random = rand.NewPCG(1, 2)
	defer func() { random = nil }()
	main()
	// Output:
	// day 1 of the program
	// acme's laptop has [100.64.8.84 fd7a:115c:a1e0:8:374a:c936:b587:f5c7]
	// acme's phone has [100.64.19.13 fd7a:115c:a1e0:88c4:4284:7fc9:31a:6802]
	// globex's laptop has [100.64.9.162 fd7a:115c:a1e0:8:a55a:f42c:53f0:5324]
	// globex's phone has [100.64.18.222 fd7a:115c:a1e0:88c4:22ec:43c3:736e:9c14]
	// day 2 of the program
	// acme's laptop has [100.64.8.84 fd7a:115c:a1e0:8:374a:c936:b587:f5c7]
	// acme's phone has [100.64.19.13 fd7a:115c:a1e0:88c4:4284:7fc9:31a:6802]
	// globex's laptop has [100.64.9.162 fd7a:115c:a1e0:8:a55a:f42c:53f0:5324]
	// globex's phone has [100.64.18.222 fd7a:115c:a1e0:88c4:22ec:43c3:736e:9c14]
	// ada's machines at globex: [laptop phone]
	// the impostor asks for 100.64.8.77: refused, the printer holds it
	// the printer is removed and releases [100.64.8.77]
	// the impostor asks again: refused because the address cools down: true
}

func TestMain(m *testing.M) { crash.Main(m, storm) }

var customers = []string{"acme", "globex"}

// storm registers and removes the machines of two customers.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	for err == nil {
		customer, i, remove := customers[random.IntN(2)], random.IntN(20), random.IntN(3) == 0
		v, oerr := open(ctx, db, customer)
		if oerr != nil {
			return oerr
		}
		machine, group := fmt.Sprint("m", i), []string{"everybody", "engineering"}[i%2]
		err = do(customer+"/"+machine, func() (holds []string, err error) {
			if remove {
				_, err := v.remove(ctx, machine)
				return nil, err
			}
			ips, err := v.register(ctx, machine, group, "ada")
			for _, ip := range ips {
				holds = append(holds, customer+"/"+ip.String())
			}
			return holds, err
		})
	}
	return err
}

// What a machine was told is its own, it has alone among those of its customer after the program was killed: both addresses or
// none.
func TestKilled(t *testing.T) {
	whole := func(_ string, holds []string) bool { return len(holds) == 0 || len(holds) == 2 }
	crash.Test(t, whole, func(t *testing.T, file string) map[string][]string {
		db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		have := make(map[string][]string)
		for _, customer := range customers {
			v, err := open(t.Context(), db, customer)
			if err != nil {
				t.Fatal(err)
			}
			held := crash.Held(t, v.engine)
			names, err := v.machines(t.Context(), "ada")
			if sorted := slices.Sorted(maps.Keys(held)); err != nil || !slices.Equal(names, sorted) {
				t.Errorf("%s has the machines %v, of which %v have addresses, %v", customer, names, sorted, err)
			}
			for machine, holds := range held {
				for _, ip := range holds {
					have[customer+"/"+machine] = append(have[customer+"/"+machine], customer+"/"+ip)
				}
			}
		}
		return have
	})
}
