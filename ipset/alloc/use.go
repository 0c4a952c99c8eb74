package alloc

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
	// FIFO is the order in which the addresses were released, so an address rests as long as possible. A new block hands out
	// its addresses in ascending order.
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
func (o Order) String() string { return nameOf(orderNames[:], "order", o) }

// MarshalText returns what String returns. It returns [ipalloc.ErrInvalid] for an unknown order.
func (o Order) MarshalText() ([]byte, error) { return writeName(orderNames[:], "order", o) }

// UnmarshalText reads what MarshalText writes. It returns [ipalloc.ErrInvalid] for anything else.
func (o *Order) UnmarshalText(text []byte) error { return readName(orderNames[:], "order", o, text) }
