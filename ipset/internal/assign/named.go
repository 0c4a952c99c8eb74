package assign

// A named address ignores reservations and ranges, and selectors unless they are asked for, because the caller has chosen it. It
// is a pick like the automatic ones, so that both kinds share one commit, and one meaning of sharing, limits and requests.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// AssignIP carries out the call of that name: an assignment of one named address and no automatic one.
func (e *Assigner) AssignIP(ctx context.Context, a alloc.AssignIPArgs) (alloc.Allocation, error) {
	refuse := func(err error) (alloc.Allocation, error) {
		return alloc.Allocation{}, cause.Wrap(ipalloc.Error{Addr: a.Address, Owner: a.Owner.String(), Err: err})
	}
	if addr.CheckAddr(a.Address) != nil {
		return refuse(cause.BadAddress)
	}
	p := e.plan(&alloc.AssignArgs{
		Owner: a.Owner, Handle: a.Handle, Attributes: a.Attributes, TTL: a.TTL, Share: a.Share, Use: a.Use, Namespace: a.Namespace,
		Pools: a.Pools, Selectors: a.Selectors, WithinRules: a.WithinRules, Sticky: a.Sticky, Blocks: a.Blocks, Request: a.Request, Also: a.Also,
	})
	p.Since, p.Named = a.Since, []netip.Addr{a.Address}
	if !a.WithinRules {
		p.Use = a.Use // without a use any will do
	}
	got, err := e.assign(ctx, p, plain)
	if err != nil {
		return refuse(err)
	}
	return append(got.V4, got.V6...)[0], nil
}

// checkNamed refuses addresses that no pool can have, and those named twice.
func (a *args) checkNamed() error {
	for i, at := range a.Named {
		if !at.IsValid() || at.Is4In6() || at.Zone() != "" {
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: at, Err: cause.As("named", cause.BadAddress)})
		}
		if slices.Contains(a.Named[:i], at) {
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: at, Err: cause.Invalid("named", "it occurs twice")})
		}
	}
	for _, at := range [...]netip.Addr{a.Wish, a.From} {
		if at != (netip.Addr{}) && addr.CheckAddr(at) != nil {
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: at, Err: cause.As("Choose", cause.BadAddress)})
		}
	}
	switch n := len(a.Named); {
	case n > maxNamed:
		return cause.Invalid("named", "%d, at most %d", n, maxNamed)
	case n > 0 && (a.From.IsValid() || a.inRow()):
		return cause.Invalid("Choose", "%s goes without named addresses", a.Choose)
	case n > 0 && a.Existing:
		return cause.Invalid("Existing", "it goes without named addresses")
	case n > 0 && a.WithinRules && a.Share != (alloc.Share{}):
		return cause.Invalid("WithinRules", "it goes without Share")
	}
	return nil
}

// maxNamed bounds the addresses that one call names.
const maxNamed = 64

// pickNamed picks the addresses that the caller names; those that the handle has already go into the result.
func (p *AssignPlan) pickNamed(t *txn.Txn) error {
	if len(p.Named) == 0 {
		return nil
	}
	if err := t.FetchAt(p.cat, slices.Values(p.Named)); err != nil {
		return err
	}
	for _, a := range p.Named {
		same := func(al alloc.Allocation) bool { return al.Address == a }
		if slices.ContainsFunc(p.result.V4, same) || slices.ContainsFunc(p.result.V6, same) {
			continue
		}
		if err := p.pickAddress(t, a); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "assign", Addr: a, Err: err})
		}
	}
	p.sticky = len(p.picks)
	return nil
}

// pickAddress picks one named address. Its block is made for the owner if there is none.
func (p *AssignPlan) pickAddress(t *txn.Txn, a netip.Addr) error {
	i := p.cat.Containing(a)
	if err := p.mayName(i); err != nil {
		return err
	}
	if p.cat.Closed(i) {
		return cause.Wrap(ipalloc.Error{Op: "assign", Name: p.cat.Pools[i].Name, Addr: a, Err: cause.Closed})
	}
	q := pool.Choice{
		Family: record.Family(p.cat.Pools[i].Prefix), Use: cmp.Or(p.Use, pool.AllUses), Owner: p.Owner, Node: p.node, Space: p.Namespace,
		Named: true, Both: p.Selectors || p.WithinRules, AnyAddr: !p.WithinRules,
	}
	if p.WithinRules {
		q.Ends = p.Blocks.Head + p.Blocks.Tail
	}
	be, err := p.locate(t, a)
	if err != nil {
		return err
	}
	if be.Block != nil {
		if err := t.Ready(be, a); err != nil {
			return err
		}
		x, err := be.Ordinal(a)
		if err == nil && p.Handle != "" && be.HasHolder(x, p.Handle) {
			return p.answerHeld(t, be, x, &q)
		}
		if st, _ := be.Look(x); err == nil && st == block.Held && p.Share != (alloc.Share{}) {
			return p.join(t, i, &q, be, x)
		}
	}
	if err = p.pickOne(t, &q, be, a, true); errors.Is(err, cause.Covered) && p.WithinRules {
		s := &Search{family: q.Family, Tiers: pool.Tiers{Cat: p.cat.Catalog, Choice: q, Pools: []int{i}, Seen: len(p.cat.Pools)}}
		s.lists.Family, s.lists.Over = q.Family, s
		err = cmp.Or(p.timed(t, s), err) // time may delete what is in the way
	}
	return err
}

