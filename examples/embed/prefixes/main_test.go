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

// Regions, clusters and nodes keep their prefixes over a restart.
func Example() {
	main()
	// Output:
	// start 1 of the program
	// cluster eu/tiny has 10.0.0.0/18 and its node n1 10.0.0.0/24
	// cluster eu/large has 10.4.0.0/14 and its node n1 10.4.0.0/24
	// cluster eu/small has 10.1.0.0/16 and its node n1 10.1.0.0/24
	// regions: 6.250 % of the level above is assigned, its largest free prefix is a /9
	// clusters: 32.812 % of the level above is assigned, its largest free prefix is a /13
	// nodes: 0.223 % of the level above is assigned, its largest free prefix is a /15
	// one more /14 in eu would be 10.8.0.0/14
	// start 2 of the program
	// cluster eu/tiny has 10.0.0.0/18 and its node n1 10.0.0.0/24
	// cluster eu/large has 10.4.0.0/14 and its node n1 10.4.0.0/24
	// cluster eu/small has 10.1.0.0/16 and its node n1 10.1.0.0/24
	// 10.4.0.77 belongs to eu, eu/large, eu/large/n1
	// eu/large cannot be released, because eu/large/n1 holds 10.4.0.0/24
	// regions: 6.250 % of the level above is assigned, its largest free prefix is a /9
	// clusters: 7.812 % of the level above is assigned, its largest free prefix is a /13
	// nodes: 0.625 % of the level above is assigned, its largest free prefix is a /17
	// one more /14 in eu would be 10.4.0.0/14
}

func TestMain(m *testing.M) { crash.Main(m, storm) }

// storm gives and takes the prefixes of nodes in two clusters.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	db, err := boltstore.Open(ctx, file, boltstore.Options{})
	if err != nil {
		return err
	}
	p, err := open(ctx, db)
	if err != nil {
		return err
	}
	region, err := p.region(ctx, "eu", 12)
	for err == nil {
		name := fmt.Sprint("c", random.IntN(2))
		cluster, cerr := p.cluster(ctx, region, name, 16)
		if cerr != nil {
			return cerr
		}
		node := fmt.Sprint("n", random.IntN(30))
		err = do(cluster.Owner+"/"+node, func() ([]string, error) {
			if random.IntN(3) == 0 {
				_, err := p.ReleaseByOwner(ctx, cluster.Owner+"/"+node)
				return nil, err
			}
			got, err := p.node(ctx, cluster, node)
			return []string{got.String()}, err
		})
	}
	return err
}

// What a node was told is held, by that node alone, after the program was killed.
func TestKilled(t *testing.T) {
	crash.Test(t, func(_ string, holds []string) bool { return len(holds) <= 1 }, func(t *testing.T, file string) map[string][]string {
		db, err := boltstore.Open(t.Context(), file, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		p, err := open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		have := make(map[string][]string)
		for h, err := range p.All(t.Context(), netip.Prefix{}) {
			if err != nil {
				t.Fatal(err)
			}
			if h.Level == 3 {
				have[h.Owner] = append(have[h.Owner], h.Prefix.String())
			}
		}
		if rep, err := p.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("%+v, %v", rep, err)
		}
		return have
	})
}
