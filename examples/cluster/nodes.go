package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
)

// family is one pool at work: every node has one prefix of each.
type family struct {
	familyConfig
	set *cidrset.Set
}

// childBits is the size that the set counts in: the smallest prefix any node gets. Larger ones are
// aligned runs of it.
func (f *family) childBits() int { return slices.Max(f.sizes) }

// nodePhase gives nodes their prefixes. held is the record a controller would keep in the node
// objects; all the rest can be rebuilt from it.
type nodePhase struct {
	nodes    []trace.Node
	cores    []uint64
	families []*family
	held     map[string][]netip.Prefix // by node, one for each family in order
	now      func() time.Time
	report   nodeReport
}

// nodeReport is what the summary tells.
type nodeReport struct {
	allocations   int
	allocating    time.Duration // the time that took
	churned       int           // nodes removed and added again
	same          int           // of these, how many got the prefixes they had
	snapshotBytes int
	checks        int // how often everything was verified
}

func newNodePhase(cfg *config, nodes []trace.Node, now func() time.Time) (*nodePhase, error) {
	p := &nodePhase{nodes: nodes, cores: cfg.cores, held: map[string][]netip.Prefix{}, now: now}
	for _, fc := range cfg.families {
		f := &family{familyConfig: fc}
		var err error
		if f.set, err = cidrset.New(f.pool, f.childBits()); err != nil {
			return nil, err
		}
		p.families = append(p.families, f)
	}
	return p, nil
}

// run is the life of the cluster: everyone joins, a tenth leaves and comes back, the controller
// restarts.
func (p *nodePhase) run() error {
	started := p.now()
	for i := range p.nodes {
		if err := p.add(&p.nodes[i]); err != nil {
			return err
		}
	}
	p.report.allocating = p.now().Sub(started)
	p.report.allocations = len(p.nodes) * len(p.families)
	if err := p.verify("after all nodes were added", p.nodes); err != nil {
		return err
	}
	if err := p.churn(); err != nil {
		return err
	}
	if err := p.restart(); err != nil {
		return err
	}
	return p.rebuild()
}

// add gives a node one prefix of each family, or none at all.
func (p *nodePhase) add(n *trace.Node) error {
	prefixes := make([]netip.Prefix, 0, len(p.families))
	for _, f := range p.families {
		prefix, err := f.set.AllocatePrefix(f.sizes[p.class(n)])
		if err != nil {
			for i, taken := range prefixes {
				if _, undo := p.families[i].set.Release(taken); undo != nil {
					return errors.Join(err, undo)
				}
			}
			return p.explain(n, f, err)
		}
		prefixes = append(prefixes, prefix)
	}
	p.held[n.Name] = prefixes
	return nil
}

// class returns the place of a node's size among the thresholds, and so its place in a family's sizes.
func (p *nodePhase) class(n *trace.Node) int {
	class := 0
	for class < len(p.cores) && n.MilliCPU >= p.cores[class]*1000 {
		class++
	}
	return class
}

