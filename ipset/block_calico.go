package ipset

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
)

// calicoBlock is the JSON form in which Calico stores a block (its backend model, v1).
type calicoBlock struct {
	CIDR         string            `json:"cidr"`
	Affinity     *string           `json:"affinity"`
	ClaimTime    *time.Time        `json:"affinityClaimTime,omitempty"`
	Allocations  []*int            `json:"allocations"`
	Unallocated  []int             `json:"unallocated"`
	Attributes   []calicoAttribute `json:"attributes"`
	Sequence     uint64            `json:"sequenceNumber"`
	Sequences    map[string]uint64 `json:"sequenceNumberForAllocation"`
	Deleted      bool              `json:"deleted"`
	HostAffinity *string           `json:"hostAffinity,omitempty"`
}

type calicoAttribute struct {
	Handle     *string           `json:"handle_id"`
	Active     map[string]string `json:"secondary"`
	Alternate  map[string]string `json:"alternate,omitempty"`
	ReleasedAt *time.Time        `json:"releasedAt,omitempty"`
}

const (
	// calicoReserved is the handle of the addresses that Calico sets aside in a Windows host's block.
	calicoReserved = "windows-reserved-ipam-handle"
	// calicoNode is the attribute in which Calico keeps the host that an address is for.
	calicoNode = "node"
	// calicoMax is the largest block taken over; Calico's own largest is 4,096 addresses.
	calicoMax = 1 << 16
)

// ImportCalicoBlock reads a block in the JSON form of Calico's store. Addresses that cool there do so here until
// cooldown after their release; addresses reserved for a Windows host become the block's reserved ones; a block that
// is empty counts as empty since its claim.
//
// It returns an error that is [ipalloc.ErrCorrupt] for anything that does not fit together.
func ImportCalicoBlock(data []byte, cooldown time.Duration) (*Block, error) {
	var c calicoBlock
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
	}
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	p, err := netip.ParsePrefix(c.CIDR)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
	}
	b, err := NewBlock(p.Masked(), o)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
	}
	if b.last >= calicoMax || uint64(len(c.Allocations)) != b.last+1 {
		return nil, fmt.Errorf("%w: block %s lists %d addresses", ipalloc.ErrCorrupt, p, len(c.Allocations))
	}
	b.seq = max(c.Sequence, 1)
	b.free = queue{}
	r := &reader{}
	for x, i := range c.Allocations {
		if i == nil || uint64(x) < b.head || uint64(x) > b.last-b.tail {
			continue
		}
		if *i < 0 || *i >= len(c.Attributes) {
			return nil, fmt.Errorf("%w: address %d of %s has attributes %d of %d", ipalloc.ErrCorrupt, x, p, *i, len(c.Attributes))
		}
		if err := b.importCalico(r, uint64(x), &c.Attributes[*i], c.Sequences[strconv.Itoa(x)], cooldown); err != nil {
			return nil, err
		}
	}
	for _, x := range c.Unallocated {
		if x < 0 || uint64(x) > b.last {
			return nil, fmt.Errorf("%w: free address %d of %s", ipalloc.ErrCorrupt, x, p)
		}
		b.free.push(uint64(x))
	}
	slices.SortStableFunc(b.cool, func(x, y uint64) int {
		_, s := b.look(x)
		_, t := b.look(y)
		return int(min(max(s.until-t.until, -1), 1))
	})
	if err := b.Check(); err != nil || r.err != nil {
		return nil, fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
	}
	return b, nil
}

