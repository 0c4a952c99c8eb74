// Command cluster does the addressing of a small cluster, all of it in one file: a block of each family for a node, addresses of
// both for a pod, an address and a port for a service. What pods and services no longer use is found and freed.
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
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/servicealloc"
)

type cluster struct {
	db       *boltstore.Store
	pods     *ipset.Engine
	services *journal.Journal[*servicealloc.Registry]
}

// open opens the cluster that a file holds, or begins one.
func open(ctx context.Context, file string) (c *cluster, err error) {
	c = new(cluster)
	if c.db, err = boltstore.Open(ctx, file, boltstore.Options{}); err != nil {
		return nil, err
	}
	if err = errors.Join(c.openPods(ctx), c.openServices(ctx)); err != nil {
		return nil, errors.Join(err, c.db.Close())
	}
	return c, nil
}

func (c *cluster) openPods(ctx context.Context) (err error) {
	if c.pods, err = ipset.New(c.db, ipset.Options{}); err != nil {
		return err
	}
	if err := c.pods.Operator().SetConfig(ctx, alloc.Config{Strict: true}); err != nil { // a pod's address lies in its node's block
		return err
	}
	for _, p := range []alloc.Pool{
		{Name: "pods4", Prefix: netip.MustParsePrefix("10.244.0.0/16"), BlockBits: 24},
		{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:244::/48"), BlockBits: 64},
	} {
		p.MaxBlocksPerHost, p.Cooldown = 1, time.Minute
		if err := c.pods.AddPool(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) openServices(ctx context.Context) (err error) {
	c.services, err = journal.OpenRegistry(ctx, c.db, "services", servicealloc.PortRange{First: 30000, Last: 32767}, servicealloc.LowestFirst())
	if err != nil {
		return err
	}
	r := servicealloc.RangeInfo{Name: "services", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/20")}}
	_, err = journal.Do(ctx, c.services, func(s *servicealloc.Registry) (bool, error) { return true, s.SetRange(r) })
	return err
}

// dual asks for an IPv4 and an IPv6 address on a node, both or none. The node keeps the first two addresses of its blocks, for
// itself and for the gateway, and the last one.
func dual(node, handle string) alloc.AssignArgs {
	return alloc.AssignArgs{Owner: alloc.HostOwner(node), Num4: 1, Num6: 1, Head: 2, Tail: 1, Claim: alloc.Claim{Handle: handle}}
}

// join returns the pod prefixes of a node.
func (c *cluster) join(ctx context.Context, node string) ([]netip.Prefix, error) {
	return c.pods.EnsureBlock(ctx, dual(node, ""))
}

// start returns the addresses of a pod: again, those that it has.
func (c *cluster) start(ctx context.Context, node, pod string) (ips []netip.Addr, err error) {
	args := dual(node, pod)
	args.Existing = true
	got, err := c.pods.AutoAssign(ctx, args)
	for _, a := range append(got.V4, got.V6...) {
		ips = append(ips, a.Address)
	}
	return ips, err
}

// stop frees the addresses of a pod.
func (c *cluster) stop(ctx context.Context, pod string) error {
	_, err := c.pods.ReleaseByHandle(ctx, pod)
	return err
}

// leave frees what a node has: the addresses of its pods, and its blocks.
func (c *cluster) leave(ctx context.Context, node string) error {
	_, _, err := c.pods.RemoveHost(ctx, alloc.HostOwner(node))
	return err
}

// expose gives a service an address and a node port: again, those that it has.
func (c *cluster) expose(ctx context.Context, service string) (servicealloc.Grant, error) {
	return journal.Do(ctx, c.services, func(s *servicealloc.Registry) (servicealloc.Grant, error) {
		if g, ok := s.Get(service); ok {
			return g, nil
		}
		return s.Allocate(service, servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}, Ports: []servicealloc.Port{{}}})
	})
}

// hide takes them back; it may be repeated.
func (c *cluster) hide(ctx context.Context, service string) error {
	_, err := journal.Do(ctx, c.services, func(s *servicealloc.Registry) (servicealloc.Grant, error) { return s.Release(service, 0) })
	if errors.Is(err, ipalloc.ErrNotHeld) {
		return nil
	}
	return err
}

// collect frees what pods hold that do not run: the messages of their end were lost.
func (c *cluster) collect(ctx context.Context, runs func(pod string) bool) ([]alloc.Allocation, error) {
	return c.pods.Operator().NewCollector(0).Collect(ctx, func(a alloc.Allocation) alloc.Liveness {
		if runs(a.Handle) {
			return alloc.Alive
		}
		return alloc.Gone
	})
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "cluster")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for day := 1; day <= 2; day++ { // the second time, everything is there already
		if err := work(ctx, filepath.Join(dir, "cluster.db"), day); err != nil {
			return err
		}
	}
	return nil
}

func work(ctx context.Context, file string, day int) error {
	c, err := open(ctx, file)
	if err != nil {
		return err
	}
	defer c.db.Close()
	fmt.Println("day", day)
	for _, node := range []string{"node-a", "node-b"} {
		blocks, err := c.join(ctx, node)
		if err != nil {
			return err
		}
		pod, err := c.start(ctx, node, "web-"+node)
		if err != nil {
			return err
		}
		fmt.Println(node, blocks, pod)
	}
	web, err := c.expose(ctx, "web")
	if err != nil {
		return err
	}
	fmt.Println("web", web.Addrs, web.Ports[0].Number)
	if day == 1 {
		return nil
	}
	if err := c.leave(ctx, "node-b"); err != nil {
		return err
	}
	freed, err := c.collect(ctx, func(pod string) bool { return false })
	if err != nil {
		return err
	}
	fmt.Println("freed", len(freed), "of pods that are gone")
	us, err := c.pods.Utilization(ctx)
	for _, u := range us {
		fmt.Println(u.Pool, "used", u.Used, "cooling", u.Cooling, "blocks", len(u.Blocks))
	}
	return errors.Join(err, c.hide(ctx, "web"))
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