// explain says why a node got nothing, and what would help.
func (p *nodePhase) explain(n *trace.Node, f *family, err error) error {
	if !errors.Is(err, ipalloc.ErrFull) {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	st := f.set.Stats()
	largest := "nothing is free"
	if st.LargestFree >= 0 {
		largest = fmt.Sprintf("the largest free prefix is a /%d", st.LargestFree)
	}
	fix := "no pool of that family is large enough for all " + wording.Count(len(p.nodes), "node")
	if need := f.poolBitsFor(p); need >= 0 {
		fix = fmt.Sprintf("all %s together need a /%d (-pool%s)", wording.Count(len(p.nodes), "node"), need, f.name[3:])
	}
	return fmt.Errorf("the pool %v is too small: node %q, number %d of %d with %g cores, needs a /%d; %d of %s /%d are taken, %s; %s",
		f.pool, n.Name, len(p.held)+1, len(p.nodes), float64(n.MilliCPU)/1000, f.sizes[p.class(n)],
		st.Used, capacity(st), f.childBits(), largest, fix)
}

// poolBitsFor returns the length of the smallest pool that all nodes fit into, or -1. Best fit
// leaves no gap while nodes only join (the free blocks are always of different sizes), so the sum
// of the sizes, rounded up to a power of two, is enough.
func (f *family) poolBitsFor(p *nodePhase) int {
	sum := new(big.Int)
	for i := range p.nodes {
		order := f.pool.Addr().BitLen() - f.sizes[p.class(&p.nodes[i])]
		sum.Add(sum, new(big.Int).Lsh(big.NewInt(1), uint(order)))
	}
	return f.pool.Addr().BitLen() - sum.Sub(sum, big.NewInt(1)).BitLen()
}

// remove takes a node away: its prefixes are released, whatever the trace says of its size now.
func (p *nodePhase) remove(name string) error {
	for i, prefix := range p.held[name] {
		f := p.families[i]
		freed, err := f.set.Release(prefix)
		if err != nil {
			return err
		}
		if want := children(prefix, f.childBits()); freed != want {
			return wording.Broken(f.name+" when a node was removed",
				[]string{fmt.Sprintf("releasing %v of node %q freed %d of its %d /%d", prefix, name, freed, want, f.childBits())})
		}
	}
	delete(p.held, name)
	return nil
}

// churn removes every tenth node and adds them again, the last one first.
func (p *nodePhase) churn() error {
	var gone []trace.Node
	var left []trace.Node
	had := map[string][]netip.Prefix{}
	for i, n := range p.nodes {
		if i%10 != 0 {
			left = append(left, n)
			continue
		}
		gone = append(gone, n)
		had[n.Name] = p.held[n.Name]
		if err := p.remove(n.Name); err != nil {
			return err
		}
	}
	if err := p.verify("after a tenth of the nodes was removed", left); err != nil {
		return err
	}
	for _, n := range slices.Backward(gone) {
		if err := p.add(&n); err != nil {
			return err
		}
		if slices.Equal(had[n.Name], p.held[n.Name]) {
			p.report.same++
		}
	}
	p.report.churned = len(gone)
	return p.verify("after these nodes came back", p.nodes)
}

// restart writes a snapshot of every set, forgets the sets, and goes on with what the snapshots
// give back. Nothing may have changed: not the prefixes, not the cursor, not the answer to the next
// question.
func (p *nodePhase) restart() error {
	const when = "after the restart"
	for i, f := range p.families {
		data, err := f.set.MarshalBinary()
		if err != nil {
			return err
		}
		p.report.snapshotBytes += len(data)
		old := f.set
		if f.set, err = cidrset.Restore(f.pool, f.childBits(), data); err != nil {
			return err
		}
		again, err := f.set.MarshalBinary()
		if err != nil {
			return err
		}
		found := differences(old, f.set)
		if !bytes.Equal(data, again) {
			found = append(found, "a second snapshot differs from the first")
		}
		for _, n := range p.nodes {
			if prefix := p.held[n.Name][i]; !f.set.Has(prefix) {
				found = append(found, fmt.Sprintf("%v of node %q is not held", prefix, n.Name))
			}
		}
		spare, err := cidrset.Restore(f.pool, f.childBits(), data)
		if err != nil {
			return err
		}
		if before, after := next(old), next(spare); before != after {
			found = append(found, fmt.Sprintf("the next prefix would be %s, it was %s", after, before))
		}
		if err := wording.Broken(f.name+" "+when, found); err != nil {
			return err
		}
	}
	return p.verify(when, p.nodes)
}

// next asks a set, which is thrown away after it, for one more prefix.
func next(s *cidrset.Set) string {
	prefix, err := s.AllocateNext()
	if err != nil {
		return err.Error()
	}
	return prefix.String()
}

// differences says in what two sets differ.
func differences(a, b *cidrset.Set) []string {
	var found []string
	differ := func(what string, a, b any) {
		if a != b {
			found = append(found, fmt.Sprintf("%s is %v, it was %v", what, b, a))
		}
	}
	differ("the pool", a.Pool(), b.Pool())
	differ("the child size", a.ChildBits(), b.ChildBits())
	differ("the cursor", a.Cursor(), b.Cursor())
	differ("the state", a.Stats(), b.Stats())
	if !slices.Equal(slices.Collect(a.UsedPrefixes()), slices.Collect(b.UsedPrefixes())) {
		found = append(found, "other prefixes are taken")
	}
	return found
}

// rebuild is a restart without a snapshot: new sets, filled from what the node objects say. Occupy
// tells how many children were free before; fewer than the prefix has would mean that two nodes
// claim the same.
func (p *nodePhase) rebuild() error {
	for i, f := range p.families {
		set, err := cidrset.New(f.pool, f.childBits())
		if err != nil {
			return err
		}
		var found []string
		for _, n := range p.nodes {
			prefix := p.held[n.Name][i]
			taken, err := set.Occupy(prefix)
			if err != nil {
				return err
			}
			if want := children(prefix, f.childBits()); taken != want {
				found = append(found, fmt.Sprintf("%v of node %q: %d of %d /%d were free", prefix, n.Name, taken, want, f.childBits()))
			}
		}
		if !slices.Equal(slices.Collect(set.UsedPrefixes()), slices.Collect(f.set.UsedPrefixes())) {
			found = append(found, "what the nodes' records say is not what the set holds")
		}
		if err := wording.Broken(f.name+" after a rebuild from the nodes' records", found); err != nil {
			return err
		}
	}
	return nil
}
