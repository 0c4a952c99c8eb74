// Command docker is a remote IPAM driver of Docker. A subnet and its pool of addresses are one commit to a file.
//
//	go run . -socket /run/docker/plugins/ipalloc.sock -file /var/lib/ipalloc.db
//	docker network create --ipam-driver ipalloc blue
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Subnets come from these prefixes: the first of a family unless the user names one.
var roots = []netip.Prefix{
	netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("fd00::/8"),
}

// driver serves the calls of Docker.
type driver struct {
	db      store.Store
	engine  *ipset.Engine
	subnets *prefixes.Allocator
}

func newDriver(ctx context.Context, db store.Store) (*driver, error) {
	engine, err := ipset.New(db, ipset.Options{})
	if err != nil {
		return nil, err
	}
	subnets, err := prefixes.New(db, prefixes.Options{})
	for _, root := range roots {
		if err == nil { // a pool that is there already stays as it is
			err = subnets.AddPool(ctx, prefixes.Pool{Prefix: root, Sizes: prefixes.Sizes{Shortest: root.Bits(), Longest: root.Addr().BitLen() - 1}})
		}
	}
	return &driver{db, engine, subnets}, err
}

// message has the fields of all requests and answers.
type message struct {
	Error                                               string   `json:",omitempty"`
	Implements                                          []string `json:",omitempty"`
	LocalDefaultAddressSpace, GlobalDefaultAddressSpace string   `json:",omitempty"`
	PoolID, Pool, SubPool, Address                      string   `json:",omitempty"`
	V6                                                  bool     `json:",omitempty"`
}

func (d *driver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req message
	_ = json.NewDecoder(r.Body).Decode(&req) // some calls have no body
	answer, err := d.call(r.Context(), r.URL.Path, req)
	if err != nil {
		answer = message{Error: err.Error()}
	}
	w.Header().Set("Content-Type", "application/vnd.docker.plugins.v1.2+json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (d *driver) call(ctx context.Context, path string, r message) (message, error) {
	switch path {
	case "/Plugin.Activate":
		return message{Implements: []string{"IpamDriver"}}, nil
	case "/IpamDriver.GetCapabilities":
		return message{}, nil
	case "/IpamDriver.GetDefaultAddressSpaces":
		return message{LocalDefaultAddressSpace: "ipalloc", GlobalDefaultAddressSpace: "ipalloc"}, nil
	case "/IpamDriver.RequestPool":
		return d.requestPool(ctx, r)
	case "/IpamDriver.ReleasePool":
		return message{}, d.releasePool(ctx, r.PoolID)
	case "/IpamDriver.RequestAddress":
		return d.requestAddress(ctx, r)
	case "/IpamDriver.ReleaseAddress":
		address, err := netip.ParseAddr(r.Address)
		if err == nil {
			_, err = d.engine.ReleaseIPs(ctx, alloc.Release{Address: address})
		}
		return message{}, err
	}
	return message{}, fmt.Errorf("unknown call %s", path)
}

// requestPool takes a subnet and makes it a pool of addresses, both or neither.
func (d *driver) requestPool(ctx context.Context, r message) (message, error) {
	var pool alloc.Pool
	err := store.Together(ctx, d.db, func(tx store.Store) error {
		in, err := newDriver(ctx, tx)
		if err != nil {
			return err
		}
		subnet, err := in.subnet(ctx, r)
		if err != nil {
			return err
		}
		// One block, lowest address first; no network and broadcast address.
		pool = alloc.Pool{Name: subnet.String(), Prefix: subnet, BlockBits: subnet.Bits(), Order: alloc.Lowest, Subnet: true, Manual: true}
		if part, err := netip.ParsePrefix(r.SubPool); err == nil {
			pool.Ranges = []netipx.IPRange{netipx.RangeOfPrefix(part.Masked())}
		} else if r.SubPool != "" {
			return err
		}
		return in.engine.AddPool(ctx, pool)
	})
	return message{PoolID: pool.Name, Pool: pool.Name}, err
}

// subnet takes the subnet that the user names, or the next one of the family.
func (d *driver) subnet(ctx context.Context, r message) (netip.Prefix, error) {
	if r.Pool == "" {
		root, bits := roots[0], 24
		if r.V6 {
			root, bits = roots[3], 64
		}
		h, err := d.subnets.Allocate(ctx, prefixes.Request{Pool: root, Owner: "docker", Bits: bits})
		return h.Prefix, err
	}
	named, err := netip.ParsePrefix(r.Pool)
	if err != nil {
		return named, err
	}
	for _, root := range roots {
		if root.Overlaps(named) {
			_, err := d.subnets.Occupy(ctx, named.Masked(), prefixes.Request{Pool: root, Owner: "docker", New: true})
			return named.Masked(), err
		}
	}
	return named, fmt.Errorf("%s is in none of %v", named, roots)
}

// releasePool ends a pool without addresses, then its subnet. It may be repeated.
func (d *driver) releasePool(ctx context.Context, id string) error {
	subnet, err := netip.ParsePrefix(id)
	if err == nil {
		err = d.engine.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{id}, IfEmpty: true})
	}
	if err != nil {
		return err
	}
	return d.subnets.Release(ctx, subnet, "docker")
}

func (d *driver) requestAddress(ctx context.Context, r message) (message, error) {
	subnet, err := netip.ParsePrefix(r.PoolID)
	if err != nil {
		return message{}, err
	}
	a := alloc.AssignArgs{Owner: alloc.HostOwner("docker"), Pools: []string{r.PoolID}}
	var named []netip.Addr
	if at, err := netip.ParseAddr(r.Address); err == nil {
		named = []netip.Addr{at}
	} else if r.Address != "" {
		return message{}, err
	} else if subnet.Addr().Is4() {
		a.Num4 = 1
	} else {
		a.Num6 = 1
	}
	got, err := d.engine.AssignIPs(ctx, a, named...)
	if err != nil {
		return message{}, err
	}
	address := append(got.V4, got.V6...)[0].Address
	return message{Address: netip.PrefixFrom(address, subnet.Bits()).String()}, nil
}

func main() {
	socket := flag.String("socket", "/run/docker/plugins/ipalloc.sock", "the `path` of the socket")
	file := flag.String("file", "ipalloc.db", "the `path` of the store")
	flag.Parse()
	ctx := context.Background()
	db, err := boltstore.Open(ctx, *file, boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	d, err := newDriver(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	_ = os.Remove(*socket) // of an earlier process: the file of the store has one owner at a time
	l, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(l, d))
}
