package numbers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Range is the numbers from First to Last, both included. Last is at most [Max].
type Range struct{ First, Last uint64 }

// Max is the largest number: numbers have 48 bits, as MAC addresses have.
const Max = 1<<48 - 1

// Numbers allocates the numbers of one range. Make a Numbers with [New] or [Open].
type Numbers struct {
	e    *ipset.Engine
	name string
	mu   sync.Mutex
	r    Range
}

const (
	pool = "numbers"
	bits = 120 // of a block: 256 numbers
)

// ours names the pool, which is Manual: only calls that name it use it.
var ours = []string{pool}

// owner owns all blocks, because numbers have no hosts.
var owner = alloc.VirtualOwner("numbers")

// New makes a range of numbers, which the store keeps in a space of that name. The space
// must contain nothing else. If the range exists, New writes nothing and keeps an
// operator's settings of its pool. It fails with [ipalloc.ErrExists] if another range has
// the name, also after SetRange, or if the space has another pool. It fails with [ipalloc.ErrInvalid] for a
// name that a space cannot have, and for a range that is empty or ends above [Max].
func New(ctx context.Context, db store.Store, name string, r Range, o ipset.Options) (*Numbers, error) {
	n := &Numbers{name: name, r: r}
	if err := r.check(); err != nil {
		return nil, n.fail("new", "", err)
	}
	p, err := n.open(ctx, db, o)
	if errors.Is(err, ipalloc.ErrNotFound) {
		p.Prefix, p.BlockBits, p.Order, p.Manual = all, bits, alloc.Lowest, true
		p.Name, p.Ranges = pool, r.addrs()
		err = n.e.AddPool(ctx, p) // ErrExists beside another New
	}
	if is, ok := rangeOf(p); err == nil && (!ok || is != r) {
		err = &ipalloc.Error{Reason: "the name has another range", Err: ipalloc.ErrExists}
	}
	if err != nil {
		return nil, n.fail("new", "", err)
	}
	return n, nil
}

// Open returns the numbers that [New] made under name. It writes nothing. It fails with
// [ipalloc.ErrNotFound] if there are none.
func Open(ctx context.Context, db store.Store, name string, o ipset.Options) (*Numbers, error) {
	n := &Numbers{name: name}
	p, err := n.open(ctx, db, o)
	if errors.Is(err, ipalloc.ErrExists) {
		err = &ipalloc.Error{Reason: "the space has no numbers", Err: ipalloc.ErrNotFound}
	}
	if err != nil {
		return nil, n.fail("open", "", err)
	}
	n.r, _ = rangeOf(p)
	return n, nil
}

// Names yields the names of all ranges in a store, in byte order. An error is the last
// value that it yields.
func Names(ctx context.Context, db store.Store, o ipset.Options) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		root, err := ipset.New(db, o)
		if err != nil {
			yield("", (&Numbers{}).fail("names", "", err))
			return
		}
		for name, err := range root.Operator().Spaces(ctx) {
			n := &Numbers{name: name}
			if err == nil {
				_, err = n.open(ctx, db, o)
			}
			switch {
			case errors.Is(err, ipalloc.ErrExists) || errors.Is(err, ipalloc.ErrNotFound): // a space with other pools
			case err != nil:
				yield("", n.fail("names", "", err))
				return
			case !yield(name, nil):
				return
			}
		}
	}
}

// all is the prefix of the pool of every range, with 48 bits for the number. It is not
// ::/80, which contains the IPv4-mapped addresses.
var all = netip.MustParsePrefix("fd00::/80")

// open makes the engine and returns the pool. It fails with [ipalloc.ErrNotFound] if the
// space has no pool, and with [ipalloc.ErrExists] if the space has a pool that New does
// not make.
func (n *Numbers) open(ctx context.Context, db store.Store, o ipset.Options) (alloc.Pool, error) {
	root, err := ipset.New(db, o)
	if err == nil && n.name == "" {
		_, err = store.Space(db, "") // the error for a space without a name
	}
	if err == nil {
		n.e, err = root.InSpace(n.name)
	}
	if err != nil {
		return alloc.Pool{}, err
	}
	pools, err := n.e.Pools(ctx)
	switch {
	case err != nil:
		return alloc.Pool{}, err
	case len(pools) == 0:
		return alloc.Pool{}, ipalloc.ErrNotFound
	}
	if _, ok := rangeOf(pools[0]); !ok || len(pools) > 1 {
		return alloc.Pool{}, &ipalloc.Error{Reason: "the space has pools of addresses", Err: ipalloc.ErrExists}
	}
	return pools[0], nil
}

// check refuses an empty range, and numbers that are too large.
func (r Range) check() error {
	if r.First > r.Last {
		return &ipalloc.Error{Field: "Range", Reason: "First is above Last", Err: ipalloc.ErrInvalid}
	}
	return inBits("Range", r.Last)
}

// inBits refuses a number that is too large.
func inBits(field string, x uint64) error {
	if x > Max {
		return &ipalloc.Error{Field: field, Reason: strconv.FormatUint(x, 10) + " has more than 48 bits", Err: ipalloc.ErrInvalid}
	}
	return nil
}

