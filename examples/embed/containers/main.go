// Command containers does the addressing of a container runtime on one machine: a subnet for
// each network, an address for each container, a port of the host for each published one. Each
// allocator is a journal in one file: what was handed out is there after any crash.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/servicealloc"
)

type runtime struct {
	db      *boltstore.Store
	subnets *journal.Journal[*cidrset.Set]
	ports   *journal.Journal[*servicealloc.Ports]
}

func open(ctx context.Context, file string) (r *runtime, err error) {
	r = new(runtime)
	if r.db, err = boltstore.Open(ctx, file, boltstore.Options{}); err != nil {
		return nil, err
	}
	r.subnets, err = journal.OpenSet(ctx, r.db, "subnets", netip.MustParsePrefix("172.20.0.0/14"), 24)
	if err == nil {
		ephemeral := servicealloc.PortRange{First: 49152, Last: 65535}
		r.ports, err = journal.OpenPorts(ctx, r.db, "ports", ephemeral, servicealloc.LowestFirst(), servicealloc.StaticBand(0))
	}
	if err != nil {
		return nil, errors.Join(err, r.db.Close())
	}
	return r, nil
}

// network is a subnet with the addresses of its containers. A runtime records which network has which subnet.
type network struct {
	subnet    netip.Prefix
	addresses *journal.Journal[*servicealloc.Range]
}

// openNetwork opens the network of a subnet that has been handed out.
func (r *runtime) openNetwork(ctx context.Context, p netip.Prefix) (*network, error) {
	j, err := journal.OpenRange(ctx, r.db, "network/"+p.String(), p, servicealloc.LowestFirst(), servicealloc.StaticBand(0))
	return &network{p, j}, err
}

// createNetwork takes the next subnet, or the one that is asked for.
func (r *runtime) createNetwork(ctx context.Context, asked netip.Prefix) (*network, error) {
	p, err := journal.Do(ctx, r.subnets, func(s *cidrset.Set) (netip.Prefix, error) {
		if asked.IsValid() {
			return asked, s.Claim(asked)
		}
		return s.AllocateNext()
	})
	if err != nil {
		return nil, err
	}
	return r.openNetwork(ctx, p)
}

// removeNetwork forgets the addresses of a network and gives its subnet back.
func (r *runtime) removeNetwork(ctx context.Context, n *network) error {
	if err := n.addresses.Drop(ctx); err != nil {
		return err
	}
	_, err := journal.Do(ctx, r.subnets, func(s *cidrset.Set) (uint64, error) { return s.Release(n.subnet) })
	return err
}

// address gives a container an address.
func (n *network) address(ctx context.Context) (netip.Addr, error) {
	return journal.Do(ctx, n.addresses, func(a *servicealloc.Range) (netip.Addr, error) {
		ip, _, err := a.AllocateNext()
		return ip, err
	})
}

// publish takes a port of the host, for all protocols.
func (r *runtime) publish(ctx context.Context) (uint16, error) {
	return journal.Do(ctx, r.ports, func(a *servicealloc.Ports) (uint16, error) {
		port, _, err := a.AllocateNext()
		return port, err
	})
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "containers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "runtime.db")
	r, err := open(ctx, file)
	if err != nil {
		return err
	}
	front, err := r.createNetwork(ctx, netip.Prefix{})
	if err != nil {
		return err
	}
	if _, err := r.createNetwork(ctx, front.subnet); errors.Is(err, ipalloc.ErrOccupied) {
		fmt.Println("refused:", err)
	}
	web, err := front.address(ctx)
	if err != nil {
		return err
	}
	if err := r.db.Close(); err != nil { // the runtime is restarted
		return err
	}
	if r, err = open(ctx, file); err != nil {
		return err
	}
	defer r.db.Close()
	if front, err = r.openNetwork(ctx, front.subnet); err != nil {
		return err
	}
	db, err := front.address(ctx)
	if err != nil {
		return err
	}
	port, err := r.publish(ctx)
	if err != nil {
		return err
	}
	fmt.Println(front.subnet, web, db, "port", port)
	if err := r.removeNetwork(ctx, front); err != nil {
		return err
	}
	names, err := journal.Names(ctx, r.db)
	fmt.Println("left:", names)
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
