package ipset

import (
	"github.com/ipalloc/ipalloc/ipset/block"
)

// The values that calls take and return are those of package block.
type (
	// Owner identifies the owner of a block, or the host that an address is held for. The zero value is no owner.
	Owner = block.Owner
	// OwnerKind says whether an owner is a machine.
	OwnerKind = block.OwnerKind
	// Attributes is an immutable set of keys and values that is kept with an address.
	Attributes = block.Attributes
	// Allocation is one address that is held, or that is cooling.
	Allocation = block.Allocation
	// Claim describes the holder of an address.
	Claim = block.Claim
	// Share, in a [Claim], lets an address have several holders.
	Share = block.Share
	// Guard is the condition on which an address is released.
	Guard = block.Guard
	// BlockInfo is a read-only view of a block as a query found it.
	BlockInfo = block.Info
	// Order says which of the free addresses of a block is handed out next.
	Order = block.Order
	// Outcome says what a release did with one address.
	Outcome = block.Outcome
	// Use is what an address is for; a set of bits in a [Pool].
	Use = block.Use
)

// The kinds of an [Owner].
const (
	Nobody  = block.Nobody
	Host    = block.Host
	Virtual = block.Virtual
)

// The uses of an address. Workload addresses go to pods, containers and virtual machines, Tunnel addresses to the tunnel devices of
// hosts, LoadBalancer addresses to services.
const (
	Workload     = block.Workload
	Tunnel       = block.Tunnel
	LoadBalancer = block.LoadBalancer
)

// The orders of a [Pool].
const (
	FIFO   = block.FIFO
	Lowest = block.Lowest
	Random = block.Random
)

// The outcomes of a release.
const (
	Released     = block.Released
	WasFree      = block.WasFree
	OwnerChanged = block.OwnerChanged
)

// HostOwner returns the owner that stands for the machine of that name.
func HostOwner(name string) Owner { return block.HostOwner(name) }

// ParseOwner reads what [Owner.String] writes: "host:a", "virtual:b", or "" for no owner. Anything else is [ipalloc.ErrInvalid].
func ParseOwner(s string) (Owner, error) { return block.ParseOwner(s) }

// NewAttributes returns the attributes in m. It returns [ipalloc.ErrLimit] if they come to more than 64 KiB.
func NewAttributes(m map[string]string) (Attributes, error) { return block.NewAttributes(m) }