// addrs returns the range as addresses of the pool.
func (r Range) addrs() []netipx.IPRange {
	return []netipx.IPRange{netipx.IPRangeFrom(addr(r.First), addr(r.Last))}
}

// rangeOf returns the range of a pool, and false for a pool that New does not make.
func rangeOf(p alloc.Pool) (Range, bool) {
	if p.Name != pool || p.Prefix != all || p.BlockBits != bits || len(p.Ranges) != 1 {
		return Range{}, false
	}
	return Range{number(p.Ranges[0].From()), number(p.Ranges[0].To())}, true
}

// Range returns the range, as it was when n was made or as [Numbers.SetRange] set it.
func (n *Numbers) Range() Range {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.r
}

// SetRange grows, shrinks or moves the range. Numbers held outside it stay held. Other
// programs that opened the range before see the change at their next [Open]. Until then
// they assign only numbers that are in both ranges. It fails with [ipalloc.ErrInvalid]
// for a range that is empty or ends above [Max].
func (n *Numbers) SetRange(ctx context.Context, r Range) error {
	err := r.check()
	var pools []alloc.Pool
	if err == nil {
		pools, err = n.e.Pools(ctx)
	}
	i := slices.IndexFunc(pools, func(p alloc.Pool) bool { return p.Name == pool })
	if err == nil && i < 0 {
		err = ipalloc.ErrNotFound
	}
	if err == nil {
		p := pools[i]
		p.Ranges = r.addrs()
		err = n.e.UpdatePool(ctx, p)
	}
	if err != nil {
		return n.fail("set range", "", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.r = r
	return nil
}

// fail turns an error of the engine into an error of a call, nil into nil. It replaces
// the handle and the address by the owner and the number.
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
		e.Text, e.Addr = strconv.FormatUint(number(e.Addr), 10), netip.Addr{}
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

func addr(n uint64) netip.Addr {
	b := all.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], n)
	return netip.AddrFrom16(b)
}

func number(a netip.Addr) uint64 { b := a.As16(); return binary.BigEndian.Uint64(b[8:]) }

// Assign returns the number that an owner holds; if it holds none, Assign allocates the
// lowest free one.
func (n *Numbers) Assign(ctx context.Context, of string) (uint64, error) {
	if err := named(of); err != nil {
		return 0, n.fail("assign", of, err)
	}
	got, err := n.e.AutoAssign(ctx, alloc.AssignArgs{
		Owner: owner, Num6: 1, Choose: alloc.From(addr(n.Range().First)), Handle: of, Existing: true, Pools: ours,
	})
	if err != nil {
		return 0, n.fail("assign", of, err)
	}
	return number(got.V6[0].Address), nil
}

// Occupy allocates the number x to an owner. The owner may hold other numbers, and x may
// be outside the range. It fails with [ipalloc.ErrInvalid] for a number above [Max].
func (n *Numbers) Occupy(ctx context.Context, of string, x uint64) error {
	if err := cmp.Or(named(of), inBits("number", x)); err != nil {
		return n.fail("occupy", of, err)
	}
	_, err := n.e.AssignIP(ctx, alloc.AssignIPArgs{Address: addr(x), Owner: owner, Handle: of})
	return n.fail("occupy", of, err)
}

// Release releases all numbers of an owner and returns them.
func (n *Numbers) Release(ctx context.Context, of string) (released []uint64, err error) {
	as, err := n.e.ReleaseByHandle(ctx, of)
	for _, a := range as {
		released = append(released, number(a))
	}
	return released, n.fail("release", of, err)
}

// Transfer gives the number x of an owner to another owner, and does nothing if that has
// been done. It fails with [ipalloc.ErrMismatch] if a third owner holds the number, and
// with [ipalloc.ErrNotHeld] if it is free. It fails with [ipalloc.ErrInvalid] for a
// number above [Max].
func (n *Numbers) Transfer(ctx context.Context, x uint64, from, to string) error {
	if err := inBits("number", x); err != nil {
		return n.fail("transfer", from, err)
	}
	_, err := n.e.Transfer(ctx, alloc.TransferArgs{From: from, To: to, Address: addr(x)})
	return n.fail("transfer", from, err)
}

// Owner returns the owner of a number. It fails with [ipalloc.ErrNotHeld] if the number
// is free, and with [ipalloc.ErrInvalid] for a number above [Max].
func (n *Numbers) Owner(ctx context.Context, x uint64) (string, error) {
	if err := inBits("number", x); err != nil {
		return "", n.fail("look up", "", err)
	}
	al, err := n.e.Lookup(ctx, addr(x))
	return al.Handle, n.fail("look up", "", err)
}

// Owned returns the numbers that an owner holds, ascending. Cost: two round trips.
func (n *Numbers) Owned(ctx context.Context, of string) (held []uint64, err error) {
	als, err := n.e.IPsByHandle(ctx, of)
	for _, al := range als {
		held = append(held, number(al.Address))
	}
	return held, n.fail("owned", of, err)
}

// All yields the held numbers, ascending, with their owners.
func (n *Numbers) All(ctx context.Context) iter.Seq2[Holding, error] {
	return func(yield func(Holding, error) bool) {
		for al, err := range n.e.Allocations(ctx, all) {
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
	Number uint64
	Owner  string
}