// importCalico restores one address.
func (b *Block) importCalico(r *reader, x uint64, a *calicoAttribute, seq uint64, cooldown time.Duration) error {
	id := identity{}
	if a.Handle != nil {
		id.handle = *a.Handle
		if strings.IndexByte(id.handle, 0) >= 0 || len(id.handle) > maxName {
			return fmt.Errorf("%w: handle %q", ipalloc.ErrCorrupt, id.handle)
		}
	}
	active, err := NewAttributes(a.Active)
	if err != nil {
		return err
	}
	alternate, err := NewAttributes(a.Alternate)
	if err != nil {
		return err
	}
	id.active, id.alternate = active.code, alternate.code
	if node := a.Active[calicoNode]; node != "" {
		if err := checkName("node", node); err != nil {
			return fmt.Errorf("%w: %v", ipalloc.ErrCorrupt, err)
		}
		id.host = b.noteOf(HostOwner(node))
	}
	s := slot{seq: min(max(seq, 1), b.seq), holder: b.holders.intern(id)}
	if a.ReleasedAt != nil {
		s.until = stamp(*a.ReleasedAt) + int64(cooldown)
	}
	b.restore(r, x, s, a.ReleasedAt != nil)
	return nil
}

// options reads the affinity and the reserved ends.
func (c *calicoBlock) options() (BlockOptions, error) {
	var o BlockOptions
	var err error
	switch {
	case c.Affinity != nil:
		o.Owner, err = ParseOwner(*c.Affinity)
	case c.HostAffinity != nil:
		o.Owner = HostOwner(*c.HostAffinity)
	}
	if err != nil || c.Deleted {
		return o, fmt.Errorf("%w: affinity %v, deleted %v", ipalloc.ErrCorrupt, o.Owner, c.Deleted)
	}
	if c.ClaimTime != nil {
		o.Claimed = *c.ClaimTime
	}
	isReserved := func(i *int) bool {
		if i == nil || *i < 0 || *i >= len(c.Attributes) {
			return false
		}
		h := c.Attributes[*i].Handle
		return h != nil && *h == calicoReserved
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

// ExportCalico returns the block in the JSON form of Calico's store; cooldown tells when a cooling address was released.
//
// It returns [ipalloc.ErrInvalid] for a block of more than 65,536 addresses and [ipalloc.ErrInvalid] for one that holds
// leases, for which that form has no place.
func (b *Block) ExportCalico(cooldown time.Duration) ([]byte, error) {
	if b.last >= calicoMax {
		return nil, fmt.Errorf("%w: %s is too large for Calico", errBadBlockSize, b.prefix)
	}
	c := calicoBlock{
		CIDR: b.prefix.String(), Allocations: make([]*int, b.last+1), Unallocated: []int{},
		Attributes: []calicoAttribute{}, Sequence: b.seq + 1, Sequences: map[string]uint64{},
	}
	if b.owner.Kind != Nobody {
		s := b.owner.String()
		c.Affinity = &s
	}
	if b.claimed != 0 {
		t := unstamp(b.claimed)
		c.ClaimTime = &t
	}
	attribute := func(a calicoAttribute) *int {
		c.Attributes = append(c.Attributes, a)
		i := len(c.Attributes) - 1
		return &i
	}
	if b.head|b.tail != 0 {
		h := calicoReserved
		i := attribute(calicoAttribute{Handle: &h})
		for x := range b.head {
			c.Allocations[x] = i
		}
		for x := range b.tail {
			c.Allocations[b.last-x] = i
		}
	}
	number := make(map[int32]*int)
	for x, s := range b.each() {
		al := b.allocation(x, s)
		a := calicoAttribute{Active: al.Attributes.Map(), Alternate: al.Alternate.Map()}
		if al.Handle != "" {
			a.Handle = &al.Handle
		}
		switch {
		case al.Cooling:
			t := al.Until.Add(-cooldown)
			a.ReleasedAt = &t
			c.Allocations[x] = attribute(a)
		case s.until != 0:
			return nil, fmt.Errorf("%w: %s is leased", errBadArgument, al.Address)
		default:
			if number[s.holder] == nil {
				number[s.holder] = attribute(a)
			}
			c.Allocations[x] = number[s.holder]
			c.Sequences[strconv.FormatUint(x, 10)] = s.seq
		}
	}
	for _, s := range b.free.spans[b.free.head:] {
		for x := s.lo; x <= s.hi; x++ {
			c.Unallocated = append(c.Unallocated, int(x))
		}
	}
	return json.Marshal(c)
}
