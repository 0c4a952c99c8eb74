package ipset

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// Release names an address to release.
type Release struct {
	Address netip.Addr
	// Guard is the condition on which it is released.
	Guard
}

// ReleaseResult is the outcome for one address.
type ReleaseResult struct {
	Address netip.Addr
	Outcome Outcome
}

// releaseBatch is how many addresses go into one commit.
const releaseBatch = 4096

// ReleaseIPs releases addresses and returns the outcome of each, in the order of the arguments. Addresses
// released together are queued in address order, block by block. Repeating a release is no error: the outcome is WasFree, as
// for an address outside every block.
//
// Addresses go in as many commits as they need, all of a block in one where they fit. It returns [ipalloc.ErrInvalid] if an
// address is not valid, nothing released; or an error of the store, and the results so far.
func (e *Engine) ReleaseIPs(ctx context.Context, releases ...Release) ([]ReleaseResult, error) {
	if len(releases) == 0 {
		return nil, nil
	}
	for _, r := range releases {
		if !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "" {
			return nil, wrap(ipalloc.Error{Op: "release", Addr: r.Address, Err: errBadAddress})
		}
	}
	p := e.usedRelease.Swap(nil)
	if p == nil {
		p = new(releasePlan)
	}
	p.releases = append(p.releases[:0], releases...)
	results := make([]ReleaseResult, 0, len(releases))
	for len(results) < len(releases) {
		p.done = len(results)
		if err := e.do(ctx, p); err != nil { // a batch may still be at it
			return results, wrap(ipalloc.Error{Op: "release", Addr: releases[len(results)].Address, Err: err})
		}
		for i, o := range p.outcomes {
			results = append(results, ReleaseResult{releases[p.done+i].Address, o})
		}
	}
	p.forget()
	e.usedRelease.Store(p)
	return results, nil
}

// releasePlan releases addresses in one commit, as many as it takes: those that have an outcome. Its memory is used again.
type releasePlan struct {
	releases []Release
	done     int // how many earlier commits have released
	outcomes []Outcome

	fetch fetch
	drops []drop
	// Room for the release of one address.
	one [1]leaving
}

// forget drops what refers to the engine and to the caller.
func (p *releasePlan) forget() {
	clear(p.releases)
	clear(p.drops[:cap(p.drops)])
	clear(p.fetch.keys[:cap(p.fetch.keys)])
	*p = releasePlan{
		releases: p.releases[:0], outcomes: p.outcomes[:0], drops: p.drops[:0],
		fetch: fetch{keys: p.fetch.keys[:0], places: p.fetch.places[:0], addrs: p.fetch.addrs[:0], others: p.fetch.others[:0]},
	}
}

// drop is what to release of one block, and how many records that has.
type drop struct {
	be      *blockEntry
	leaving []leaving
	records int
	shared  bool // some of the addresses may have several holders
}

// leaving is a holder that gives an ordinal back, by its sequence number; 0 is all holders.
type leaving struct{ x, seq uint64 }

// add notes that a holder leaves an ordinal, 0 for all.
func (d *drop) add(x, seq uint64) {
	_, a := d.be.Look(x)
	d.leaving, d.shared = append(d.leaving, leaving{x, seq}), d.shared || a.IsShared()
	if h, ok := a.Find(Guard{Seq: seq}); ok && seq != 0 {
		var buf [2]indexEntry
		d.records += 1 + len(holderEntries(buf[:0], &h))
	} else {
		d.records += recordsOf(a)
	}
}

// has reports whether a holder of an ordinal is among those that leave, 0 for all of them.
func (d *drop) has(x, seq uint64) bool {
	if !d.shared {
		return slices.ContainsFunc(d.leaving, func(l leaving) bool { return l.x == x })
	}
	_, a := d.be.Look(x)
	return slices.Contains(d.leaving, leaving{x, seq}) || d.all(x, a)
}

// frees returns how many ordinals have no holder afterwards.
func (d *drop) frees() (n uint64) {
	if !d.shared {
		return uint64(len(d.leaving))
	}
	for i, l := range d.leaving {
		_, a := d.be.Look(l.x)
		if d.all(l.x, a) && !slices.ContainsFunc(d.leaving[:i], func(o leaving) bool { return o.x == l.x }) {
			n++
		}
	}
	return n
}

// all reports whether all holders of an ordinal leave it.
func (d *drop) all(x uint64, a *block.Address) bool {
	n := 0
	for _, l := range d.leaving {
		if l.x == x && l.seq == 0 {
			return true
		} else if l.x == x {
			n++
		}
	}
	return n == a.Count()
}

