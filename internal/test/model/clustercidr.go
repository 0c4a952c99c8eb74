package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// ClusterRequirement is one requirement of a node selector. Field says that it is on
// the name.
type ClusterRequirement struct {
	Field  bool
	Key    string
	Op     string
	Values []string
}

// ClusterEntry is an entry of nodeipam. A prefix that is not valid is a family
// that there is not.
type ClusterEntry struct {
	Name        string
	Terms       [][]ClusterRequirement
	Pools       [2]netip.Prefix // IPv4, IPv6
	HostBits    int
	Terminating bool
	Cursors     [2]int // child at which to look first
}

// ClusterNode has the prefixes of a node.
type ClusterNode struct {
	Entry    string
	Prefixes []netip.Prefix
}

// The failures of ClusterCIDRs.
const (
	ClusterNoMatch     = "no match"
	ClusterFull        = "full"
	ClusterBad         = "bad"
	ClusterExists      = "exists"
	ClusterTerminating = "terminating"
)

// ClusterCIDRs is the twin of a nodeipam.Allocator that chooses by labels. Every question is answered by
// looking at every child and at everything that is held; pools must be small.
type ClusterCIDRs struct {
	Families []int // needed: 0 IPv4, 1 IPv6, in the order in which prefixes are listed
	Lowest   bool
	Entries  map[string]*ClusterEntry
	Reserved map[netip.Prefix]bool
	Nodes    map[string]ClusterNode
}

// NewClusterCIDRs returns a twin without entries.
func NewClusterCIDRs(lowest bool, families ...int) *ClusterCIDRs {
	return &ClusterCIDRs{
		Families: families, Lowest: lowest, Entries: map[string]*ClusterEntry{},
		Reserved: map[netip.Prefix]bool{}, Nodes: map[string]ClusterNode{},
	}
}

// Add adds an entry; matching nodes without an entry become its own.
func (m *ClusterCIDRs) Add(e ClusterEntry) (fail string) {
	for _, f := range m.Families {
		if !e.Pools[f].IsValid() {
			return ClusterBad
		}
	}
	for f := range e.Pools {
		if e.Pools[f].IsValid() && e.children(f) == 0 {
			return ClusterBad
		}
	}
	if old := m.Entries[e.Name]; old != nil {
		if old.Terminating {
			return ClusterTerminating
		}
		if old.Pools != e.Pools || old.HostBits != e.HostBits || termsText(old.Terms) != termsText(e.Terms) {
			return ClusterExists
		}
		return ""
	}
	m.Entries[e.Name] = &e
	for name, n := range m.Nodes {
		if n.Entry == "" && e.fitsAll(n.Prefixes) {
			m.Nodes[name] = ClusterNode{e.Name, n.Prefixes}
		}
	}
	return ""
}

// termsText returns a text that is the same for selectors of the same terms.
func termsText(terms [][]ClusterRequirement) string {
	var all []string
	for _, t := range terms {
		var text []string
		for _, r := range t {
			text = append(text, fmt.Sprint(r.Key, " ", r.Op, " ", setText(r.Values, ","), " ", r.Field))
		}
		all = append(all, setText(text, "; "))
	}
	return setText(all, " or ")
}

func setText(texts []string, between string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(texts))), between)
}

// Delete makes the entry terminating, or takes it out.
func (m *ClusterCIDRs) Delete(name string) (gone, ok bool) {
	e := m.Entries[name]
	if e == nil {
		return false, false
	}
	if e.Terminating {
		return false, true
	}
	e.Terminating = true
	m.sweep()
	return m.Entries[name] == nil, true
}

// sweep takes out the terminating entries without nodes.
func (m *ClusterCIDRs) sweep() {
	for name, e := range m.Entries {
		if e.Terminating && m.NodesOf(name) == 0 {
			delete(m.Entries, name)
		}
	}
}

// NodesOf counts the nodes of an entry.
func (m *ClusterCIDRs) NodesOf(entry string) (n int) {
	for _, node := range m.Nodes {
		if node.Entry == entry {
			n++
		}
	}
	return n
}

func width(f int) int { return []int{32, 128}[f] }

// children returns how many children the entry has in a family, 0 if none fits.
func (e *ClusterEntry) children(f int) int {
	if !e.Pools[f].IsValid() {
		return 0
	}
	order := width(f) - e.HostBits - e.Pools[f].Bits()
	if order < 0 {
		return 0
	}
	return 1 << order
}

// child returns child i of a family.
func (e *ClusterEntry) child(f, i int) netip.Prefix {
	return child(e.Pools[f], width(f)-e.HostBits, uint64(i))
}

// Fits reports whether p is a child of the entry.
func (e *ClusterEntry) Fits(p netip.Prefix) bool {
	f := familyIndex(p)
	return e.children(f) > 0 && p.Bits() == width(f)-e.HostBits && e.Pools[f].Contains(p.Addr())
}

func (e *ClusterEntry) fitsAll(ps []netip.Prefix) bool {
	return !slices.ContainsFunc(ps, func(p netip.Prefix) bool { return !e.Fits(p) })
}

func familyIndex(p netip.Prefix) int { return p.Addr().BitLen() / 128 }

// reserved reports whether a reservation overlaps p.
func (m *ClusterCIDRs) reserved(p netip.Prefix) bool {
	for r := range m.Reserved {
		if r.Overlaps(p) {
			return true
		}
	}
	return false
}

