// Command prefixes is the address plan of a company: regions out of 10.0.0.0/8, clusters of different sizes out of a region,
// nodes out of a cluster. Each prefix has an owner and a parent. The program asks for it by the owner's name, and can repeat
// that.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var company = netip.MustParsePrefix("10.0.0.0/8")

// What each level hands out.
var (
	regions  = prefixes.Sizes{Shortest: 10, Longest: 12}
	clusters = prefixes.Sizes{Shortest: 14, Longest: 18}
	nodes    = prefixes.Sizes{Shortest: 24, Longest: 26}
)

type plan struct{ *prefixes.Allocator }

// open returns the plan that a store holds. Any number of programs may do so at once, on a store that they share.
func open(ctx context.Context, db store.Store) (plan, error) {
	a, err := prefixes.New(db, prefixes.Options{})
	if err == nil {
		err = a.AddPool(ctx, prefixes.Pool{Prefix: company, Sizes: regions}) // it may be repeated
	}
	return plan{a}, err
}

// region returns the prefix of a region, which is a pool for clusters.
func (p plan) region(ctx context.Context, name string, bits int) (prefixes.Holding, error) {
	return p.Assign(ctx, prefixes.Request{Pool: company, Owner: name, Bits: bits, Children: clusters})
}

// cluster returns the prefix of a cluster in a region. The attributes are the caller's.
func (p plan) cluster(ctx context.Context, region prefixes.Holding, name string, bits int) (prefixes.Holding, error) {
	return p.Assign(ctx, prefixes.Request{Pool: region.Prefix, Owner: region.Owner + "/" + name, Bits: bits, Children: nodes,
		Attributes: `{"contact":"` + name + `@example.com"}`})
}

// node returns the prefix of a node in a cluster.
func (p plan) node(ctx context.Context, cluster prefixes.Holding, name string) (netip.Prefix, error) {
	n, err := p.Assign(ctx, prefixes.Request{Pool: cluster.Prefix, Owner: cluster.Owner + "/" + name, Bits: 24})
	return n.Prefix, err
}

// whose returns the owners of an address, from the region down.
func (p plan) whose(ctx context.Context, a netip.Addr) (owners []string, err error) {
	path, err := p.Path(ctx, netip.PrefixFrom(a, a.BitLen()))
	for _, h := range path {
		owners = append(owners, h.Owner)
	}
	return owners, err
}

// report prints how full each level is, and whether one more large cluster would fit into a region.
func (p plan) report(ctx context.Context, region prefixes.Holding) error {
	levels, err := p.Levels(ctx, company)
	if err != nil {
		return err
	}
	for i, of := range []string{"regions", "clusters", "nodes"} {
		fmt.Printf("%s: %.3f %% of the level above is assigned, its largest free prefix is a /%d\n", of, 100*levels[i].Ratio(), levels[i].LargestFree())
	}
	next, err := p.Fits(ctx, region.Prefix, 14)
	if errors.Is(err, ipalloc.ErrFull) {
		fmt.Println(err)
		return nil
	}
	fmt.Println("one more /14 in", region.Owner, "would be", next)
	return err
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "prefixes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for start := 1; start <= 2; start++ { // the second time, everything is there already
		if err := work(ctx, filepath.Join(dir, "plan.db"), start); err != nil {
			return err
		}
	}
	return nil
}

func work(ctx context.Context, file string, start int) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := open(ctx, db)
	if err != nil {
		return err
	}
	fmt.Println("start", start, "of the program")
	region, err := p.region(ctx, "eu", 12)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		bits int
	}{{"tiny", 18}, {"large", 14}, {"small", 16}} {
		cluster, err := p.cluster(ctx, region, c.name, c.bits)
		if err != nil {
			return err
		}
		node, err := p.node(ctx, cluster, "n1")
		if err != nil {
			return err
		}
		fmt.Println("cluster", cluster.Owner, "has", cluster.Prefix, "and its node n1", node)
	}
	if start == 1 {
		return p.report(ctx, region)
	}
	owners, err := p.whose(ctx, netip.MustParseAddr("10.4.0.77"))
	if err != nil {
		return err
	}
	fmt.Println("10.4.0.77 belongs to", strings.Join(owners, ", "))
	var why *ipalloc.Error
	if _, err := p.ReleaseByOwner(ctx, "eu/large"); errors.As(err, &why) && errors.Is(err, ipalloc.ErrInUse) {
		fmt.Println("eu/large cannot be released, because", why.Holder, "holds", why.InTheWay)
	}
	for _, owner := range []string{"eu/large/n1", "eu/large"} {
		if _, err := p.ReleaseByOwner(ctx, owner); err != nil {
			return err
		}
	}
	return p.report(ctx, region)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
