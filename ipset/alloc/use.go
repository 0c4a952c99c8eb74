package alloc

import (
	"fmt"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Use is what an address is for; a set of bits in a pool.
type Use uint8

const (
	// Workload addresses go to pods, containers and virtual machines.
	Workload Use = 1 << iota
	// Tunnel addresses go to the tunnel devices of hosts.
	Tunnel
	// LoadBalancer addresses go to services.
	LoadBalancer
)

// Order says which of the free addresses of a block is handed out next.
type Order uint8

const (
	// FIFO is the order of their release, so that an address rests as long as possible. A block that is new hands its addresses out
	// ascending.
	FIFO Order = iota
	// Lowest is the lowest address.
	Lowest
	// Random is any free address, with equal chances. The draw follows from a seed, the block and its sequence number, so the same
	// state gives the same address. It spreads addresses and is not a secret: a caller that knows the seed can predict it.
	Random
)

// orderNames are the texts of the orders.
var orderNames = [...]string{"fifo", "lowest", "random"}

// String returns "fifo", "lowest" or "random".
func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return fmt.Sprintf("order %d", uint8(o))
}

// MarshalText returns what String returns. It returns [ipalloc.ErrInvalid] for an unknown order.
func (o Order) MarshalText() ([]byte, error) {
	if int(o) >= len(orderNames) {
		return nil, cause.Wrap(ipalloc.Error{Op: "write", Field: "order", Text: o.String(), Err: ipalloc.ErrInvalid})
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads what MarshalText writes. It returns [ipalloc.ErrInvalid] for anything else.
func (o *Order) UnmarshalText(text []byte) error {
	i := slices.Index(orderNames[:], string(text))
	if i < 0 {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "order", Text: string(text), Err: ipalloc.ErrInvalid})
	}
	*o = Order(i)
	return nil
}
