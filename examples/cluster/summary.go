package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"text/tabwriter"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/internal/addrmap"
)

// summarize writes what came of the replay, for a person to read.
func summarize(w io.Writer, cfg *config, p *nodePhase) error {
	var out bytes.Buffer
	describe(&out, cfg, p.nodes)
	classes(&out, p)
	pools(&out, p)
	events(&out, p)
	for i := range p.families {
		out.WriteByte('\n')
		picture := p.picture(i)
		picture.ByLabel = cfg.letters || cfg.color
		if err := addrmap.Text(&out, picture, addrmap.TextStyle{ASCII: cfg.ascii, Color: cfg.color}); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// describe says what cluster this is.
func describe(out *bytes.Buffer, cfg *config, nodes []trace.Node) {
	var milli, memory, gpus uint64
	for _, n := range nodes {
		milli += n.MilliCPU
		memory += n.MemoryMiB
		gpus += n.GPUs
	}
	fmt.Fprintf(out, "%s of %s: %s, %.1f TiB of memory, %s\n\n", wording.Count(len(nodes), "node"), sourceOf(cfg.nodesFile),
		wording.Count(int(milli/1000), "core"), float64(memory)/(1<<20), wording.Count(int(gpus), "GPU"))
}

// sourceOf returns what a trace is called.
func sourceOf(file string) string {
	if file == "" {
		return "the built-in trace"
	}
	return file
}

// classes says how many nodes of each size were served, and with what.
func classes(out *bytes.Buffer, p *nodePhase) {
	total := make([]int, len(p.cores)+1)
	served := make([]int, len(p.cores)+1)
	for i := range p.nodes {
		c := p.class(&p.nodes[i])
		total[c]++
		if len(p.held[p.nodes[i].Name]) == len(p.families) {
			served[c]++
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for c := range total {
		fmt.Fprintf(t, "%s\t%d of %d served", p.className(c), served[c], total[c])
		for _, f := range p.families {
			fmt.Fprintf(t, "\t%s /%d", f.name, f.sizes[c])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// className says which nodes a class holds.
func (p *nodePhase) className(c int) string {
	switch {
	case len(p.cores) == 0:
		return "all nodes"
	case c == 0:
		return fmt.Sprintf("below %s", wording.Count(int(p.cores[0]), "core"))
	default:
		return fmt.Sprintf("from %s", wording.Count(int(p.cores[c-1]), "core"))
	}
}

// pools says how full they are.
func pools(out *bytes.Buffer, p *nodePhase) {
	out.WriteByte('\n')
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, f := range p.families {
		st := f.set.Stats()
		largest := "nothing free"
		if st.LargestFree >= 0 {
			largest = fmt.Sprintf("largest free prefix /%d", st.LargestFree)
		}
		fmt.Fprintf(t, "%s\t%v\t%d of %s /%d taken\t%s\n", f.name, f.pool, st.Used, capacity(st), f.childBits(), largest)
	}
	t.Flush()
}

// capacity returns how many children a pool has. The one count that does not fit is 2^64.
func capacity(st cidrset.Stats) string {
	if st.Capacity == math.MaxUint64 {
		return "2^64"
	}
	return fmt.Sprint(st.Capacity)
}

// events says what happened on the way.
func events(out *bytes.Buffer, p *nodePhase) {
	r := &p.report
	out.WriteByte('\n')
	fmt.Fprintf(out, "churn      %s removed and added again; %d got the prefixes they had before\n", wording.Count(r.churned, "node"), r.same)
	fmt.Fprintf(out, "restart    from %s of snapshot: the same state, and every node still holds its prefixes\n", wording.Count(r.snapshotBytes, "byte"))
	fmt.Fprintf(out, "rebuild    from the nodes' own records: the same prefixes\n")
	fmt.Fprintf(out, "verified   %s, by sorting and adding up what the nodes hold: no overlap, nothing outside, all counts right\n", wording.Count(r.checks, "time"))
	each := float64(r.allocating.Nanoseconds()) / float64(r.allocations) / 1000
	fmt.Fprintf(out, "time       %.2f µs for each of %s, with the bookkeeping\n", each, wording.Count(r.allocations, "allocation"))
}

// picture returns the map of a family: the prefixes of nodes, by class.
func (p *nodePhase) picture(family int) addrmap.Picture {
	f := p.families[family]
	space := &addrmap.Space{Name: f.name, Pool: f.pool, Finest: f.childBits()}
	held := make([][]netip.Prefix, len(f.sizes))
	for i := range p.nodes {
		c := p.class(&p.nodes[i])
		held[c] = append(held[c], p.held[p.nodes[i].Name][family])
	}
	for c, prefixes := range held {
		space.AddPrefixes(addrmap.Used, fmt.Sprintf("%s, /%d", p.className(c), f.sizes[c]), prefixes...)
	}
	space.Sort()
	return addrmap.Picture{Space: space}
}

// pictures returns the maps of all families.
func (p *nodePhase) pictures() []addrmap.Picture {
	pictures := make([]addrmap.Picture, len(p.families))
	for i := range pictures {
		pictures[i] = p.picture(i)
	}
	return pictures
}

// writeSVG writes all maps into one file.
func writeSVG(file string, pictures []addrmap.Picture) error {
	var out bytes.Buffer
	for i := range pictures {
		pictures[i].ByLabel = true
	}
	if err := addrmap.SVG(&out, addrmap.SVGStyle{}, pictures...); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
