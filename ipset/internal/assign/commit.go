package assign

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/internal/wire"
)

// A block that has been changed cannot be restored, so all that can fail comes before the first change: the room in the commit,
// and with Partial the decision which picks to give up.

// commit carries out the picks. Room is all that can fail; then the blocks are changed and the result is complete.
func (p *AssignPlan) commit(t *txn.Txn) error {
	written := len(p.picks) == 0 || p.Request != "" && p.memo.At != 0 // or nothing is to be written
	if !written {
		if err := p.also.Reserve(t); err != nil {
			return err
		}
	}
	for {
		err := t.Room(p.size(t))
		if err == nil {
			break
		}
		if !p.Partial || !errors.Is(err, ipalloc.ErrLimit) || !p.dropLast(t) {
			return err
		}
	}
	for _, k := range p.picks {
		if k.fresh != nil || k.adopt {
			p.hint(t, k.be.At)
		}
		switch {
		case k.fresh != nil:
			k.be.Set(k.fresh)
		case k.adopt:
			k.be.Give(p.Owner, t.Now)
		}
		id, until := block.IdentityOf(p.Claim, p.Owner, p.cat.Index(k.be.At)...), block.LeaseEnd(t.Now, p.TTL)
		since := block.HeldSince(p.Claim, t.Now)
		for _, x := range k.ordinals {
			if k.joins {
				k.be.Join(x, id, since, until)
				p.result.add(k.be.AllocationOf(x, p.Handle))
				continue
			}
			al := alloc.Allocation{
				Address: k.be.Addr(x), Block: k.be.Prefix(), Host: p.Owner, Handle: p.Handle, Attributes: p.Attributes,
				Seq: k.be.Hold(x, id, since, until), Since: block.ToSecond(since), Until: wire.Unstamp(until),
			}
			if p.Share != (alloc.Share{}) {
				al = k.be.AllowSharing(x, p.Share)
			}
			p.result.add(al)
		}
		t.Change(k.be)
	}
	if len(p.picks) == 0 {
		return nil
	}
	if p.Sticky {
		p.stick(t)
	}
	if !written {
		p.also.Write(t)
	}
	t.Remember(&p.memo, p.result.V4, p.result.V6)
	return nil
}

// dropLast gives up the last address that was picked, because one commit does not take so many, and reports whether there was one
// besides the first. A block that is claimed or adopted keeps one.
func (p *AssignPlan) dropLast(t *txn.Txn) bool {
	for i := len(p.picks) - 1; i >= p.sticky; i-- {
		k := &p.picks[i]
		be := k.be
		if n := len(k.ordinals); n > 1 {
			k.ordinals = k.ordinals[:n-1]
		} else if i > 0 && k.fresh == nil && !k.adopt {
			if p.picks = slices.Delete(p.picks, i, i+1); !slices.ContainsFunc(p.picks, func(o pick) bool { return o.be == be }) {
				t.Unguard(&be.Cell)
			}
		} else {
			continue
		}
		short := Shortage{Family: record.Family(be.At), Pool: p.cat.Pools[p.cat.Containing(be.At.Addr())].Name, Reason: CommitFull}
		if !slices.Contains(p.result.Short, short) {
			p.result.Short = append(p.result.Short, short)
		}
		return true
	}
	return false
}

// size bounds the records that commit writes.
func (p *AssignPlan) size(t *txn.Txn) (n int) {
	if len(p.picks) == 0 {
		return 0 // guards only
	}
	for i, k := range p.picks {
		a := block.Address{Holder: block.Holder{Identity: block.IdentityOf(p.Claim, p.Owner, p.cat.Index(k.be.At)...)}}
		a.Borrowed = k.fresh == nil && !k.adopt && k.be.Owner() != p.Owner
		records := len(k.ordinals) * record.RecordsOf(&a)
		if p.Share.Key != "" {
			records += len(k.ordinals)
		}
		if k.adopt || k.fresh != nil && k.be.Block != nil {
			records += txn.OwnerOps
		}
		if slices.ContainsFunc(p.picks[:min(i, p.sticky)], func(o pick) bool { return o.be == k.be }) {
			n += records
			continue
		}
		n += t.BlockOps(k.be, records, p.TTL > 0, k.fills())
	}
	return n + txn.Reserve(&p.memo, t) + txn.Reserve(&p.last, t)
}

// fills reports whether the pick may leave its block without a free address.
func (k *pick) fills() bool {
	if k.fresh != nil || k.adopt {
		return true
	}
	free, fits := k.be.Free()
	return fits && free <= uint64(len(k.ordinals))
}

// unusable reports whether a block has no address that automatic assignment may take.
func (p *AssignPlan) unusable(i int, at netip.Prefix) bool {
	avoid := p.cat.Avoid[i]
	if !avoid.Overlap(at) && !p.cuts(at) {
		return false
	}
	b, err := block.New(at, block.Options{Head: p.Head, Tail: p.Tail})
	if err != nil || !p.inRow() {
		return err != nil || len(b.Peek(nil, 1, p.above(b, b.Spans(avoid)))) == 0
	}
	return len(b.PeekRun(nil, p.inFamily(at), p.Aligned, b.Spans(avoid))) == 0
}
