package clustercidr

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/selector"
)

// entry is a ClusterCIDR, checked and compiled.
type entry struct {
	spec        ClusterCIDR
	selector    *selector.Selector
	hostBits    int
	capacity    int     // log2 of the children of the family that has fewer
	pools       [2]pool // IPv4, IPv6
	terminating bool
}

// pool is one family of an entry.
type pool struct {
	prefix netip.Prefix // invalid if the entry lacks the family
	block  block
	size   uint8     // prefix length of a child
	cursor addr.U128 // where to look for the next free child
}

// newEntry checks c and compiles it; the error says which field is wrong.
func newEntry(c ClusterCIDR) (*entry, error) {
	fail := func(field string, p netip.Prefix, err error) (*entry, error) {
		return nil, &Error{Op: "add", Entry: c.Name, Field: field, Prefix: p, Err: err}
	}
	if c.Name == "" {
		return fail("Name", netip.Prefix{}, ErrBadName)
	}
	e := &entry{spec: c.clone()}
	sel, err := compile(c.Selector)
	if err != nil {
		var place *selector.Error
		errors.As(err, &place)
		return fail("Selector"+place.Path(), netip.Prefix{}, fmt.Errorf("%w: %w", ErrBadSelector, place.Err))
	}
	e.selector = sel
	if c.IPv4 == (netip.Prefix{}) && c.IPv6 == (netip.Prefix{}) {
		return fail("IPv4, IPv6", netip.Prefix{}, fmt.Errorf("%w: an entry needs one", ErrBadPool))
	}
	for i, p := range []netip.Prefix{c.IPv4, c.IPv6} {
		f := Family(i + 1)
		if p == (netip.Prefix{}) {
			continue
		}
		if err := addr.Check(p); err != nil {
			return fail(f.String(), p, fmt.Errorf("%w: %w", ErrBadPool, err))
		}
		if familyOf(p) != f {
			return fail(f.String(), p, fmt.Errorf("%w: of the other family", ErrBadPool))
		}
		e.pools[i] = pool{prefix: p, block: blockOf(p), cursor: blockOf(p).key}
	}
	field, err := e.measure()
	if err != nil {
		return fail(field, netip.Prefix{}, err)
	}
	return e, nil
}

// measure finds the size of a node in what the entry says about it, and the size
// of the pools; on an error it returns the field that is wrong.
func (e *entry) measure() (string, error) {
	c := &e.spec
	said, by := c.HostBits, "HostBits"
	if said < 0 {
		return by, fmt.Errorf("%w: %d", ErrBadBits, said)
	}
	sizes := []struct {
		field       string
		mask, width int
		pool        *pool
	}{{"MaskIPv4", c.MaskIPv4, 32, &e.pools[0]}, {"MaskIPv6", c.MaskIPv6, 128, &e.pools[1]}}
	known := said != 0
	for _, s := range sizes {
		switch {
		case s.mask == 0:
			continue
		case s.mask < 0 || s.mask > s.width:
			return s.field, fmt.Errorf("%w: /%d of %d", ErrBadBits, s.mask, s.width)
		case !s.pool.prefix.IsValid():
			return s.field, fmt.Errorf("%w: /%d for a family that the entry lacks", ErrBadBits, s.mask)
		case known && s.width-s.mask != said:
			return s.field, fmt.Errorf("%w: /%d leaves %d host bits, %s says %d", ErrBadBits, s.mask, s.width-s.mask, by, said)
		}
		said, by, known = s.width-s.mask, s.field, true
	}
	if !known {
		return "HostBits", fmt.Errorf("%w: neither host bits nor a mask", ErrBadBits)
	}
	e.hostBits, e.capacity = said, 128
	for _, s := range sizes {
		if !s.pool.prefix.IsValid() {
			continue
		}
		order := s.width - s.pool.prefix.Bits() - said
		if order < 0 {
			return by, fmt.Errorf("%w: %d host bits, and the pool %v has %d", ErrBadBits, said, s.pool.prefix, order+said)
		}
		s.pool.size = uint8(s.width - said)
		e.capacity = min(e.capacity, order)
	}
	return "", nil
}

// compile turns a selector into the one that matches.
func compile(s Selector) (*selector.Selector, error) {
	terms := make([]selector.Term, len(s))
	for i, t := range s {
		terms[i] = selector.Term{Labels: compileRequirements(t.Labels), Fields: compileRequirements(t.Fields)}
	}
	return selector.New(terms...)
}

func compileRequirements(rs []Requirement) []selector.Requirement {
	out := make([]selector.Requirement, len(rs))
	for i, r := range rs {
		out[i] = selector.Requirement{Key: r.Key, Op: selector.Operator(r.Op), Values: r.Values}
	}
	return out
}

// has reports whether the entry has the family.
func (e *entry) has(f Family) bool { return e.pools[f-1].prefix.IsValid() }

// same reports whether o says what e says, if perhaps in other words.
func (e *entry) same(o *entry) bool {
	return e.spec.Name == o.spec.Name && e.selector.String() == o.selector.String() &&
		e.hostBits == o.hostBits && e.spec.IPv4 == o.spec.IPv4 && e.spec.IPv6 == o.spec.IPv6
}

// fits reports whether p is a child of the entry's pool of its family; otherwise
// why not.
func (e *entry) fits(p netip.Prefix) error {
	pl := &e.pools[familyOf(p)-1]
	switch {
	case !pl.prefix.IsValid():
		return fmt.Errorf("%w %v", ErrFamily, familyOf(p))
	case p.Bits() < pl.prefix.Bits() || !pl.prefix.Contains(p.Addr()):
		return fmt.Errorf("%w %v", ErrOutOfRange, pl.prefix)
	case p.Bits() != int(pl.size):
		return fmt.Errorf("%w: children are /%d", ErrMisaligned, pl.size)
	}
	return nil
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

// compareBase orders entries by rule 5 and 6 of the ranking: base addresses as
// numbers, IPv4 before IPv6, then prefix lengths, longer ones first. An entry that
// has a family comes before one that has not.
func compareBase(a, b *entry) (Rule, int) {
	for i := range a.pools {
		x, y := a.pools[i].prefix, b.pools[i].prefix
		if x.IsValid() != y.IsValid() {
			if x.IsValid() {
				return RuleBase, -1
			}
			return RuleBase, 1
		}
		if c := x.Addr().Compare(y.Addr()); c != 0 {
			return RuleBase, c
		}
	}
	for i := range a.pools {
		if c := cmp.Compare(b.pools[i].prefix.Bits(), a.pools[i].prefix.Bits()); c != 0 {
			return RuleLength, c
		}
	}
	return RuleName, 0
}
