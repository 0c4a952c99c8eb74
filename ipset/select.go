package ipset

import (
	"slices"

	"github.com/ipalloc/ipalloc"
)

// choice is what decides which pools may serve an assignment.
type choice struct {
	family int // 4 or 6
	use    Use
	host   string            // the owner's name
	node   map[string]string // labels of the host
	space  map[string]string // labels of the namespace
	names  []string          // pools asked for; none is all
	both   bool              // pools asked for must match the selectors too
	ends   uint64            // addresses reserved at the ends of each block
}

// choose appends to dst the indexes of the pools that may serve, in the order in which they are tried. It is pure.
//
// A pool must be enabled, of the family and for the use, and its blocks must be larger than what is reserved of them.
// Asked for by name, it is taken as it is unless both is set; otherwise it must be automatic and select both
// the host and the namespace. It returns [ipalloc.ErrNotFound] if a name is no pool's, and [ipalloc.ErrNotFound] if none is left.
func (c *catalog) choose(dst []int, q choice) ([]int, error) {
	for _, name := range q.names {
		if c.byName(name) < 0 {
			return nil, wrap(ipalloc.Error{Op: "choose", Name: name, Err: errUnknownPool})
		}
	}
	chosen := dst
	for i := range c.Pools {
		p := &c.Pools[i]
		asked := slices.Contains(q.names, p.Name)
		switch {
		case p.Disabled, family(p.Prefix) != q.family, p.Uses&q.use == 0, len(q.names) > 0 && !asked:
		case p.tooSmall(q.ends):
		case p.Manual && !asked:
		case (!asked || q.both) && !(c.selectsNode(i, q.host, q.node) && c.selectsSpace(i, q.space)):
		default:
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == len(dst) {
		return nil, errNoPool
	}
	return chosen, nil
}

// tooSmall reports whether nothing is left of a block when ends addresses are reserved.
func (p *Pool) tooSmall(ends uint64) bool {
	hostBits := p.Prefix.Addr().BitLen() - p.BlockBits
	return hostBits < 64 && ends >= 1<<hostBits
}

// selectsNode reports whether pool i selects a host.
func (c *catalog) selectsNode(i int, host string, labels map[string]string) bool {
	_, ok := c.nodes[i].Match(host, labels)
	return ok
}

// selectsSpace reports whether pool i selects a namespace.
func (c *catalog) selectsSpace(i int, labels map[string]string) bool {
	_, ok := c.spaces[i].Match("", labels)
	return ok
}
