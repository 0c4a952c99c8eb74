// Package calico reads and writes blocks in Calico's stored form: the JSON of its backend
// model, version 1.
package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// record is the JSON form.
type record struct {
	CIDR         string            `json:"cidr"`
	Affinity     *string           `json:"affinity"`
	ClaimTime    *time.Time        `json:"affinityClaimTime,omitempty"`
	Allocations  []*int            `json:"allocations"`
	Unallocated  []int             `json:"unallocated"`
	Attributes   []attribute       `json:"attributes"`
	Sequence     uint64            `json:"sequenceNumber"`
	Sequences    map[string]uint64 `json:"sequenceNumberForAllocation"`
	Deleted      bool              `json:"deleted"`
	HostAffinity *string           `json:"hostAffinity,omitempty"`
}

type attribute struct {
	Handle     *string           `json:"handle_id"`
	Active     map[string]string `json:"secondary"`
	Alternate  map[string]string `json:"alternate,omitempty"`
	ReleasedAt *time.Time        `json:"releasedAt,omitempty"`
}

const (
	// reservedHandle is the handle of the addresses that Calico reserves in a Windows
	// host's block.
	reservedHandle = "windows-reserved-ipam-handle"
	// nodeAttribute is the attribute with the host of an address.
	nodeAttribute = "node"
	// most is the size of the largest block; Calico's own largest is 4,096 addresses.
	most = 1 << 16
)

// corrupt returns the error of a block that contradicts itself.
func corrupt(prefix netip.Prefix, format string, args ...any) error {
	return &ipalloc.Error{Package: "calico", Op: "import", Prefix: prefix, Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrCorrupt}
}

// Import reads a block. A cooling address stays cooling until cooldown after its release.
// Addresses reserved for a Windows host become the block's reserved ones. An empty block
// is taken to have been empty since it was claimed. An address is held for the host in
// its attribute "node", or else for the block's owner. Pass the block to
// [ipset.Operator.ImportBlock].
//
// It fails with [ipalloc.ErrCorrupt] for a block that is unreadable or contradicts
// itself.
func Import(data []byte, cooldown time.Duration) (*block.Block, error) {
	var c record
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, corrupt(netip.Prefix{}, "%v", err)
	}
	p, err := netip.ParsePrefix(c.CIDR)
	if err != nil {
		return nil, corrupt(p, "%v", err)
	}
	p = p.Masked()
	o, err := c.options(p)
	if err != nil {
		return nil, err
	}
	size := uint64(1) << min(p.Addr().BitLen()-p.Bits(), 17)
	if size > most || uint64(len(c.Allocations)) != size {
		return nil, corrupt(p, "it lists %d addresses", len(c.Allocations))
	}
	var busy, cool []alloc.Allocation
	at := p.Addr()
	addrs := make([]netip.Addr, size)
	for x, i := range c.Allocations {
		addrs[x], at = at, at.Next()
		if i == nil || uint64(x) < o.Head || uint64(x) >= size-o.Tail {
			continue
		}
		if *i < 0 || *i >= len(c.Attributes) {
			return nil, corrupt(p, "address %d has attributes %d of %d", x, *i, len(c.Attributes))
		}
		al, err := c.Attributes[*i].allocation(o.Owner, cooldown)
		if err != nil {
			return nil, corrupt(p, "address %d: %v", x, err)
		}
		al.Address, al.Seq = addrs[x], min(max(c.Sequences[strconv.Itoa(x)], 1), o.Seq)
		if al.Cooling {
			cool = append(cool, al)
		} else {
			busy = append(busy, al)
		}
	}
	slices.SortStableFunc(cool, func(a, b alloc.Allocation) int { return a.Until.Compare(b.Until) })
	var free []netip.Addr
	for _, x := range c.Unallocated {
		if x < 0 || uint64(x) >= size {
			return nil, corrupt(p, "free address %d", x)
		}
		free = append(free, addrs[x])
	}
	b, err := block.Restore(p, o, free, append(busy, cool...))
	if err != nil && !errors.Is(err, ipalloc.ErrCorrupt) {
		err = corrupt(p, "%v", err)
	}
	return b, err
}

// allocation returns the allocation of an address with these attributes.
func (a *attribute) allocation(owner alloc.Owner, cooldown time.Duration) (al alloc.Allocation, err error) {
	al.Host = owner
	if a.Handle != nil {
		al.Handle = *a.Handle
	}
	if al.Attributes, err = alloc.NewAttributes(a.Active); err != nil {
		return al, err
	}
	if al.Alternate, err = alloc.NewAttributes(a.Alternate); err != nil {
		return al, err
	}
	if node := a.Active[nodeAttribute]; node != "" {
		al.Host = alloc.HostOwner(node)
	}
	if a.ReleasedAt != nil {
		al.Cooling, al.Until = true, a.ReleasedAt.Add(cooldown)
	}
	return al, nil
}

