package servicealloc

import (
	"fmt"
	"math"
	"slices"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// Protocol is a transport protocol, written as Kubernetes writes it. The zero value
// stands for all protocols.
type Protocol string

// The protocols that a service may use.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// protocols lists the protocols that have ports.
var protocols = [...]Protocol{TCP, UDP, SCTP}

func (p Protocol) valid() bool { return p == "" || slices.Contains(protocols[:], p) }

// Port is a port number of one protocol, or of all protocols.
type Port struct {
	Protocol Protocol
	Number   uint16
}

// overlaps reports whether p and o have the same number, and the same protocol unless p
// or o has all protocols. The number 0 overlaps nothing.
func (p Port) overlaps(o Port) bool {
	return p.Number != 0 && p.Number == o.Number && (p.Protocol == o.Protocol || p.Protocol == "" || o.Protocol == "")
}

// PortRange is a closed range of port numbers.
type PortRange struct {
	First, Last uint16
	// PerProtocol numbers the ports of each protocol separately. Without it a number is
	// taken for all protocols, whichever one a request names, as in Kubernetes.
	PerProtocol bool
}

// String returns the form that Kubernetes writes: "30000-32767".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// check returns why r is not a range, "" if it is one.
func (r PortRange) check() string {
	switch {
	case r.First == 0:
		return "begins at port 0"
	case r.Last < r.First:
		return "is empty"
	}
	return ""
}

// codePortRange encodes or decodes a range in a snapshot.
func codePortRange(c *wire.Coder, r *PortRange) {
	wire.Upto(c, &r.First, math.MaxUint16)
	wire.Upto(c, &r.Last, math.MaxUint16)
	wire.Bool(c, &r.PerProtocol)
}
