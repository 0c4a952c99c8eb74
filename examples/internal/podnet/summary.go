package podnet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ipalloc/ipalloc/examples/internal/spacemap"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset"
)

// Describe writes what the trace asks for: which pods, and how many at once. source is what the
// trace is called, placement how the nodes were chosen.
func (n *Network) Describe(w io.Writer, source, placement string) {
	came, went, nodes := 0, 0, map[string]bool{}
	for _, e := range n.cfg.Events {
		if e.Comes {
			came++
			nodes[e.Node] = true
		} else {
			went++
		}
	}
	_, most := trace.Peak(n.cfg.Events)
	fmt.Fprintf(w, "%s of %s on %d of %s, %s\n\n", wording.Count(came, "pod"), source, len(nodes), wording.Count(len(n.cfg.Nodes), "node"), placement)
	fmt.Fprintf(w, "pods       %d created, %d deleted; %d at once at the peak, %d at the end\n", came, went, most, came-went)
}

// End writes how full the pools are, and the picture of the first one.
func (n *Network) End(ctx context.Context, w io.Writer, style spacemap.TextStyle) error {
	fmt.Fprintf(w, "\nat the end\n")
	if err := n.Utilization(ctx, w); err != nil {
		return err
	}
	drawings, err := n.Drawings(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return spacemap.Text(w, drawings[0], style)
}

// Utilization writes how full the pools are, a line for each.
func (n *Network) Utilization(ctx context.Context, w io.Writer) error {
	pools, err := n.engine.Utilization(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, r := range n.cfg.Ranges {
		u := find(pools, r.Name)
		inBlocks := ""
		if len(u.Blocks) > 0 {
			total := float64(len(u.Blocks)) * float64(uint64(1)<<min(63, r.Pool.Addr().BitLen()-r.BlockBits))
			inBlocks = fmt.Sprintf("\t%.1f %% of their addresses used", 100*float64(u.Used.Lo)/total)
		}
		fmt.Fprintf(t, "%s\t%v\t%d of %s addresses held\t%d of %s /%d blocks claimed%s\n", r.Name, r.Pool,
			u.Used.Lo, power(r.Pool.Addr().BitLen()-r.Pool.Bits()), len(u.Blocks), power(r.BlockBits-r.Pool.Bits()), r.BlockBits, inBlocks)
	}
	return t.Flush()
}

// find returns the pool of that name.
func find(pools []ipset.Utilization, name string) ipset.Utilization {
	for _, u := range pools {
		if u.Pool == name {
			return u
		}
	}
	return ipset.Utilization{}
}

// power returns 2^n in figures, or as a power where that is more than a person reads.
func power(n int) string {
	if n > 32 {
		return fmt.Sprintf("2^%d", n)
	}
	return fmt.Sprint(uint64(1) << n)
}

// String says what was done.
func (c Counts) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d claimed by nodes", c.Claimed)
	if c.TakenOver > 0 {
		fmt.Fprintf(&s, ", %d taken over from nodes that had no pod in them", c.TakenOver)
	}
	fmt.Fprintf(&s, ", %d released when idle; %s borrowed from blocks of other nodes", c.Returned, addresses(c.Borrowed))
	return s.String()
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// named is how many nodes a picture names.
const named = 12

// Drawings returns a picture of each pool, for package spacemap: its blocks, by the nodes that have
// them. The nodes with the most pods have a colour each, the others share one.
func (n *Network) Drawings(ctx context.Context) ([]spacemap.Drawing, error) {
	pools, err := n.engine.Utilization(ctx)
	if err != nil {
		return nil, err
	}
	var drawings []spacemap.Drawing
	for _, r := range n.cfg.Ranges {
		drawings = append(drawings, spacemap.Drawing{
			Title: r.Name + ", blocks by node", Pool: r.Pool, Finest: r.BlockBits, Layers: layers(find(pools, r.Name).Blocks),
		})
	}
	return drawings, nil
}

// share is what a node has of a pool.
type share struct {
	node   string
	used   uint64
	blocks []netip.Prefix
}

// layers returns the blocks by the nodes that have them, those with the most addresses in use first.
func layers(blocks []ipset.Utilization) []spacemap.Layer {
	byNode := map[string]*share{}
	var shares []*share
	for _, b := range blocks {
		s := byNode[b.Owner.Name]
		if s == nil {
			s = &share{node: b.Owner.Name}
			byNode[s.node] = s
			shares = append(shares, s)
		}
		s.used += b.Used.Lo
		s.blocks = append(s.blocks, b.Prefix)
	}
	slices.SortFunc(shares, func(a, b *share) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(len(b.blocks), len(a.blocks)), strings.Compare(a.node, b.node))
	})
	var out []spacemap.Layer
	rest := share{}
	for i, s := range shares {
		if i < named || len(shares) == named+1 {
			out = append(out, spacemap.Layer{Label: s.node + ", " + addresses(int(s.used)), Prefixes: s.blocks})
			continue
		}
		rest.used += s.used
		rest.blocks = append(rest.blocks, s.blocks...)
	}
	if len(rest.blocks) > 0 {
		label := fmt.Sprintf("%d other nodes, %s", len(shares)-len(out), addresses(int(rest.used)))
		out = append(out, spacemap.Layer{Label: label, Prefixes: rest.blocks})
	}
	return out
}
