package nodeipam

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/claims"
)

// Node is a node as the caller sees it: the record in an API server or a file. Name and
// UID identify it: another UID under the same name is another node, created after the
// first was deleted. An empty UID is unknown and matches every other.
type Node struct {
	Name string
	UID  string
	// Labels are the labels that [Allocator.Allocate] matches with entries.
	Labels map[string]string
	// Terminating is set for a node that is being deleted.
	Terminating bool
	// Prefixes are the node's prefixes by its record, in the order of its podCIDRs; the
	// zero Prefix where the record cannot be read.
	Prefixes []netip.Prefix
	// Texts, if not empty, are the texts that Prefixes were read from, for messages.
	Texts []string
	// Entry is the name of the entry that the prefixes came from, "" if none is recorded.
	Entry string
}

// Assignment is the prefixes that a node holds, and their entry. Record both fields with
// the node: together they are all that [Allocator.Load] needs.
type Assignment struct {
	Prefixes []netip.Prefix // in the order of the slots or families
	Entry    string         // the entry that they came from, "" if from none
}

// ParseNode returns the node of that name whose prefixes are read from texts. It masks
// host bits and turns an IPv4-mapped IPv6 prefix into the IPv4 one. It reads IPv4 numbers
// and lengths with leading zeros as decimal, because people and other programs write them
// so. A text that is still no prefix becomes the zero Prefix, which [Allocator.Load]
// reports.
func ParseNode(name string, texts ...string) Node {
	n := Node{Name: name, Texts: texts}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			p, _ = netip.ParsePrefix(decimal(text))
		}
		p, _ = usable(p)
		n.Prefixes = append(n.Prefixes, p)
	}
	return n
}

// decimal returns text without the leading zeros of its length and, if it looks like an
// IPv4 prefix, of its numbers.
func decimal(text string) string {
	a, bits, _ := strings.Cut(text, "/")
	parts := []string{a}
	if !strings.Contains(a, ":") {
		parts = strings.Split(a, ".")
		for i := range parts {
			parts[i] = trimmed(parts[i])
		}
	}
	return strings.Join(parts, ".") + "/" + trimmed(bits)
}

// trimmed returns a number without its leading zeros.
func trimmed(number string) string {
	if t := strings.TrimLeft(number, "0"); t != "" || number == "" {
		return t
	}
	return "0"
}

// mapped is the IPv6 block of the IPv4-mapped addresses.
var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// usable returns p masked and in its own family, and an error that describes a fault in
// the form of p. It returns the zero Prefix if p is unusable.
func usable(p netip.Prefix) (netip.Prefix, error) {
	err := addr.Check(p)
	switch {
	case err == nil:
		return p, nil
	case !p.IsValid() || p.Masked() == mapped: // the IPv4 form of the latter is all of IPv4
		return netip.Prefix{}, err
	case p.Addr().Is4In6() && p.Bits() > mapped.Bits():
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped.Bits())
	}
	return p.Masked(), err
}

var errOverMapped = errors.New("overlaps ::ffff:0:0/96, the IPv4-mapped addresses")

// checkPool returns nil if p can be a pool. A pool that shares addresses with the
// IPv4-mapped block could allocate prefixes that no record can express.
func checkPool(p netip.Prefix) error {
	if err := addr.Check(p); err != nil {
		return err
	}
	if p.Overlaps(mapped) {
		return errOverMapped
	}
	return nil
}

// A space holds the claims of one address family.
type (
	space = claims.Space[owner]
	claim = claims.Claim[owner]
)

// owner is a node that holds prefixes.
type owner struct {
	name, uid, entry string
	prefixes         []netip.Prefix
	terminating      bool
	load             uint64          // the Load that last listed it
	pair             [2]netip.Prefix // the array of prefixes if there are no more than two
	two              [2]claim        // of the first two prefixes
	more             *[]claim        // of the others, if there are any
}

// claim returns the claim of prefix i.
func (o *owner) claim(i int) *claim {
	if i < len(o.two) {
		return &o.two[i]
	}
	return &(*o.more)[i-len(o.two)]
}

// isOther reports whether o is not nil and uid is the UID of another node of the same
// name.
func (o *owner) isOther(uid string) bool {
	return o != nil && o.uid != "" && uid != "" && o.uid != uid
}

func (o *owner) assignment() Assignment {
	return Assignment{Prefixes: slices.Clone(o.prefixes), Entry: o.entry}
}

// node returns o as a record; [Allocator.Load] of that record makes the same owner.
func (o *owner) node() Node {
	return Node{Name: o.name, UID: o.uid, Terminating: o.terminating, Prefixes: slices.Clone(o.prefixes), Entry: o.entry}
}
