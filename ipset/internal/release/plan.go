package release

import (
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Addresses leave by their names, by a handle or by a host. The calls differ in how they find what leaves; what is found goes through
// one plan, so that the records of the caller, the cut into commits and the end of a block are the same for all.

// releasePlan releases addresses in one commit: all of them if it is whole, else as many as the commit takes, in order. Its memory
// may be used again.
type releasePlan struct {
	named  []alloc.Release // by name, those from index from on
	handle string          // of a handle: the addresses in places, or all if the plan is whole
	of     []alloc.Owner   // of a handle: if not empty, only what is held for these
	host   alloc.Owner     // of a host: what is held for it in places
	places []netip.Prefix  // blocks, and addresses with the prefix lengths of their blocks
	whole  bool
	also   txn.Also
	guards []store.Op // of the records of the addresses

	from, most int             // how many of named an earlier commit has dealt with, and how many addresses this one may
	done       int             // how many places
	outcomes   []alloc.Outcome // of named
	released   []netip.Addr

	fetch txn.Fetch
	drops txn.Drops
}

// Detach implements [occ.Detacher].
func (p *releasePlan) Detach() {
	p.of = slices.Clone(p.of)
	p.named, p.also.Ops, p.guards = slices.Clone(p.named), slices.Clone(p.also.Ops), slices.Clone(p.guards)
}

// forget drops what refers to the engine and to the caller.
func (p *releasePlan) forget() {
	clear(p.named)
	clear(p.fetch.Keys[:cap(p.fetch.Keys)])
	p.drops.End()
	*p = releasePlan{
		named: p.named[:0], places: p.places[:0], of: p.of[:0], outcomes: p.outcomes[:0], released: p.released[:0], drops: p.drops,
		fetch: txn.Fetch{Keys: p.fetch.Keys[:0], Places: p.fetch.Places[:0], Addrs: p.fetch.Addrs[:0], Others: p.fetch.Others[:0]},
	}
}

// Plan implements [occ.Plan].
func (p *releasePlan) Plan(t *txn.Txn) error {
	p.also.Runs++
	switch {
	case p.whole:
		return p.plan(t)
	case p.host != alloc.Owner{}:
		p.most = hostMost
	case p.handle != "":
		p.most = len(p.places)
	default:
		p.most = min(len(p.named)-p.from, txn.ReadMost)
	}
	if t.E.Limits.Ops == 0 {
		return p.plan(t)
	}
	return occ.Fit(t, p.most, func(n int) error {
		p.most = n
		return p.plan(t)
	})
}

// hostMost is how many addresses of a host one commit releases at most.
const hostMost = 4096

// plan is Plan for as many addresses as most says.
func (p *releasePlan) plan(t *txn.Txn) error {
	p.outcomes, p.released, p.done = p.outcomes[:0], p.released[:0], 0
	if len(p.guards) > 0 && t.Pending() {
		return occ.ErrFirst // the records may change in this commit
	}
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	p.drops.Begin(t, cat)
	switch {
	case p.host != alloc.Owner{}:
		err = p.ofHost(t, cat)
	case p.handle != "":
		err = p.ofHandle(t, cat)
	}
	if err == nil {
		err = p.byName(t, cat)
	}
	if err != nil {
		return err
	}
	// What writes the record of an address writes the block's, which was read before: its guard is one of these too.
	if err := t.Expect(p.guards); err != nil {
		return err
	}
	if err := p.also.Join(t); err != nil {
		return err
	}
	return p.drops.Drop()
}

// ofHandle finds the addresses of the handle. Of a whole plan the index says which, without what is pending.
func (p *releasePlan) ofHandle(t *txn.Txn, cat *txn.CatalogEntry) (err error) {
	var held []txn.Place
	if !p.whole {
		p.done = p.most
		held, err = t.HeldAt(cat, p.places[:p.done], nil, p.handle)
	} else if t.Changes(p.handle) {
		err = occ.ErrFirst
	} else {
		held, err = t.HeldBy(cat, p.handle)
	}
	for _, h := range held {
		if len(p.of) > 0 && !slices.Contains(p.of, h.Host) {
			continue
		}
		p.drops.Leave(h.Be, h.X, h.Seq)
		p.released = append(p.released, h.Be.Addr(h.X))
	}
	return err
}

// byName finds the addresses that are named.
func (p *releasePlan) byName(t *txn.Txn, cat *txn.CatalogEntry) error {
	p.fetch = txn.Fetch{T: t, Keys: p.fetch.Keys[:0], Places: p.fetch.Places[:0], Addrs: p.fetch.Addrs[:0], Others: p.fetch.Others[:0]}
	named := p.named
	if !p.whole {
		named = p.named[p.from:min(len(p.named), p.from+p.most)]
	}
	for _, r := range named {
		if i := cat.Containing(r.Address); i >= 0 {
			p.fetch.Add(netip.PrefixFrom(r.Address, cat.Pools[i].BlockBits).Masked(), r.Address)
		}
	}
	if err := p.fetch.Run(); err != nil {
		return err
	}
	guards := t.Guards()
	for i, r := range named {
		be, err := t.Locate(cat, r.Address)
		if err != nil {
			return err
		}
		if be != nil && be.Block != nil && be.Absent() > 0 { // the address is in a block of another size than its pool's
			if err := t.Ready(be, r.Address); err != nil {
				return err
			}
		}
		if !p.whole && i > 0 && t.Guards()-guards > t.MostGuards() {
			break
		}
		o := p.leave(be, r)
		if p.whole && o == alloc.OwnerChanged {
			al, _ := be.Lookup(r.Address)
			return txn.InTheWay(al, ipalloc.ErrMismatch)
		}
		p.outcomes = append(p.outcomes, o)
	}
	return nil
}

// leave says what becomes of one address, and notes it if it is to be released.
func (p *releasePlan) leave(be *txn.BlockEntry, r alloc.Release) alloc.Outcome {
	if be == nil || be.Block == nil {
		return alloc.WasFree
	}
	x, err := be.Block.Ordinal(r.Address)
	if err != nil {
		return alloc.WasFree
	}
	if o := be.CanDrop(x, r.Guard); o != alloc.Released {
		return o
	}
	seq := be.Leaving(x, r.Guard)
	if leaves, all := p.drops.Has(be, x, seq); leaves { // named twice
		if all || p.whole {
			return alloc.WasFree
		}
		return alloc.OwnerChanged // others hold it
	}
	p.drops.Leave(be, x, seq)
	if p.whole && !slices.Contains(p.released, r.Address) {
		p.released = append(p.released, r.Address)
	}
	return alloc.Released
}

// ofHost finds what is held for the host in places, and the blocks that name it as a former owner, in which nothing is held for it
// then.
func (p *releasePlan) ofHost(t *txn.Txn, cat *txn.CatalogEntry) error {
	blocks := make([]netip.Prefix, len(p.places))
	for i, id := range p.places {
		blocks[i] = id.Masked()
	}
	if err := t.Warm(blocks); err != nil {
		return err
	}
	if err := t.FetchPlaces(p.places); err != nil {
		return err
	}
	for i, id := range p.places {
		be, err := t.Block(cat, blocks[i])
		if err != nil {
			return err
		}
		if p.done = i; be.Block == nil {
			continue
		}
		ordinals, err := heldFor(t, be, id, p.host)
		if err != nil {
			return err
		}
		for _, x := range ordinals {
			if id != be.At && slices.Contains(p.released, id.Addr()) {
				continue
			}
			if len(p.released) == p.most {
				return nil // what has left is passed over next time
			}
			p.leaveAll(be, x)
			p.released = append(p.released, be.Addr(x))
		}
		if id == be.At && block.HasCode(be.Former(), block.OwnerCode(p.host)) {
			p.drops.Forget(be, p.host)
		}
	}
	p.done = len(p.places)
	return nil
}

// leaveAll notes all holders of an ordinal that have it for the host.
func (p *releasePlan) leaveAll(be *txn.BlockEntry, x uint64) {
	var seqs []uint64
	_, a := be.Look(x)
	for h := range a.Holders() {
		if h.Host == p.host {
			seqs = append(seqs, h.Seq)
		}
	}
	p.drops.Leave(be, x, seqs...)
}

// heldFor returns what is held for a host in a place, ascending.
func heldFor(t *txn.Txn, be *txn.BlockEntry, id netip.Prefix, host alloc.Owner) (xs []uint64, err error) {
	if id != be.At {
		if err := t.Ready(be, id.Addr()); err != nil {
			return nil, err
		}
		x, err := be.Block.Ordinal(id.Addr())
		if err == nil && be.HeldFor(x, host) {
			xs = append(xs, x)
		}
		return xs, nil
	}
	if err := t.FetchAll(be); err != nil {
		return nil, err
	}
	for x := range be.Each() {
		if be.HeldFor(x, host) {
			xs = append(xs, x)
		}
	}
	return xs, nil
}
