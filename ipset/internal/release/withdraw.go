package release

import (
	"context"
	"net/netip"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// A call that timed out may still be made. Its commit depends on the memo of its request key, so a memo that says that the request was
// withdrawn stops the commit, and every later call with the key.

// Withdraw carries out the call of that name.
func (e *Releaser) Withdraw(ctx context.Context, request string) (released []netip.Addr, err error) {
	if err = cause.Name("request", request); err == nil {
		for more := true; more && err == nil; {
			p := withdrawPlan{key: record.KindRequest + request}
			if err = e.Do(ctx, &p); err == nil {
				released, more = append(released, p.released...), p.more
			}
		}
	}
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "withdraw", Name: request, Err: err})
	}
	return released, nil
}

// withdrawPlan ends a request key, and releases as many of the addresses that were given under it as the commit takes.
type withdrawPlan struct {
	key      string
	released []netip.Addr
	more     bool // others are left
	drops    txn.Drops
}

// Plan implements [occ.Plan].
func (p *withdrawPlan) Plan(t *txn.Txn) error {
	m, err := t.Memo(p.key)
	if err != nil {
		return err
	}
	if m.Digest == record.Withdrawn && len(m.Ids) == 0 {
		p.released, p.more = nil, false
		return nil
	}
	if err := t.Rooted(); err != nil {
		return err
	}
	if n := len(m.Ids); n > 1 && t.E.Limits.Ops > 0 {
		return occ.Fit(t, n, func(n int) error { return p.plan(t, m, n) })
	}
	return p.plan(t, m, len(m.Ids))
}

// plan is Plan for the first n addresses of the answer.
func (p *withdrawPlan) plan(t *txn.Txn, m record.Memo, n int) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	held, err := t.HeldAt(cat, m.Ids[:n], m.Seqs[:n], "")
	if err != nil {
		return err
	}
	p.released = nil
	p.drops.Begin(t, cat)
	for _, h := range held {
		p.drops.Leave(h.Be, h.X, h.Seq)
		p.released = append(p.released, h.Be.Addr(h.X))
	}
	m.Digest, m.Ids, m.Seqs = record.Withdrawn, m.Ids[n:], m.Seqs[n:]
	p.more = len(m.Ids) > 0
	t.Remember(&m)
	return p.drops.Drop()
}