// options reads the affinity and the reserved ends.
func (c *record) options(p netip.Prefix) (o block.Options, err error) {
	o.Seq = max(c.Sequence, 1)
	switch {
	case c.Affinity != nil:
		o.Owner, err = alloc.ParseOwner(*c.Affinity)
	case c.HostAffinity != nil:
		o.Owner = alloc.HostOwner(*c.HostAffinity)
	}
	if err != nil || c.Deleted {
		return o, corrupt(p, "affinity %v, deleted %v", o.Owner, c.Deleted)
	}
	if c.ClaimTime != nil {
		o.Claimed = *c.ClaimTime
	}
	isReserved := func(i *int) bool {
		if i == nil || *i < 0 || *i >= len(c.Attributes) {
			return false
		}
		h := c.Attributes[*i].Handle
		return h != nil && *h == reservedHandle
	}
	n := len(c.Allocations)
	for int(o.Head) < n && isReserved(c.Allocations[o.Head]) {
		o.Head++
	}
	for int(o.Head+o.Tail) < n && isReserved(c.Allocations[n-1-int(o.Tail)]) {
		o.Tail++
	}
	return o, nil
}

// Export writes a block. The release time of a cooling address is the end of its cooling minus
// cooldown.
//
// It fails with [ipalloc.ErrInvalid] for a block of more than 65,536 addresses, and for a
// block with leases or shared addresses, which Calico's form cannot express.
func Export(b *block.Block, cooldown time.Duration) ([]byte, error) {
	if b == nil {
		return nil, &ipalloc.Error{Package: "calico", Op: "export", Field: "b", Reason: "is nil", Err: ipalloc.ErrInvalid}
	}
	p := b.Prefix()
	refuse := func(at netip.Addr, reason string) ([]byte, error) {
		return nil, &ipalloc.Error{Package: "calico", Op: "export", Prefix: p, Addr: at, Reason: reason, Err: ipalloc.ErrInvalid}
	}
	if p.Addr().BitLen()-p.Bits() > 16 {
		return refuse(netip.Addr{}, "the block is too large for Calico")
	}
	size := 1 << (p.Addr().BitLen() - p.Bits())
	c := record{
		CIDR: p.String(), Allocations: make([]*int, size), Unallocated: []int{},
		Attributes: []attribute{}, Sequence: b.Seq() + 1, Sequences: map[string]uint64{},
	}
	if o := b.Owner(); o.Kind != alloc.Nobody {
		s := o.String()
		c.Affinity = &s
	}
	if t := b.Claimed(); !t.IsZero() {
		c.ClaimTime = &t
	}
	add := func(a attribute) *int {
		c.Attributes = append(c.Attributes, a)
		i := len(c.Attributes) - 1
		return &i
	}
	if head, tail := b.Reserved(); head|tail != 0 {
		h := reservedHandle
		i := add(attribute{Handle: &h})
		for x := range head {
			c.Allocations[x] = i
		}
		for x := range tail {
			c.Allocations[size-1-int(x)] = i
		}
	}
	ordinal := make(map[netip.Addr]int, size)
	for x, at := 0, p.Addr(); x < size; x, at = x+1, at.Next() {
		ordinal[at] = x
	}
	// Addresses with equal attributes share them, as in Calico.
	type same struct {
		handle            string
		active, alternate alloc.Attributes
	}
	number := make(map[same]*int)
	for al := range b.All() {
		x := ordinal[al.Address]
		a := attribute{Active: al.Attributes.Map(), Alternate: al.Alternate.Map()}
		if al.Handle != "" {
			a.Handle = &al.Handle
		}
		if al.Share() != (alloc.Share{}) {
			return refuse(al.Address, "the address may have several holders")
		}
		switch k := (same{al.Handle, al.Attributes, al.Alternate}); {
		case al.Cooling:
			t := al.Until.Add(-cooldown)
			a.ReleasedAt = &t
			c.Allocations[x] = add(a)
		case !al.Until.IsZero():
			return refuse(al.Address, "the address is leased")
		default:
			if number[k] == nil {
				number[k] = add(a)
			}
			c.Allocations[x] = number[k]
			c.Sequences[strconv.Itoa(x)] = al.Seq
		}
	}
	for at := range b.FreeAddresses() {
		c.Unallocated = append(c.Unallocated, ordinal[at])
	}
	return json.Marshal(c)
}
