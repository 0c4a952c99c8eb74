package nodeipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/selector"
)

// Entry has a pool of one or both families, the size of each node's prefixes, and a
// selector of the nodes that it serves. An entry never changes after it is added.
type Entry struct {
	// Name identifies the entry and is recorded with its nodes.
	Name string
	// Selector lists terms; at least one must hold for the node. Without a term the entry
	// is a default entry, for every node that no other entry can serve.
	Selector selector.Selector
	// IPv4 and IPv6 are the pools; the zero Prefix for a missing family. They may overlap
	// the pools of other entries.
	IPv4, IPv6 netip.Prefix
	// HostBits gives each node 2^HostBits addresses of each family. Set HostBits, or one
	// or both masks; if several are set they must agree: HostBits == 32 - MaskIPv4 ==
	// 128 - MaskIPv6. At least one must be non-zero; for a single address set the mask to
	// 32 or 128.
	HostBits           int
	MaskIPv4, MaskIPv6 int
}

// clone returns a copy that shares nothing with e.
func (e Entry) clone() Entry {
	e.Selector = e.Selector.Clone()
	return e
}

// entry is an Entry, checked and compiled.
type entry struct {
	spec        Entry
	selector    *selector.Matcher
	hostBits    int
	capacity    int     // log2 of the children of the family that has fewer
	pools       [2]pool // IPv4, IPv6; the prefix is invalid if the entry lacks the family
	terminating bool
}

// newEntry checks c and compiles it.
func newEntry(c Entry) (*entry, *ipalloc.Error) {
	bad := func(field, reason string, p netip.Prefix) (*entry, *ipalloc.Error) {
		err := invalid(field, reason)
		err.Name, err.Prefix = c.Name, p
		return nil, err
	}
	if c.Name == "" {
		return bad("Name", "empty", netip.Prefix{})
	}
	e := &entry{spec: c.clone()}
	sel, err := c.Selector.Compile()
	if err != nil {
		var place *ipalloc.Error
		errors.As(err, &place)
		return bad("Selector"+place.Field, place.Reason, netip.Prefix{})
	}
	e.selector = sel
	hostBits, field, reason := c.size()
	if reason != "" {
		return bad(field, reason, netip.Prefix{})
	}
	e.hostBits, e.capacity = hostBits, 128
	for i, p := range []netip.Prefix{c.IPv4, c.IPv6} {
		if p == (netip.Prefix{}) {
			continue
		}
		if err := checkPool(p); err != nil {
			return bad(string(families[i]), err.Error(), p)
		}
		if familyOf(p) != i {
			return bad(string(families[i]), "of the other family", p)
		}
		size := p.Addr().BitLen() - hostBits
		if size < p.Bits() {
			return bad(field, fmt.Sprintf("%d host bits, and the pool has %d", hostBits, p.Addr().BitLen()-p.Bits()), p)
		}
		e.pools[i] = newPool(p, size)
		e.capacity = min(e.capacity, size-p.Bits())
	}
	return e, nil
}

// families are the families in the order of pools and spaces.
var families = [2]Family{IPv4, IPv6}

// familyOf returns the position of the family of p in families.
func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// size returns the host bits of a node's prefixes and the field that sets them, or a
// reason if no size is set or several contradict each other.
func (e *Entry) size() (hostBits int, field, reason string) {
	hostBits, field = e.HostBits, "HostBits"
	switch {
	case hostBits < 0 || hostBits > 128:
		return 0, field, fmt.Sprintf("%d", hostBits)
	case e.IPv4 == (netip.Prefix{}) && e.IPv6 == (netip.Prefix{}):
		return 0, "IPv4, IPv6", "an entry needs a pool"
	}
	known := hostBits != 0
	for _, m := range []struct {
		field       string
		mask, width int
		pool        netip.Prefix
	}{{"MaskIPv4", e.MaskIPv4, 32, e.IPv4}, {"MaskIPv6", e.MaskIPv6, 128, e.IPv6}} {
		switch {
		case m.mask == 0:
			continue
		case m.mask < 0 || m.mask > m.width:
			return 0, m.field, fmt.Sprintf("/%d of %d bits", m.mask, m.width)
		case m.pool == (netip.Prefix{}):
			return 0, m.field, fmt.Sprintf("/%d for a family that the entry lacks", m.mask)
		case known && m.width-m.mask != hostBits:
			return 0, m.field, fmt.Sprintf("/%d leaves %d host bits, %s sets %d", m.mask, m.width-m.mask, field, hostBits)
		}
		hostBits, field, known = m.width-m.mask, m.field, true
	}
	if !known {
		return 0, "HostBits", "neither host bits nor a mask"
	}
	return hostBits, field, ""
}

// has reports whether the entry has the family at that position.
func (e *entry) has(family int) bool { return e.pools[family].prefix.IsValid() }

// differs returns the name of the first field that differs between two entries of one
// name, "" if they are equivalent.
func (e *entry) differs(o *entry) string {
	switch {
	case e.selector.String() != o.selector.String():
		return "Selector"
	case e.spec.IPv4 != o.spec.IPv4:
		return "IPv4"
	case e.spec.IPv6 != o.spec.IPv6:
		return "IPv6"
	case e.hostBits != o.hostBits:
		return "HostBits"
	}
	return ""
}

// fit reports whether all the prefixes are children of the entry.
func (e *entry) fit(ps ...netip.Prefix) bool {
	for _, p := range ps {
		if !e.pools[familyOf(p)].has(p) {
			return false
		}
	}
	return true
}

// String returns the pools and the prefix lengths of their children.
func (e *entry) String() string {
	var parts []string
	for _, pl := range e.pools {
		if pl.prefix.IsValid() {
			parts = append(parts, fmt.Sprintf("%v in /%d", pl.prefix, pl.size))
		}
	}
	return strings.Join(parts, ", ")
}

// compareBase orders entries by base address, as a number, IPv4 before IPv6, and then
// by prefix length, longer first. An entry that has a family precedes one without it.
func compareBase(a, b *entry) (string, int) {
	for i := range a.pools {
		x, y := a.pools[i].prefix, b.pools[i].prefix
		if x.IsValid() != y.IsValid() {
			if x.IsValid() {
				return ruleBase, -1
			}
			return ruleBase, 1
		}
		if c := x.Addr().Compare(y.Addr()); c != 0 {
			return ruleBase, c
		}
	}
	for i := range a.pools {
		if c := cmp.Compare(b.pools[i].prefix.Bits(), a.pools[i].prefix.Bits()); c != 0 {
			return ruleLength, c
		}
	}
	return ruleName, 0
}
