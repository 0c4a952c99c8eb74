package assign

import (
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// What a commit takes is known when it is written, so the picks are carried out first; a plan that turns out not to fit is taken back, and
// with Partial made again for as many addresses as fit.

// commit carries out the picks, after which the result is complete.
func (p *AssignPlan) commit(t *txn.Txn) error {
	if len(p.picks) == 0 {
		p.moveHeld(t)
		return nil
	}
	written := p.Request != "" && p.memo.At != 0 // or nothing is to be written
	if !written {
		if err := p.also.Join(t); err != nil {
			return err
		}
	}
	p.moveHeld(t)
	if p.ended != nil {
		t.Change(p.ended)
	}
	t.DeleteBlocks(p.gone)
	for i := range p.picks {
		k := &p.picks[i]
		if k.fresh != nil || k.adopt {
			p.hint(t, k.be.At)
		}
		t.Change(k.be)
		switch {
		case k.fresh != nil:
			k.be.Set(k.fresh)
		case k.adopt:
			k.be.Give(p.Owner, t.Now)
		}
		claim := p.asClaim()
		id, until := block.IdentityOf(claim, p.Owner, p.cat.Index(k.be.At)...), block.LeaseEnd(t.Now, p.TTL)
		since := block.HeldSince(claim, t.Now)
		for _, x := range k.ordinals {
			if k.joins {
				p.begun(t, k.be, x, k.be.Join(x, id, since, until))
				add(&p.result, k.be.AllocationOf(x, p.Handle))
				continue
			}
			al := alloc.Allocation{
				Address: k.be.Addr(x), Block: k.be.Prefix(), Host: p.Owner, Handle: p.Handle, Attributes: p.Attributes,
				Seq: k.be.Hold(x, id, since, until), Since: block.ToSecond(since), Until: wire.Unstamp(until),
			}
			p.begun(t, k.be, x, al.Seq)
			if p.Share != (alloc.Share{}) {
				al = k.be.AllowSharing(x, p.Share)
			}
			add(&p.result, al)
		}
	}
	if p.again {
		t.TouchFirst(p.Handle)
	}
	if p.Sticky {
		p.stick(t)
	}
	t.Remember(&p.memo, p.result.V4, p.result.V6)
	return nil
}

// begun makes the first holding of the call that of its handle, where the call looked for one.
func (p *AssignPlan) begun(t *txn.Txn, be *txn.BlockEntry, x, seq uint64) {
	if p.first {
		t.MakeFirst(be, x, seq, p.Handle)
		p.first = false
	}
}

// unusable reports whether a block has no address that automatic assignment may take.
func (p *AssignPlan) unusable(i int, at netip.Prefix) bool {
	avoid := p.cat.Pools[i].Avoid
	if !avoid.Overlap(at) && !p.cuts(at) {
		return false
	}
	b, err := block.New(at, block.Options{Head: p.Blocks.Head, Tail: p.Blocks.Tail})
	if err != nil || !p.inRow() {
		return err != nil || len(b.Peek(nil, 1, p.above(b, b.Spans(avoid)))) == 0
	}
	return len(b.PeekRun(nil, p.asked()[record.Family(at)/6], p.Aligned, b.Spans(avoid))) == 0
}
