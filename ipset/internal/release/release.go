package release

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
)

// Release names an address to release.
type Release struct {
	Address netip.Addr
	// Guard is the condition on which it is released.
	block.Guard
}

// ReleaseResult is the outcome for one address.
type ReleaseResult struct {
	Address netip.Addr
	Outcome block.Outcome
}

// releaseBatch is how many addresses go into one commit.
const releaseBatch = 4096

// ReleaseIPs carries out the call of that name.
func (e *Releaser) ReleaseIPs(ctx context.Context, releases ...Release) ([]ReleaseResult, error) {
	if len(releases) == 0 {
		return nil, nil
	}
	for _, r := range releases {
		if !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "" {
			return nil, cause.Wrap(ipalloc.Error{Op: "release", Addr: r.Address, Err: cause.BadAddress})
		}
	}
	p := e.used.Swap(nil)
	if p == nil {
		p = new(ReleasePlan)
	}
	p.releases = append(p.releases[:0], releases...)
	results := make([]ReleaseResult, 0, len(releases))
	for len(results) < len(releases) {
		p.done = len(results)
		if err := e.Do(ctx, p); err != nil { // a batch may still be at it
			return results, cause.Wrap(ipalloc.Error{Op: "release", Addr: releases[len(results)].Address, Err: err})
		}
		for i, o := range p.outcomes {
			results = append(results, ReleaseResult{releases[p.done+i].Address, o})
		}
	}
	p.forget()
	e.used.Store(p)
	return results, nil
}

// ReleasePlan releases addresses in one commit, as many as it takes: those that have an outcome. Its memory is used again.
type ReleasePlan struct {
	releases []Release
	done     int // how many earlier commits have released
	outcomes []block.Outcome

	fetch txn.Fetch
	drops []txn.Drop
	// Room for the release of one address.
	one [1]txn.Leaving
}

// forget drops what refers to the engine and to the caller.
func (p *ReleasePlan) forget() {
	clear(p.releases)
	clear(p.drops[:cap(p.drops)])
	clear(p.fetch.Keys[:cap(p.fetch.Keys)])
	*p = ReleasePlan{
		releases: p.releases[:0], outcomes: p.outcomes[:0], drops: p.drops[:0],
		fetch: txn.Fetch{Keys: p.fetch.Keys[:0], Places: p.fetch.Places[:0], Addrs: p.fetch.Addrs[:0], Others: p.fetch.Others[:0]},
	}
}

// Plan implements [occ.Plan].
func (p *ReleasePlan) Plan(t *txn.Txn) error {
	p.outcomes, p.drops = p.outcomes[:0], p.drops[:0]
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	if err := p.read(t, cat); err != nil {
		return err
	}
	guards, left := t.Guards(), releaseBatch
	if limit := t.E.Limits.Ops; limit > 0 {
		left = limit
	}
	for i, r := range p.releases[p.done:] {
		be, err := t.Locate(cat, r.Address)
		if err != nil {
			return err
		}
		if be != nil && be.Block != nil {
			if be.Absent() > 0 { // the address is in a block of another size than its pool's
				if err := t.Ready(be, r.Address); err != nil {
					return err
				}
			}
			left -= p.cost(t, cat, be, r.Address)
		}
		if i > 0 && (left < 0 || i >= releaseBatch || t.Guards()-guards > t.MostGuards()) {
			break
		}
		p.outcomes = append(p.outcomes, p.outcome(be, r))
	}
	return t.Drop(cat, p.drops)
}

// read loads the addresses and their blocks, as far as the cache lacks them.
func (p *ReleasePlan) read(t *txn.Txn, cat *txn.CatalogEntry) error {
	p.fetch = txn.Fetch{T: t, Keys: p.fetch.Keys[:0], Places: p.fetch.Places[:0], Addrs: p.fetch.Addrs[:0], Others: p.fetch.Others[:0]}
	for _, r := range p.releases[p.done:min(len(p.releases), p.done+txn.ReadMost)] {
		if i := cat.Containing(r.Address); i >= 0 {
			p.fetch.Add(netip.PrefixFrom(r.Address, cat.Pools[i].BlockBits).Masked(), r.Address)
		}
	}
	return p.fetch.Run()
}

