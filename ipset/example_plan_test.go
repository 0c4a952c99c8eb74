package ipset_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// site is a line of the file that describes a network: a prefix, and addresses of machines in it.
type site struct {
	name     string
	bits     int
	machines []string
}

// apply makes the missing parts of a network in one commit, or none of them, and returns a line for each.
func apply(ctx context.Context, db store.Store, network netip.Prefix, sites []site) (made []string, err error) {
	err = store.Together(ctx, db, func(tx store.Store) error {
		made = nil
		plan, err := prefixes.New(tx, prefixes.Options{})
		if err != nil {
			return err
		}
		engine, err := ipset.New(tx, ipset.Options{})
		if err != nil {
			return err
		}
		for _, s := range sites {
			held, err := plan.Owned(ctx, s.name)
			if err != nil {
				return err
			}
			if len(held) == 0 {
				h, err := plan.Assign(ctx, prefixes.Request{Pool: network, Owner: s.name, Bits: s.bits})
				if err == nil {
					err = engine.AddPool(ctx, alloc.Pool{Name: s.name, Prefix: h.Prefix, Order: alloc.Lowest})
				}
				if err != nil {
					return err
				}
				made = append(made, fmt.Sprint("+ ", s.name, " ", h.Prefix))
			}
			for _, m := range s.machines {
				held, err := engine.IPsByHandle(ctx, m)
				if err == nil && len(held) == 0 {
					var got alloc.Assigned
					got, err = engine.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.VirtualOwner(s.name), Handle: m, Num4: 1, Pools: []string{s.name}, Existing: true})
					if err == nil {
						made = append(made, fmt.Sprint("+ ", m, " ", got.V4[0].Address))
					}
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return made, err
}

// Plan and apply, as Terraform does it: the same function on an overlay of the store shows the changes and writes nothing; on the
// store it makes them all in one commit. A repetition finds nothing to do.
func Example_planAndApply() {
	ctx, db := context.Background(), store.NewMemory()
	network := netip.MustParsePrefix("10.0.0.0/16")
	plan, err := prefixes.New(db, prefixes.Options{})
	must(err)
	must(plan.AddPool(ctx, prefixes.Pool{Prefix: network, Sizes: prefixes.Sizes{Shortest: 20, Longest: 24}}))
	sites := []site{{"berlin", 22, []string{"db-1", "web-1"}}, {"paris", 24, []string{"web-2"}}}

	for _, to := range []struct {
		name string
		db   store.Store
	}{{"plan", store.NewOverlay(db)}, {"apply", db}, {"repeat", db}} {
		made, err := apply(ctx, to.db, network, sites)
		fmt.Println(to.name, made, err)
	}
	// Output:
	// plan [+ berlin 10.0.0.0/22 + db-1 10.0.0.0 + web-1 10.0.0.1 + paris 10.0.4.0/24 + web-2 10.0.4.0] <nil>
	// apply [+ berlin 10.0.0.0/22 + db-1 10.0.0.0 + web-1 10.0.0.1 + paris 10.0.4.0/24 + web-2 10.0.4.0] <nil>
	// repeat [] <nil>
}