// Plan implements [occ.Plan].
func (p *releasePlan) Plan(t *txn) error {
	p.outcomes, p.drops = p.outcomes[:0], p.drops[:0]
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	if err := p.read(t, cat); err != nil {
		return err
	}
	guards, left := t.Guards(), releaseBatch
	if limit := t.e.limits.Ops; limit > 0 {
		left = limit
	}
	for i, r := range p.releases[p.done:] {
		be, err := t.locate(cat, r.Address)
		if err != nil {
			return err
		}
		if be != nil && be.Block != nil {
			if be.Absent() > 0 { // the address is in a block of another size than its pool's
				if err := t.ready(be, r.Address); err != nil {
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
	return t.drop(cat, p.drops)
}

// read loads the addresses and their blocks, as far as the cache lacks them.
func (p *releasePlan) read(t *txn, cat *catalogEntry) error {
	p.fetch = fetch{t: t, keys: p.fetch.keys[:0], places: p.fetch.places[:0], addrs: p.fetch.addrs[:0], others: p.fetch.others[:0]}
	for _, r := range p.releases[p.done:min(len(p.releases), p.done+readMost)] {
		if i := cat.containing(r.Address); i >= 0 {
			p.fetch.add(netip.PrefixFrom(r.Address, cat.Pools[i].BlockBits).Masked(), r.Address)
		}
	}
	return p.fetch.run()
}

// cost bounds the records that the release of one address adds to the commit: those of its block if it is the first there, and
// its own.
func (p *releasePlan) cost(t *txn, cat *catalogEntry, be *blockEntry, at netip.Addr) int {
	n := 0
	if x, err := be.Block.Ordinal(at); err == nil {
		if st, a := be.Look(x); st == block.Held {
			n = recordsOf(a)
		}
	}
	if slices.ContainsFunc(p.drops, func(d drop) bool { return d.be == be }) {
		return n
	}
	if be.Owner().Kind == Nobody {
		n += maxPages // it may go
	}
	return n + t.blockOps(be, 0, cat.cooldown(be.at) > 0, be.Owner().Kind == Nobody)
}

// outcome says what becomes of one address, and notes it if it is to be released.
func (p *releasePlan) outcome(be *blockEntry, r Release) Outcome {
	if be == nil || be.Block == nil {
		return WasFree
	}
	x, err := be.Block.Ordinal(r.Address)
	if err != nil {
		return WasFree
	}
	if o := be.CanDrop(x, r.Guard); o != Released {
		return o
	}
	seq := be.Leaving(x, r.Guard)
	for i := range p.drops {
		if d := &p.drops[i]; d.be == be {
			if d.has(x, seq) {
				return WasFree // named twice
			}
			d.add(x, seq)
			return Released
		}
	}
	d := drop{be: be}
	if len(p.drops) == 0 {
		d.leaving = p.one[:0]
	}
	d.add(x, seq)
	p.drops = append(p.drops, d)
	return Released
}

// locate returns the block that an address is in, advanced to the present; if there is none, that which its pool would
// make, and nil outside every pool.
func (t *txn) locate(cat *catalogEntry, a netip.Addr) (*blockEntry, error) {
	i := cat.containing(a)
	if i < 0 {
		p, ok, err := t.lastBlock(a)
		if err != nil || !ok {
			return nil, err
		}
		return t.block(cat, p)
	}
	would, err := t.block(cat, netip.PrefixFrom(a, cat.Pools[i].BlockBits).Masked())
	if err != nil || would.Block != nil || len(cat.Pools[i].Draining) == 0 {
		return would, err
	}
	blocks := cat.Pools[i].blocksOf(a)
	if err := t.warm(blocks); err != nil {
		return nil, err
	}
	for _, p := range blocks {
		if be, err := t.block(cat, p); err != nil || be.Block != nil {
			return be, err
		}
	}
	return would, nil
}

// blocksOf returns the blocks that an address of the pool may be in, one of each size that the pool has or had.
func (p *Pool) blocksOf(a netip.Addr) []netip.Prefix {
	blocks := []netip.Prefix{netip.PrefixFrom(a, p.BlockBits).Masked()}
	for _, size := range p.Draining {
		blocks = append(blocks, netip.PrefixFrom(a, size).Masked())
	}
	return blocks
}

// lastBlock returns the block that an address is in, if there is one: blocks do not overlap, so it is the last that begins at
// or before it.
func (t *txn) lastBlock(a netip.Addr) (netip.Prefix, bool, error) {
	recs, err := t.List(blockBefore(a))
	if err != nil || len(recs) == 0 {
		return netip.Prefix{}, false, err
	}
	p, ok := parseBlockID(recs[0].Key[1:])
	return p, ok && p.Contains(a), nil
}

// drop releases ordinals of blocks in the transaction, each block's in ascending order. A block without owner that is left
// empty is deleted. It changes no block if it returns an error.
func (t *txn) drop(cat *catalogEntry, drops []drop) error {
	n := 0
	for _, dr := range drops {
		cooldown := cat.cooldown(dr.be.Prefix())
		cools := len(dr.leaving) > 0 && cooldown > 0
		if _, last := dr.be.CoolingTimes(); cools && block.Later(t.now, cooldown) < last {
			if err := t.fetchCooling(dr.be); err != nil { // one that was declined cools for longer
				return err
			}
		}
		n += t.blockOps(dr.be, dr.records, cools, dr.be.Owner().Kind == Nobody)
		if dr.empties() && dr.be.Owner().Kind == Nobody && !cools {
			if err := t.vacate(dr.be.Prefix(), dr.be.Seq()); err != nil {
				return err
			}
		}
	}
	if err := t.Room(n); err != nil {
		return err
	}
	for _, dr := range drops {
		slices.SortStableFunc(dr.leaving, func(a, b leaving) int { return cmp.Compare(a.x, b.x) })
		cooldown := cat.cooldown(dr.be.Prefix())
		for _, l := range dr.leaving {
			if st, _ := dr.be.Look(l.x); st == block.Held { // else an earlier one freed it
				dr.be.Leave(l.x, l.seq, t.now, block.Later(t.now, cooldown))
			}
		}
		if dr.be.IsEmpty() && dr.be.Owner().Kind == Nobody {
			dr.be.set(nil)
		}
		t.Change(dr.be)
	}
	return nil
}

// empties reports whether nothing of the block is held or cooling afterwards.
func (d *drop) empties() bool { return d.be.Cooling() == 0 && d.frees() == d.be.Used() }

// ReleaseByHandle gives back every address of a handle and returns them in the order of their blocks. A handle that
// has none is no error. With many blocks it goes in steps; an interrupted release is resumed by repeating it.
//
// It returns [ipalloc.ErrInvalid] for an empty handle, or an error of the store and the addresses released so far.
func (e *Engine) ReleaseByHandle(ctx context.Context, handle string) ([]netip.Addr, error) {
	if err := block.CheckName("handle", handle); err != nil {
		return nil, wrap(ipalloc.Error{Op: "release", Err: err})
	}
	var released []netip.Addr
	err := e.eachAddressOf(ctx, handle, stepCost{opsPerBlock, opsPerAddress}, func(ids []netip.Prefix) error {
		p := releaseHandlePlan{handle: handle, ids: ids}
		err := e.do(ctx, &p)
		if err == nil {
			released = append(released, p.released...)
		}
		return err
	})
	if err != nil {
		return released, wrap(ipalloc.Error{Op: "release", Owner: handle, Err: err})
	}
	return released, nil
}

// eachAddressOf calls do with the addresses of a handle, each with the prefix length of its block, a few at a time.
func (e *Engine) eachAddressOf(ctx context.Context, handle string, c stepCost, do func([]netip.Prefix) error) error {
	recs, _, err := e.store.List(ctx, handleRange(handle))
	if err != nil {
		return err
	}
	ids, err := idsIn(recs, len(handleRange(handle).From))
	if err != nil {
		return err
	}
	return e.inSteps(ids, c, do)
}

// stepBlocks is the largest number of blocks that a step of a long operation changes.
const stepBlocks = 64

// stepCost bounds the records that a step writes: for each block, and for each place in it, an address or the block itself.
type stepCost struct{ block, place int }

// inSteps calls do with some of the blocks or addresses at a time, as many as a commit takes by their cost, and with fewer if that is
// too much, or if others keep changing one of them.
func (e *Engine) inSteps(places []netip.Prefix, c stepCost, do func([]netip.Prefix) error) error {
	most := stepBlocks
	for len(places) > 0 {
		n := e.fitting(places[:min(most, len(places))], c)
		err := do(places[:n])
		if n > 1 && (errors.Is(err, ipalloc.ErrLimit) || isConflict(err)) {
			most = n / 2
			continue
		}
		if err != nil {
			return err
		}
		places = places[n:]
	}
	return nil
}

// fitting returns how many of some places go into one commit.
func (e *Engine) fitting(places []netip.Prefix, c stepCost) int {
	limit, ops := e.limits.Ops, 0
	for i, p := range places {
		if ops += c.place; i == 0 || places[i-1].Masked() != p.Masked() {
			ops += c.block
		}
		if limit > 0 && ops > limit && i > 0 {
			return i
		}
	}
	return len(places)
}

// releaseHandlePlan releases some addresses of a handle.
type releaseHandlePlan struct {
	handle   string
	ids      []netip.Prefix // with the prefix lengths of their blocks
	released []netip.Addr
}

// Plan implements [occ.Plan].
func (p *releaseHandlePlan) Plan(t *txn) error {
	p.released = p.released[:0]
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	held, err := t.heldAt(cat, p.ids, nil, p.handle)
	if err != nil {
		return err
	}
	var drops []drop
	for _, h := range held {
		p.released = append(p.released, h.be.Addr(h.x))
		if n := len(drops); n == 0 || drops[n-1].be != h.be {
			drops = append(drops, drop{be: h.be})
		}
		drops[len(drops)-1].add(h.x, h.Seq)
	}
	return t.drop(cat, drops)
}
