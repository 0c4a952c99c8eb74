// Command loadbalancer gives services of type LoadBalancer their addresses: from the pool that
// the service names, else the one that the labels of its namespace select; the address
// that it asks for, if it asks for one, alone or with others. A pass over all services makes what is held agree with
// what is wanted, so that it may be stopped anywhere and run again.
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
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// controller owns all blocks. It is no machine, so pools that select nodes do not serve it.
var controller = alloc.Owner{Kind: alloc.Virtual, Name: "loadbalancer"}

type service struct {
	name      string            // namespace/name
	namespace map[string]string // labels
	pool      string            // empty: as the labels say
	address   netip.Addr        // asked for; the zero Addr: any
	share     string            // services that have this in common may share an address, on different ports
	addresses []netip.Addr      // status.loadBalancer.ingress
}

// ensure returns the address of a service, and gives it one if it has none.
func ensure(ctx context.Context, e *ipset.Engine, s *service) (err error) {
	claim := alloc.Claim{Handle: s.name}
	if s.share != "" {
		claim.Share = alloc.Share{Max: 2, Key: s.share}
	}
	if s.address.IsValid() {
		a, err := e.AssignIP(ctx, ipset.AssignIPArgs{Address: s.address, Owner: controller, Claim: claim, Use: alloc.LoadBalancer})
		if err == nil {
			s.addresses = []netip.Addr{a.Address}
		}
		return err
	}
	args := ipset.AssignArgs{Owner: controller, Num4: 1, Claim: claim, Use: alloc.LoadBalancer, Namespace: s.namespace, Existing: true}
	if s.pool != "" {
		args.Pools = []string{s.pool}
	}
	got, err := e.AutoAssign(ctx, args)
	if err == nil {
		s.addresses = []netip.Addr{got.V4[0].Address}
	}
	return err
}

// pending reports whether a service has to wait: for a free address, or for the one that it asks for.
func pending(err error) bool {
	for _, why := range []error{ipalloc.ErrFull, ipalloc.ErrOccupied, ipalloc.ErrLimit, ipalloc.ErrMismatch} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// reconcile serves every service, and gives back what services held that are gone.
func reconcile(ctx context.Context, e *ipset.Engine, c *ipset.Collector, services []*service) error {
	exists := make(map[string]bool)
	for _, s := range services {
		exists[s.name] = true
		var why *ipalloc.Error
		if err := ensure(ctx, e, s); errors.As(err, &why) && pending(err) {
			fmt.Println(s.name, "is pending:", err) // an event; the next pass tries again
		} else if err != nil {
			return err
		} else {
			fmt.Println(s.name, s.addresses)
		}
	}
	gone, err := c.Collect(ctx, func(a alloc.Allocation) ipset.Liveness {
		if exists[a.Handle] {
			return ipset.Alive
		}
		return ipset.Gone
	})
	for _, a := range gone {
		fmt.Println(a.Handle, "is gone and gave back", a.Address)
	}
	return err
}

// open returns the engine of a store, with its pools.
func open(ctx context.Context, db store.Store) (*ipset.Engine, error) {
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		return nil, err
	}
	internal := selector.Selector{{Labels: []selector.Requirement{{Key: "tier", Op: selector.In, Values: []string{"internal"}}}}}
	for _, p := range []ipset.Pool{
		{Name: "internal", Prefix: netip.MustParsePrefix("10.9.0.0/28"), BlockBits: 28, Namespaces: internal, Priority: 10},
		{Name: "public", Prefix: netip.MustParsePrefix("203.0.113.0/31"), BlockBits: 31},
	} {
		p.Uses = alloc.LoadBalancer
		if err := engine.AddPool(ctx, p); err != nil {
			return nil, err
		}
	}
	return engine, nil
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "lb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := boltstore.Open(ctx, filepath.Join(dir, "lb.db"), boltstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := open(ctx, db)
	if err != nil {
		return err
	}
	c := engine.Operator().NewCollector(time.Minute)
	web := &service{name: "shop/web"}
	dns := &service{name: "shop/dns", address: netip.MustParseAddr("203.0.113.1"), share: "edge"}
	dot := &service{name: "shop/dns-tls", address: dns.address, share: "edge"}
	mail := &service{name: "shop/mail", address: dns.address}
	db2 := &service{name: "data/db", namespace: map[string]string{"tier": "internal"}}
	late := &service{name: "shop/late", pool: "public"}
	if err := reconcile(ctx, engine, c, []*service{web, dns, dot, mail, db2, late}); err != nil {
		return err
	}
	fmt.Println("dns is deleted")
	if err := reconcile(ctx, engine, c, []*service{web, dot, db2}); err != nil {
		return err
	}
	fmt.Println("dns-tls is deleted")
	if err := reconcile(ctx, engine, c, []*service{web, db2}); err != nil {
		return err
	}
	return reconcile(ctx, engine, c, []*service{web, db2, late})
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