// free reports whether nothing overlaps p.
func (m *ClusterCIDRs) free(p netip.Prefix) bool {
	for _, n := range m.Nodes {
		if overlapsAny(n.Prefixes, p) {
			return false
		}
	}
	return !m.reserved(p)
}

// Free counts the children of the entry that are free.
func (m *ClusterCIDRs) Free(e *ClusterEntry, f int) (n int) {
	for i := range e.children(f) {
		if m.free(e.child(f, i)) {
			n++
		}
	}
	return n
}

// Allocate serves a node, or returns the reason why not and the entries that it tried.
func (m *ClusterCIDRs) Allocate(name string, labels map[string]string) (n ClusterNode, fail string, tried []string) {
	if n, ok := m.Nodes[name]; ok {
		return n, "", nil
	}
	order := []int{0, 1}
	if len(m.Families) > 0 && m.Families[0] == 1 {
		order = []int{1, 0}
	}
	for _, e := range m.Rank(name, labels) {
		tried = append(tried, e.Name)
		n := ClusterNode{Entry: e.Name}
		at, ok := [2]int{}, true
		for _, f := range order {
			if !e.Pools[f].IsValid() {
				continue
			}
			if at[f] = m.first(e, f); at[f] < 0 {
				ok = false
				break
			}
			n.Prefixes = append(n.Prefixes, e.child(f, at[f]))
		}
		if !ok {
			continue
		}
		for _, f := range order {
			if e.Pools[f].IsValid() {
				e.Cursors[f] = (at[f] + 1) % e.children(f)
			}
		}
		m.Nodes[name] = n
		return n, "", nil
	}
	if tried == nil {
		return n, ClusterNoMatch, nil
	}
	return n, ClusterFull, tried
}

// first returns the free child that is next, -1 if there is none.
func (m *ClusterCIDRs) first(e *ClusterEntry, f int) int {
	from := e.Cursors[f]
	if m.Lowest {
		from = 0
	}
	for i := range e.children(f) {
		if at := (from + i) % e.children(f); m.free(e.child(f, at)) {
			return at
		}
	}
	return -1
}

// Release releases everything that the node holds.
func (m *ClusterCIDRs) Release(name string) (ClusterNode, bool) {
	n, ok := m.Nodes[name]
	delete(m.Nodes, name)
	m.sweep()
	return n, ok
}

// Observe records the prefixes of a node, which are not empty and without repetitions, and returns their
// faults in words.
func (m *ClusterCIDRs) Observe(name, entry string, prefixes []netip.Prefix) (changed bool, problems []string) {
	old, known := m.Nodes[name]
	if entry == "" {
		if known && slices.Equal(old.Prefixes, prefixes) {
			entry = old.Entry
		} else {
			var several bool
			if entry, several = m.fitting(prefixes); several {
				problems = append(problems, "ambiguous")
			}
		}
	}
	changed = !known || old.Entry != entry || !slices.Equal(old.Prefixes, prefixes)
	m.Nodes[name] = ClusterNode{entry, prefixes}
	m.sweep() // it may have been the last node of its old entry
	return changed, append(problems, m.judge(name)...)
}

func (m *ClusterCIDRs) fitting(prefixes []netip.Prefix) (name string, several bool) {
	var fit []clusterMatch
	for _, e := range m.Entries {
		if e.fitsAll(prefixes) {
			fit = append(fit, clusterMatch{e: e})
		}
	}
	if len(fit) == 0 {
		return "", false
	}
	return slices.MinFunc(fit, compareMatches).e.Name, len(fit) > 1
}

// judge says what is wrong with what a node holds.
func (m *ClusterCIDRs) judge(name string) (problems []string) {
	n := m.Nodes[name]
	e := m.Entries[n.Entry]
	if n.Entry != "" && e == nil {
		problems = append(problems, "no entry")
	}
	var seen [2]int
	strays := 0
	for _, p := range n.Prefixes {
		if seen[familyIndex(p)]++; seen[familyIndex(p)] > 1 {
			problems = append(problems, "too many")
		}
		switch {
		case e != nil && !e.Fits(p):
			problems = append(problems, "unfit")
		case n.Entry == "":
			if name, _ := m.fitting([]netip.Prefix{p}); name == "" {
				strays++
				problems = append(problems, "unfit")
			}
		}
		if m.reserved(p) {
			problems = append(problems, "reserved")
		}
		if other := m.rival(name, p); other != "" {
			problems = append(problems, "duplicate "+other)
		}
	}
	if n.Entry == "" && strays == 0 {
		problems = append(problems, "unfit")
	}
	for _, f := range m.Families {
		if seen[f] == 0 {
			problems = append(problems, "missing")
		}
	}
	return problems
}

// rival names another node that holds what overlaps p: the largest around it, else
// the lowest, larger first, inside.
func (m *ClusterCIDRs) rival(name string, p netip.Prefix) (by string) {
	var first netip.Prefix
	for _, other := range slices.Sorted(maps.Keys(m.Nodes)) {
		for _, q := range m.Nodes[other].Prefixes {
			if other != name && q.Overlaps(p) && (by == "" || comparePrefixes(q, first) < 0) {
				by, first = other, q
			}
		}
	}
	return by
}
