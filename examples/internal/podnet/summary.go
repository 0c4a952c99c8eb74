package podnet

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/block"
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
func (n *Network) End(ctx context.Context, w io.Writer, style addrmap.TextStyle) error {
	fmt.Fprintf(w, "\nat the end\n")
	if err := n.Utilization(ctx, w); err != nil {
		return err
	}
	pictures, err := n.Pictures(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return addrmap.Text(w, pictures[0], style)
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

// Pictures returns a picture of each pool, for package addrmap: its blocks and addresses, by node.
func (n *Network) Pictures(ctx context.Context) ([]addrmap.Picture, error) {
	var pictures []addrmap.Picture
	for _, r := range n.cfg.Ranges {
		space := &addrmap.Space{Name: r.Name, Pool: r.Pool, Finest: r.BlockBits}
		for b, err := range n.engine.Operator().Blocks(ctx, r.Pool) {
			if err != nil {
				return nil, err
			}
			addBlock(space, b)
		}
		pictures = append(pictures, addrmap.Picture{Space: space, ByLabel: true})
	}
	return pictures, nil
}

// addBlock adds a block to a picture: what is held, by the node that it is held for, and what is not, by the node
// that has the block.
func addBlock(space *addrmap.Space, b *block.Block) {
	at, end := addrmap.Of(b.Prefix())
	node := b.Owner().Name
	for a := range b.All() {
		ip := addr.FromAddr(a.Address)
		if at != ip {
			space.Add(addrmap.Span{Lo: at, Hi: ip.Sub(addr.U128{Lo: 1}), State: addrmap.Idle, Label: node})
		}
		space.Add(addrmap.Span{Lo: ip, Hi: ip, State: addrmap.Used, Label: a.Host.Name})
		if ip == end {
			return
		}
		at = ip.Add(addr.U128{Lo: 1})
	}
	space.Add(addrmap.Span{Lo: at, Hi: end, State: addrmap.Idle, Label: node})
}