// join picks a held address that gets one more holder.
func (p *AssignPlan) join(t *txn.Txn, i int, q *pool.Choice, be *txn.BlockEntry, x uint64) error {
	if err := p.cat.Serve(i, q); err != nil {
		return err
	}
	if err := be.CanJoin(x, p.Share.Key); err != nil {
		al, _ := be.Lookup(be.Addr(x))
		return txn.InTheWay(al, err)
	}
	p.picks = append(p.picks, pick{be: be, joins: true, ordinals: []uint64{x}})
	id := block.IdentityOf(p.asClaim(), p.Owner, p.cat.Index(be.At)...)
	seq := be.Seq() + uint64(len(p.picks)) // the last one that these picks give to the block, or above
	return be.CanGrow(x, block.Holder{Identity: id, Seq: seq, Since: 1, Until: block.LeaseEnd(t.Now, p.TTL)}, t.E.Limits.Value)
}

// mayName returns an error unless an address of pool i, -1 for none, is in one of the pools that the caller names, if any.
func (p *AssignPlan) mayName(i int) error {
	if i < 0 {
		return cause.Outside
	}
	for _, name := range p.Pools {
		if p.cat.ByName(name) < 0 {
			return cause.Wrap(ipalloc.Error{Op: "choose", Name: name, Err: cause.UnknownPool})
		}
	}
	if len(p.Pools) > 0 && !p.names(i) {
		return cause.Wrap(ipalloc.Error{Op: "choose", Name: p.cat.Pools[i].Name, Err: cause.NotNamed})
	}
	return nil
}

// madeFor returns the pick that makes the block of an address, -1 if there is none.
func (p *AssignPlan) madeFor(a netip.Addr) int {
	return slices.IndexFunc(p.picks, func(k pick) bool { return k.fresh != nil && k.be.At.Contains(a) })
}

// mayOwn returns the error of a limit that keeps the owner from one more block of pool i.
func (p *AssignPlan) mayOwn(t *txn.Txn, i int, at netip.Prefix) error {
	limit, reached, err := t.Limit(p.cat.Catalog, p.Owner, i, p.Blocks.Max)
	if err == nil && reached {
		err = cause.Wrap(ipalloc.Error{Op: "claim", Prefix: at, Name: limit.Pool, Err: fmt.Errorf("%w: %d of %d", cause.BlockLimit, limit.Blocks, limit.Max)})
	}
	return err
}

// pickMore picks from a block that was made for named addresses and reports whether it found any.
func (p *AssignPlan) pickMore(s *Search, i int, be *txn.BlockEntry) (found bool) {
	for k := range p.picks[:p.sticky] {
		made := &p.picks[k]
		if made.be != be || made.fresh == nil {
			continue
		}
		more := p.peek(made.fresh, i, nil, s.want+len(made.ordinals), txn.Avoided(made.fresh, p.cat, i))
		more = slices.DeleteFunc(more, func(x uint64) bool { return slices.Contains(made.ordinals, x) })
		more = more[:min(s.want, len(more))]
		made.ordinals = append(made.ordinals, more...)
		s.want, found = s.want-len(more), found || len(more) > 0
	}
	return found
}

// wants returns how many addresses of each family are to be found.
func (p *AssignPlan) wants() (n [2]int) {
	n = p.asked()
	n[0], n[1] = n[0]-len(p.result.V4), n[1]-len(p.result.V6)
	for _, k := range p.picks {
		n[record.Family(k.be.At)/6] -= len(k.ordinals)
	}
	p.left = [2]int{}
	over := n[0] + n[1] - p.most
	for _, k := range p.picks {
		over += len(k.ordinals)
	}
	for i := 1; i >= 0 && over > 0; i-- { // one of each family, rather
		p.left[i] = min(over, max(n[i]-1, 0))
		n[i], over = n[i]-p.left[i], over-p.left[i]
	}
	return n
}

// asked returns how many addresses of each family the call is to return.
func (p *AssignPlan) asked() [2]int {
	n := [2]int{p.Num4, p.Num6}
	for _, a := range p.Named {
		n[a.BitLen()/128]++
	}
	return n
}
