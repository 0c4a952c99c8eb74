package assign

import (
	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// An assignment of the wish or of nothing is a search that ends after its first step: the rules for a wish decide. If they refuse, the
// reason is what the address would meet if the caller named it, or else what keeps it from automatic assignment alone.

// onlyPool restricts a choice to the pool of the wish. The wish names it, but its selectors apply.
func (p *AssignPlan) onlyPool(c *pool.Choice) error {
	i := p.cat.Containing(p.Wish)
	if err := p.mayName(i); err != nil {
		return err
	}
	c.Names, c.Both = []string{p.cat.Pools[i].Name}, true
	return nil
}

// pickExactly picks the wish, or fails. If the handle has it already, it goes into the result.
func (p *AssignPlan) pickExactly(t *txn.Txn, s *Search) error {
	if i := p.cat.Containing(p.Wish); p.cat.Closed(i) {
		return cause.Wrap(ipalloc.Error{Op: "assign", Name: p.cat.Pools[i].Name, Addr: p.Wish, Err: cause.Closed})
	}
	be, err := p.locate(t, p.Wish)
	if err != nil {
		return err
	}
	if be.Block != nil && p.Handle != "" {
		if err := t.Ready(be, p.Wish); err != nil {
			return err
		}
		if x, err := be.Ordinal(p.Wish); err == nil && be.HasHolder(x, p.Handle) {
			s.want = 0
			return p.answerHeld(t, be, x)
		}
	}
	if err := p.pickSticky(t, s); err != nil || s.want == 0 {
		return err
	}
	if err := p.pickAddress(t, p.Wish); err != nil {
		return err
	}
	return cause.Wrap(ipalloc.Error{Op: "assign", Name: s.Choice.Names[0], Addr: p.Wish, Err: cause.KeptBack})
}
