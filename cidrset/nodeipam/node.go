package nodeipam

import (
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// Node is an owner as somebody else sees it: the record of a node, as an API
// server or a file has it.
type Node struct {
	Name string
	// Prefixes are what the record says the node has, one for each slot; the zero
	// Prefix where it says something that is no prefix.
	Prefixes []netip.Prefix
	// Texts, if not empty, are what Prefixes were read from, for messages.
	Texts []string
	// Terminating is true for a node that is about to go.
	Terminating bool

	// What follows matters to a [Controller] only, and to an [Engine] that chooses
	// by it.

	Labels map[string]string
	UID    string // tells a node from another of the same name before or after it
	Entry  string // the entry that the prefixes came from; see [Assignment]
}

// ParseNode returns the node of that name with the prefixes that texts say. It
// reads them as people and other programs write them: host bits are masked, the
// IPv4-mapped form of an IPv4 prefix becomes that, leading zeros of an IPv4 number
// do not make it octal. What is still no prefix becomes the zero Prefix, which
// [Allocator.Load] reports with its text.
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

// decimal returns text without the leading zeros of its numbers if it looks like
// an IPv4 prefix.
func decimal(text string) string {
	if strings.Contains(text, ":") {
		return text
	}
	a, bits, _ := strings.Cut(text, "/")
	parts := strings.Split(a, ".")
	for i, part := range parts {
		if trimmed := strings.TrimLeft(part, "0"); trimmed != part {
			if trimmed == "" {
				trimmed = "0"
			}
			parts[i] = trimmed
		}
	}
	return strings.Join(parts, ".") + "/" + bits
}

// usable returns the masked prefix of p's own family that covers what p means, and
// what was wrong with p. It returns the zero Prefix if p means nothing.
func usable(p netip.Prefix) (netip.Prefix, error) {
	err := addr.Check(p)
	switch {
	case err == nil:
		return p, nil
	case !p.IsValid():
		return netip.Prefix{}, err
	case p.Addr().Is4In6() && p.Bits() >= 96:
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}
