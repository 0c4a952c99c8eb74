package model

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// clusterMatch is an entry that may serve a node, and the labels that it matches.
type clusterMatch struct {
	e       *ClusterEntry
	met     int
	matched string
}

// compareMatches orders the entries that may serve a node, the best first.
func compareMatches(a, b clusterMatch) int {
	return cmp.Or(min(len(b.e.Terms), 1)-min(len(a.e.Terms), 1), b.met-a.met, a.e.capacity()-b.e.capacity(),
		a.e.HostBits-b.e.HostBits, strings.Compare(a.matched, b.matched), compareEntries(a.e, b.e))
}

// Rank returns the entries that may serve a node, best first.
func (m *ClusterCIDRs) Rank(name string, labels map[string]string) (entries []*ClusterEntry) {
	var found []clusterMatch
	for _, e := range m.Entries {
		met, matched, ok := e.match(name, labels)
		if ok && !e.Terminating {
			found = append(found, clusterMatch{e, met, matched})
		}
	}
	slices.SortFunc(found, compareMatches)
	for _, f := range found {
		entries = append(entries, f.e)
	}
	return entries
}

// capacity returns the children of the family that has fewer.
func (e *ClusterEntry) capacity() int {
	least := math.MaxInt
	for f := range e.Pools {
		if e.Pools[f].IsValid() {
			least = min(least, e.children(f))
		}
	}
	return least
}

// compareEntries compares by base address, prefix length and name.
func compareEntries(a, b *ClusterEntry) int {
	for f := range a.Pools {
		if x, y := a.Pools[f], b.Pools[f]; x.IsValid() != y.IsValid() {
			return -x.Addr().Compare(y.Addr()) // the zero address is the lowest, and comes last
		} else if c := x.Addr().Compare(y.Addr()); c != 0 {
			return c
		}
	}
	return cmp.Or(b.Pools[0].Bits()-a.Pools[0].Bits(), b.Pools[1].Bits()-a.Pools[1].Bits(), strings.Compare(a.Name, b.Name))
}

// match returns how many labels the best matching term needs, and those labels.
func (e *ClusterEntry) match(name string, labels map[string]string) (met int, matched string, ok bool) {
	if len(e.Terms) == 0 {
		return 0, "", true
	}
	for _, t := range e.Terms {
		var need []string
		named, holds := false, true
		for _, r := range t {
			holds = holds && r.holds(name, labels)
			switch {
			case r.Op == "NotIn" || r.Op == "DoesNotExist":
			case r.Field:
				named = true
			case !slices.Contains(need, r.Key):
				need = append(need, r.Key)
			}
		}
		if !holds {
			continue
		}
		if named {
			need = append(need, "metadata.name") // no trace has a label of that key
		}
		slices.Sort(need)
		var pairs []string
		for _, key := range need {
			value := labels[key]
			if key == "metadata.name" {
				value = name
			}
			pairs = append(pairs, key+"="+value)
		}
		text := strings.Join(pairs, ",")
		if !ok || len(pairs) > met || len(pairs) == met && text < matched {
			met, matched, ok = len(pairs), text, true
		}
	}
	return met, matched, ok
}

func (r ClusterRequirement) holds(name string, labels map[string]string) bool {
	value, has := labels[r.Key]
	if r.Field {
		value, has = name, true
	}
	switch r.Op {
	case "In":
		return has && slices.Contains(r.Values, value)
	case "NotIn":
		return !has || !slices.Contains(r.Values, value)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	}
	bound, _ := strconv.ParseInt(r.Values[0], 10, 64)
	n, err := strconv.ParseInt(value, 10, 64)
	return has && err == nil && (r.Op == "Gt" && n > bound || r.Op == "Lt" && n < bound)
}
