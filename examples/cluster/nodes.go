package main

import (
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc/cidrset"
)

// family is a pool, and the length of a node's prefix for each class of nodes.
type family struct {
	name string
	bits []int // by class
	set  *cidrset.Set
}

// classes are the smallest nodes of each class, in cores.
var classes = []uint64{0, 32, 64}

// class returns the class of a node.
func (n *node) class() int {
	c := len(classes) - 1
	for n.cpu < classes[c]*1000 {
		c--
	}
	return c
}

// newFamilies returns the pools. The children of a set are as long as the shortest prefix that a node
// may get; larger prefixes are aligned runs of children.
func newFamilies(builtin bool) ([]family, error) {
	pools := []string{"10.128.0.0/13", "fd00:10:128::/48"}
	if builtin {
		pools = []string{"10.128.0.0/19", "fd00:10:128::/56"}
	}
	families := []family{{name: "IPv4", bits: []int{26, 25, 24}}, {name: "IPv6", bits: []int{64, 63, 62}}}
	for i := range families {
		f := &families[i]
		var err error
		if f.set, err = cidrset.New(netip.MustParsePrefix(pools[i]), slices.Max(f.bits)); err != nil {
			return nil, err
		}
	}
	return families, nil
}

// serveNodes gives every node its prefixes. Then each tenth node leaves and returns: its prefixes go back to
// the pool and may be given to another.
func serveNodes(families []family, nodes []node) (map[string][]netip.Prefix, error) {
	held := make(map[string][]netip.Prefix, len(nodes))
	add := func(n *node) (err error) {
		held[n.name], err = serve(families, n)
		return err
	}
	for i := range nodes {
		if err := add(&nodes[i]); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(nodes); i += 10 {
		for f, p := range held[nodes[i].name] {
			if _, err := families[f].set.Release(p); err != nil {
				return nil, err
			}
		}
	}
	for i := 0; i < len(nodes); i += 10 {
		if err := add(&nodes[i]); err != nil {
			return nil, err
		}
	}
	return held, compare(families, held)
}

// serve gives a node one prefix of each family, or none at all.
func serve(families []family, n *node) ([]netip.Prefix, error) {
	var got []netip.Prefix
	for i := range families {
		f := &families[i]
		p, err := f.set.AllocatePrefix(f.bits[n.class()])
		if err != nil {
			for j, taken := range got {
				_, _ = families[j].set.Release(taken)
			}
			return nil, fmt.Errorf("node %q: %w", n.name, err)
		}
		got = append(got, p)
	}
	return got, nil
}

// compare checks the sets against what the nodes hold: no two prefixes overlap, each is taken in its
// set, and nothing else is.
func compare(families []family, held map[string][]netip.Prefix) error {
	for i := range families {
		f := &families[i]
		if err := f.set.Check(); err != nil {
			return err
		}
		var all []netip.Prefix
		var children uint64
		for _, prefixes := range held {
			p := prefixes[i]
			all = append(all, p)
			children += 1 << (slices.Max(f.bits) - p.Bits())
			if !f.set.Has(p) {
				return fmt.Errorf("%v is held by a node and free in the set", p)
			}
		}
		slices.SortFunc(all, netip.Prefix.Compare)
		for j := 1; j < len(all); j++ {
			if all[j].Overlaps(all[j-1]) {
				return fmt.Errorf("%v and %v are held by two nodes", all[j-1], all[j])
			}
		}
		if used := f.set.Stats().Used; used != children {
			return fmt.Errorf("%s: the set counts %d children in use, the nodes hold %d", f.name, used, children)
		}
	}
	return nil
}

// reportNodes prints how full the pools are, and with drawn a map of each.
func reportNodes(w io.Writer, families []family, drawn bool) {
	fmt.Fprintf(w, "prefixes: each node has one of each family, as large as its cores need\n")
	for _, f := range families {
		st := f.set.Stats()
		fmt.Fprintf(w, "  %s %v: %d of %d /%d taken, largest free /%d\n", f.name, f.set.Pool(), st.Used, st.Capacity, f.set.ChildBits(), st.LargestFree)
		if drawn {
			draw(w, f.set.Pool(), f.set.ChildBits(), "# taken, . free", func(p netip.Prefix) rune {
				if f.set.Has(p) {
					return '#'
				}
				return '.'
			})
		}
	}
}
