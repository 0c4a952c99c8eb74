package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// summarizeServices writes what the services got, for a person to read.
func summarizeServices(w io.Writer, cfg *config, p *servicePhase) error {
	var out bytes.Buffer
	dual, named, ports := 0, 0, 0
	for _, s := range p.services {
		g := p.held[s.name]
		if len(g.Addrs) == 2 {
			dual++
		}
		if s.addrs[0].kind >= wishNth || s.addrs[1].kind >= wishNth {
			named++
		}
		ports += len(g.Ports)
	}
	fmt.Fprintf(&out, "\n%s of %s: %d dual-stack, %d with an address of their own choice, %s\n\n",
		wording.Count(len(p.services), "service"), sourceOf(cfg.servicesFile), dual, named, wording.Count(ports, "node port"))
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, r := range p.ranges {
		st := p.stats(r.family)
		lastStatic, static, _ := bandsOf(r.prefix)
		low := "no static band"
		if static > 0 {
			low = fmt.Sprintf("static %s to %s: %s", r.prefix.Addr().Next(), lastStatic, taken(st.Static))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\tdynamic from %s: %s\n", r.name, r.prefix, low, lastStatic.Next(), taken(st.Dynamic))
	}
	_, _, st := p.registry.Stats()
	fmt.Fprintf(t, "node ports\t%v\tstatic: %s\tdynamic: %s\n", p.ports, taken(st.Static), taken(st.Dynamic))
	t.Flush()
	out.WriteByte('\n')
	for _, name := range []string{"kube-system/kube-dns"} {
		if g, ok := p.held[name]; ok {
			fmt.Fprintf(&out, "DNS        %s\n", strings.Trim(fmt.Sprint(g.Addrs), "[]"))
		}
	}
	r := &p.report
	fmt.Fprintf(&out, "refused    %s for an address that was taken: nothing of them stuck\n", wording.Count(r.refused, "request"))
	fmt.Fprintf(&out, "churn      %s removed and added again; %d got what they had before\n", wording.Count(r.churned, "service"), r.same)
	fmt.Fprintf(&out, "restart    from %s of snapshot: the same state, and the same answer to the next question\n", wording.Count(r.snapshotBytes, "byte"))
	fmt.Fprintf(&out, "verified   %s, from what the services hold: nothing twice, nothing outside, each in the band that it asked for\n", wording.Count(r.checks, "time"))
	_, err := w.Write(out.Bytes())
	return err
}

// stats returns the counts of a family.
func (p *servicePhase) stats(f serviceFamily) servicealloc.Stats {
	v4, v6, _ := p.registry.Stats()
	if f == ipv4 {
		return v4
	}
	return v6
}

// taken says how much of a band is taken.
func taken(b servicealloc.BandStats) string {
	if b.Capacity == ^uint64(0) {
		return fmt.Sprintf("%d taken", b.Used)
	}
	return fmt.Sprintf("%d of %d taken", b.Used, b.Capacity)
}
