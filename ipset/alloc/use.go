package alloc

// Use is the purpose of an address, or in a pool a set of purposes, as bits.
type Use uint8

const (
	// Workload addresses go to pods, containers and virtual machines.
	Workload Use = 1 << iota
	// Tunnel addresses go to the tunnel devices of hosts.
	Tunnel
	// LoadBalancer addresses go to services.
	LoadBalancer
)

// Order selects the next free address of a block.
type Order uint8

const (
	// FIFO takes addresses in the order of their release, so an address rests as long as
	// possible. A new block assigns its addresses in ascending order.
	FIFO Order = iota
	// Lowest takes the lowest address.
	Lowest
	// Random takes any free address, each with the same probability. The draw is derived
	// from a seed, the block and its sequence number, so the same state gives the same
	// address. It spreads addresses but is not a secret: a caller that knows the seed can
	// predict it.
	Random
)

// orderNames are the texts of the orders.
var orderNames = [...]string{"fifo", "lowest", "random"}

// String returns "fifo", "lowest" or "random".
func (o Order) String() string { return nameOf(orderNames[:], "order", o) }

// MarshalText returns the text of String. It fails with [ipalloc.ErrInvalid] for an
// unknown order.
func (o Order) MarshalText() ([]byte, error) { return writeName(orderNames[:], "order", o) }

// UnmarshalText reads the text of MarshalText. It fails with [ipalloc.ErrInvalid] for any
// other text.
func (o *Order) UnmarshalText(text []byte) error { return readName(orderNames[:], "order", o, text) }
