package assign

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// naming is the request for addresses that the caller names.
type naming struct {
	owner      block.Owner
	handle     string
	use        pool.Use // 0 is any
	most       int
	head, tail uint64
	// selectors has the labels of the owner and of the namespace count.
	selectors   bool
	node, space map[string]string
	share       block.Share // lets the holder join others that have the address
}

// found is a named address: its entry, its block, which is not in the entry yet if it was made for the owner, its ordinal, and
// whether the holder joins others; or the allocation, if the handle has it already.
type found struct {
	be    *txn.BlockEntry
	b     *block.Block
	x     uint64
	joins bool
	held  *block.Allocation
}

// find finds or makes the block of a named address that may be given to the handle.
func find(t *txn.Txn, cat *txn.CatalogEntry, a netip.Addr, q *naming) (f found, err error) {
	i := cat.Containing(a)
	if i < 0 {
		return f, cause.NoPool
	}
	be, err := t.Locate(cat, a)
	if err != nil {
		return f, err
	}
	f.be, f.b = be, be.Block
	if f.b != nil {
		if err := t.Ready(be, a); err != nil {
			return f, err
		}
		if x, err := f.b.Ordinal(a); err == nil && q.handle != "" && f.b.HasHolder(x, q.handle) {
			al := f.b.AllocationOf(x, q.handle)
			f.held = &al
			return f, nil
		}
	}
	switch pool := &cat.Pools[i]; {
	case pool.Disabled || q.use != 0 && pool.Uses&q.use == 0:
		return f, cause.NoPool
	case q.selectors && !(cat.SelectsNode(i, q.owner.Name, q.node) && cat.SelectsSpace(i, q.space)):
		return f, cause.Wrap(ipalloc.Error{Op: "assign", Name: pool.Name, Addr: a, Err: cause.Unselected})
	case q.head+q.tail > 0 && !cat.Config.Strict:
		return f, cause.LooseEnds
	case f.b == nil:
		if f.b, err = claim(t, cat, i, a, q); err != nil {
			return f, err
		}
	}
	if f.x, err = f.b.Ordinal(a); err != nil {
		return f, err
	}
	st, _ := f.b.Look(f.x)
	f.joins = st == block.Held && q.share != (block.Share{})
	switch {
	case f.joins:
		err = f.b.CanJoin(f.x, q.share.Key)
	case f.b.Owner() != q.owner && cat.Config.Strict:
		return f, cause.Wrap(ipalloc.Error{Op: "assign", Prefix: f.b.Prefix(), Holder: f.b.Owner().String(), Err: cause.Strict})
	default:
		err = f.b.CanHold(f.x, q.handle)
	}
	if err != nil {
		al, _ := f.b.Lookup(a)
		err = txn.InTheWay(al, err)
	}
	return f, err
}

// claim makes the block of an address for the owner.
func claim(t *txn.Txn, cat *txn.CatalogEntry, i int, a netip.Addr, q *naming) (*block.Block, error) {
	at := netip.PrefixFrom(a, cat.Pools[i].BlockBits).Masked()
	blocks, err := t.BlocksOf(q.owner)
	if err != nil {
		return nil, err
	}
	if !cat.MayClaim(blocks, i, q.most) {
		return nil, cause.Wrap(ipalloc.Error{Op: "claim", Prefix: at, Err: cause.BlockLimit})
	}
	return t.NewBlock(cat, i, at, block.Options{Owner: q.owner, Head: q.head, Tail: q.tail})
}

// checkNamed refuses addresses that no pool can have, and those named twice.
func (a *AssignArgs) checkNamed() error {
	for i, at := range a.Addresses {
		if !at.IsValid() || at.Is4In6() || at.Zone() != "" || slices.Contains(a.Addresses[:i], at) {
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: at, Err: cause.BadAddress})
		}
	}
	if len(a.Addresses) > maxNamed || len(a.Addresses) > 0 && a.inRow() {
		return fmt.Errorf("%w: %d named addresses, at most %d, and none beside contiguous ones", cause.BadArgument, len(a.Addresses), maxNamed)
	}
	return nil
}

// maxNamed bounds the addresses that one call names.
const maxNamed = 64

// pickNamed picks the addresses that the caller names; those that the handle has already go into the result.
func (p *AssignPlan) pickNamed(t *txn.Txn) error {
	if len(p.Addresses) == 0 {
		return nil
	}
	if err := t.FetchAt(p.cat, slices.Values(p.Addresses)); err != nil {
		return err
	}
	q := &naming{p.Owner, p.Handle, p.Use, p.MaxBlocks, p.Head, p.Tail, p.PoolsAndSelectors, p.node, p.Namespace, block.Share{}}
	for _, a := range p.Addresses {
		same := func(al block.Allocation) bool { return al.Address == a }
		if slices.ContainsFunc(p.result.V4, same) || slices.ContainsFunc(p.result.V6, same) {
			continue
		}
		if k := slices.IndexFunc(p.picks, func(k pick) bool { return k.fresh != nil && k.be.At.Contains(a) }); k >= 0 {
			x, err := p.picks[k].fresh.Ordinal(a)
			if err == nil {
				err = p.picks[k].fresh.CanHold(x, p.Handle)
			}
			if err != nil {
				return cause.Wrap(ipalloc.Error{Op: "assign", Addr: a, Err: err})
			}
			p.picks[k].ordinals = append(p.picks[k].ordinals, x)
			continue
		}
		f, err := find(t, p.cat, a, q)
		switch {
		case err != nil:
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: a, Err: err})
		case f.held != nil:
			p.result.add(*f.held)
		case f.be.Block == nil:
			p.picks = append(p.picks, pick{be: f.be, fresh: f.b, ordinals: []uint64{f.x}})
		default:
			p.picks = append(p.picks, pick{be: f.be, ordinals: []uint64{f.x}})
		}
	}
	p.sticky = len(p.picks)
	return nil
}

// pickMore picks from a block that was made for named addresses and reports whether it found any.
func (p *AssignPlan) pickMore(s *Search, i int, be *txn.BlockEntry) bool {
	for k := range p.picks[:p.sticky] {
		made := &p.picks[k]
		if made.be != be || made.fresh == nil {
			continue
		}
		more := p.peek(made.fresh, i, nil, s.want+len(made.ordinals), txn.Avoided(made.fresh, p.cat, i))
		more = slices.DeleteFunc(more, func(x uint64) bool { return slices.Contains(made.ordinals, x) })
		more = more[:min(s.want, len(more))]
		made.ordinals = append(made.ordinals, more...)
		s.want -= len(more)
		return len(more) > 0
	}
	return false
}

// wants returns how many addresses of each family are to be found.
func (p *AssignPlan) wants() (n [2]int) {
	n = p.asked()
	n[0], n[1] = n[0]-len(p.result.V4), n[1]-len(p.result.V6)
	for _, k := range p.picks {
		n[record.Family(k.be.At)/6] -= len(k.ordinals)
	}
	return n
}

// asked returns how many addresses of each family the call is to return.
func (p *AssignPlan) asked() [2]int {
	n := [2]int{p.Num4, p.Num6}
	for _, a := range p.Addresses {
		if a.Is4() {
			n[0]++
		} else {
			n[1]++
		}
	}
	return n
}
