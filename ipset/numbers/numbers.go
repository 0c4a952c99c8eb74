package numbers

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"
	"strconv"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Range is the numbers from First to Last.
type Range struct{ First, Last uint32 }

// Numbers hands out the numbers of one range. [New] makes it.
type Numbers struct {
	e    *ipset.Engine
	name string
	r    Range
}

const (
	pool = "numbers"
	bits = 24 // of a block: 256 numbers
)

// owner has all blocks: numbers know no hosts.
var owner = alloc.VirtualOwner("numbers")

// New returns the numbers of a range, which the store keeps under name. A later New may grow or shrink the range; numbers held
// outside it stay held. It returns [ipalloc.ErrInvalid] for a name that a space cannot have, and for an empty range.
func New(ctx context.Context, db store.Store, name string, r Range, o ipset.Options) (*Numbers, error) {
	n := &Numbers{name: name, r: r}
	if r.First > r.Last {
		return nil, n.fail("new", "", &ipalloc.Error{Field: "Range", Reason: "First is above Last", Err: ipalloc.ErrInvalid})
	}
	all, err := ipset.New(db, o)
	if err == nil {
		n.e, err = all.InSpace(name)
	}
	if err != nil {
		return nil, n.fail("new", "", err)
	}
	p := alloc.Pool{
		Name: pool, Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), BlockBits: bits, Order: alloc.Lowest,
		Ranges: []netipx.IPRange{netipx.IPRangeFrom(addr(r.First), addr(r.Last))},
	}
	if err := n.e.Operator().ChangePools(ctx, alloc.PoolChanges{Set: []alloc.Pool{p}}); err != nil {
		return nil, n.fail("new", "", err)
	}
	return n, nil
}

// fail returns an error of the engine as that of a call, nil for nil: of an owner and a number in place of a handle and an address.
func (n *Numbers) fail(op, of string, err error) error {
	if err == nil {
		return nil
	}
	e := ipalloc.Error{Err: err}
	if in, ok := err.(*ipalloc.Error); ok {
		e = *in // the callers of one commit may share it
	}
	e.Package, e.Op, e.Owner, e.Handle, e.Name, e.Prefix = "numbers", op, of, "", n.name, netip.Prefix{}
	switch {
	case e.Addr.IsValid():
		e.Text, e.Addr = strconv.FormatUint(uint64(number(e.Addr)), 10), netip.Addr{}
	case e.Field == "handle":
		e.Field = "owner"
	case errors.Is(err, ipalloc.ErrFull):
		e.Reason = "no number is free"
	}
	return &e
}

// named refuses an owner without a name.
func named(of string) error {
	if of == "" {
		return &ipalloc.Error{Field: "owner", Reason: "it is empty", Err: ipalloc.ErrInvalid}
	}
	return nil
}

func addr(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

func number(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

// Assign returns the number that an owner holds, and gives it the lowest free one if it holds none.
func (n *Numbers) Assign(ctx context.Context, of string) (uint32, error) {
	if err := named(of); err != nil {
		return 0, n.fail("assign", of, err)
	}
	got, err := n.e.AutoAssign(ctx, alloc.AssignArgs{
		Owner: owner, Num4: 1, Choose: alloc.From(addr(n.r.First)), Handle: of, Existing: true,
	})
	if err != nil {
		return 0, n.fail("assign", of, err)
	}
	return number(got.V4[0].Address), nil
}

// Occupy gives an owner the number x. The owner may hold others, and x may lie outside
// the range.
func (n *Numbers) Occupy(ctx context.Context, of string, x uint32) error {
	if err := named(of); err != nil {
		return n.fail("occupy", of, err)
	}
	_, err := n.e.AssignIP(ctx, alloc.AssignIPArgs{Address: addr(x), Owner: owner, Handle: of})
	return n.fail("occupy", of, err)
}

// Release releases all numbers of an owner and returns them.
func (n *Numbers) Release(ctx context.Context, of string) (released []uint32, err error) {
	as, err := n.e.ReleaseByHandle(ctx, of)
	for _, a := range as {
		released = append(released, number(a))
	}
	return released, n.fail("release", of, err)
}

// Owner returns the owner of a number. It returns [ipalloc.ErrNotHeld] for a free one.
func (n *Numbers) Owner(ctx context.Context, x uint32) (string, error) {
	al, err := n.e.Lookup(ctx, addr(x))
	return al.Handle, n.fail("look up", "", err)
}

// All yields the numbers that are held, ascending, with their owners.
func (n *Numbers) All(ctx context.Context) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		for al, err := range n.e.Allocations(ctx, netip.PrefixFrom(netip.IPv4Unspecified(), 0)) {
			if err != nil {
				yield(Holding{}, n.fail("list", "", err))
				return
			}
			if !yield(Holding{number(al.Address), al.Handle}, nil) {
				return
			}
		}
	}
}

// Holding is a number and its owner.
type Holding struct {
	Number uint32
	Owner  string
}