// cost bounds the records that the release of one address adds to the commit: those of its block if it is the first there, and
// its own.
func (p *ReleasePlan) cost(t *txn.Txn, cat *txn.CatalogEntry, be *txn.BlockEntry, at netip.Addr) int {
	n := 0
	if x, err := be.Block.Ordinal(at); err == nil {
		if st, a := be.Look(x); st == block.Held {
			n = record.RecordsOf(a)
		}
	}
	if slices.ContainsFunc(p.drops, func(d txn.Drop) bool { return d.Be == be }) {
		return n
	}
	if be.Owner().Kind == block.Nobody {
		n += record.MaxPages // it may go
	}
	return n + t.BlockOps(be, 0, cat.Cooldown(be.At) > 0, be.Owner().Kind == block.Nobody)
}

// outcome says what becomes of one address, and notes it if it is to be released.
func (p *ReleasePlan) outcome(be *txn.BlockEntry, r Release) block.Outcome {
	if be == nil || be.Block == nil {
		return block.WasFree
	}
	x, err := be.Block.Ordinal(r.Address)
	if err != nil {
		return block.WasFree
	}
	if o := be.CanDrop(x, r.Guard); o != block.Released {
		return o
	}
	seq := be.Leaving(x, r.Guard)
	for i := range p.drops {
		if d := &p.drops[i]; d.Be == be {
			if d.Has(x, seq) {
				return block.WasFree // named twice
			}
			d.Add(x, seq)
			return block.Released
		}
	}
	d := txn.Drop{Be: be}
	if len(p.drops) == 0 {
		d.Leaving = p.one[:0]
	}
	d.Add(x, seq)
	p.drops = append(p.drops, d)
	return block.Released
}

// ReleaseByHandle carries out the call of that name.
func (e *Releaser) ReleaseByHandle(ctx context.Context, handle string) ([]netip.Addr, error) {
	if err := block.CheckName("handle", handle); err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release", Err: err})
	}
	var released []netip.Addr
	err := e.eachAddressOf(ctx, handle, txn.StepCost{txn.OpsPerBlock, txn.OpsPerAddress}, func(ids []netip.Prefix) error {
		p := releaseHandlePlan{handle: handle, ids: ids}
		err := e.Do(ctx, &p)
		if err == nil {
			released = append(released, p.released...)
		}
		return err
	})
	if err != nil {
		return released, cause.Wrap(ipalloc.Error{Op: "release", Owner: handle, Err: err})
	}
	return released, nil
}

// eachAddressOf calls do with the addresses of a handle, each with the prefix length of its block, a few at a time.
func (e *Releaser) eachAddressOf(ctx context.Context, handle string, c txn.StepCost, do func([]netip.Prefix) error) error {
	recs, _, err := e.Store.List(ctx, record.HandleRange(handle))
	if err != nil {
		return err
	}
	ids, err := record.IdsIn(recs, len(record.HandleRange(handle).From))
	if err != nil {
		return err
	}
	return e.InSteps(ids, c, do)
}

// releaseHandlePlan releases some addresses of a handle.
type releaseHandlePlan struct {
	handle   string
	ids      []netip.Prefix // with the prefix lengths of their blocks
	released []netip.Addr
}

// Plan implements [occ.Plan].
func (p *releaseHandlePlan) Plan(t *txn.Txn) error {
	p.released = p.released[:0]
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	held, err := t.HeldAt(cat, p.ids, nil, p.handle)
	if err != nil {
		return err
	}
	var drops []txn.Drop
	for _, h := range held {
		p.released = append(p.released, h.Be.Addr(h.X))
		if n := len(drops); n == 0 || drops[n-1].Be != h.Be {
			drops = append(drops, txn.Drop{Be: h.Be})
		}
		drops[len(drops)-1].Add(h.X, h.Seq)
	}
	return t.Drop(cat, drops)
}
