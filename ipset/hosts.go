package ipset

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
)

// An address is held for a host: mostly that whose block it is in, else one that borrowed it. A block notes the host of an
// address only where it is another than the block's owner, so that nothing is written for what is the rule. The note is the
// owner's code, "" for the block's owner; codes change with the owner of the block.

// code returns what names an owner in keys and in blocks: its kind and its name.
func (o Owner) code() string { return string(rune('0'+o.Kind)) + o.Name }

// nobody is the code of the zero owner: the host of an address that was imported without one.
const nobody = "0"

// ownerOf is the inverse of code. It returns an error for what is no owner's and not nobody's.
func ownerOf(code string) (Owner, error) {
	if code == "" || code == nobody {
		return Owner{}, nil
	}
	o := Owner{OwnerKind(code[0] - '0'), code[1:]}
	return o, o.check()
}

// hostOf returns the host of a holder.
func (b *Block) hostOf(id *identity) Owner {
	if id.host == "" {
		return b.owner
	}
	o, _ := ownerOf(id.host)
	return o
}

// noteOf returns how the block notes a host.
func (b *Block) noteOf(host Owner) string {
	if host == b.owner {
		return ""
	}
	return host.code()
}

// countHost notes that one address more or less is held for a host that is not the block's owner.
func (b *Block) countHost(host string, by int) {
	if host == "" || host == nobody {
		return
	}
	if b.hosts == nil {
		b.hosts = make(map[string]uint64)
	}
	n := b.hosts[host] + uint64(by)
	if b.hosts[host] = n; n == 0 {
		delete(b.hosts, host)
	}
	if b.touched != nil && (n == 0 || n == 1 && by > 0) {
		*b.touched = append(*b.touched, touch{kindHost, host, n > 0})
	}
}

// setOwner gives the block to an owner, or to nobody. The hosts of its addresses stay who they are.
func (b *Block) setOwner(o Owner) {
	if o == b.owner {
		return
	}
	was, is := b.owner.code(), o.code()
	for i := range b.holders.list {
		h := &b.holders.list[i]
		if h.refs == 0 {
			continue
		}
		switch h.host {
		case "":
			h.host = was
			for range h.held {
				b.countHost(was, 1)
			}
		case is:
			for range h.held {
				b.countHost(is, -1)
			}
			h.host = ""
		}
	}
	b.owner = o
}

// ordinalsFor appends the ordinals held for a host, ascending.
func (b *Block) ordinalsFor(dst []uint64, host Owner) []uint64 {
	note := b.noteOf(host)
	if note != "" && b.hosts[note] == 0 {
		return dst
	}
	for x, s := range b.each() {
		if b.holders.list[s.holder].host == note && !b.isCooling(x) {
			dst = append(dst, x)
		}
	}
	return dst
}

// hostBlocks returns the blocks that may have addresses held for a host, in address order: its own and those that it
// borrows from. Two round trips.
func (e *Engine) hostBlocks(ctx context.Context, o Owner) ([]netip.Prefix, error) {
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return nil, err
	}
	r := hostRange(o)
	recs, _, err := e.store.List(ctx, r)
	if err != nil {
		return nil, err
	}
	borrowed, err := blocksIn(recs, len(r.From))
	blocks = append(blocks, borrowed...)
	slices.SortFunc(blocks, comparePrefix)
	return slices.Compact(blocks), err
}

// IPsByHost returns the addresses that are held for a host, in address order: those in its own blocks that no other has
// borrowed, and those that it has borrowed. None is no error. It returns [ipalloc.ErrInvalid]. Cost: three round trips.
func (e *Engine) IPsByHost(ctx context.Context, o Owner) ([]Allocation, error) {
	fail := func(err error) ([]Allocation, error) {
		return nil, wrap(ipalloc.Error{Op: "look up", Owner: o.String(), Err: err})
	}
	blocks, err := e.hostBlocks(ctx, o)
	if err != nil {
		return fail(err)
	}
	var als []Allocation
	now := e.past()
	err = e.eachRecord(ctx, blocks, func(b *Block) {
		b.advance(now, 0, math.MaxInt)
		for _, x := range b.ordinalsFor(nil, o) {
			_, s := b.look(x)
			als = append(als, b.allocation(x, s))
		}
	})
	if err != nil {
		return fail(err)
	}
	return als, nil
}

// ReleaseAddressesOf gives back every address that is held for a host, in its own blocks and in those that it borrowed from, and
// returns them. Addresses that others borrowed from its blocks stay, and so do the blocks: [Engine.DisownBlocks] takes those.
//
// It goes in steps of a commit each; one that is interrupted is resumed by repeating it, and what another step gave back
// meanwhile is no error. It returns [ipalloc.ErrInvalid], or an error of the store with what was given back so far.
func (e *Engine) ReleaseAddressesOf(ctx context.Context, o Owner) (released []netip.Addr, err error) {
	blocks, err := e.hostBlocks(ctx, o)
	if err == nil {
		err = e.inSteps(blocks, func(part []netip.Prefix) error {
			for more := true; more; {
				p := &releaseHostPlan{host: o, blocks: part}
				if err := e.do(ctx, p); err != nil {
					return err
				}
				released, more = append(released, p.released...), p.more
			}
			return nil
		})
	}
	if err != nil {
		return released, wrap(ipalloc.Error{Op: "release", Owner: o.String(), Err: err})
	}
	return released, nil
}

// RemoveHost gives back every address that is held for a host and then all its blocks; those from which others have
// borrowed are left without owner. It is ReleaseAddressesOf and DisownBlocks in this order, and resumed in the same way.
func (e *Engine) RemoveHost(ctx context.Context, o Owner) (released []netip.Addr, blocks []netip.Prefix, err error) {
	if released, err = e.ReleaseAddressesOf(ctx, o); err == nil {
		blocks, err = e.DisownBlocks(ctx, o, false)
	}
	return released, blocks, err
}

// releaseHostPlan releases addresses of a host in some blocks, as many as a commit takes.
type releaseHostPlan struct {
	host     Owner
	blocks   []netip.Prefix
	released []netip.Addr
	more     bool
}

// plan implements plan.
func (p *releaseHostPlan) plan(t *txn) error {
	p.released, p.more = p.released[:0], false
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	if err := t.warm(p.blocks); err != nil {
		return err
	}
	var drops []drop
	left := releaseBatch
	if t.e.limits.Ops > 0 {
		left = t.e.limits.Ops
	}
	for _, block := range p.blocks {
		be, err := t.block(cat, block)
		if err != nil {
			return err
		}
		if be.Block == nil {
			continue
		}
		ordinals := be.ordinalsFor(nil, p.host)
		if len(ordinals) == 0 {
			continue
		}
		// A block costs what it is written with, its pages if it goes, and the host; an address of it at most its handle.
		base := t.blockOps(be, maxPages+1)
		n := min(len(ordinals), left-base)
		if p.more = n < len(ordinals); n <= 0 && len(drops) > 0 {
			break
		}
		n = max(n, 1)
		left -= base + n
		for _, x := range ordinals[:n] {
			p.released = append(p.released, be.addr(x))
		}
		drops = append(drops, drop{be, ordinals[:n], 1 + n})
		if p.more {
			break
		}
	}
	return t.drop(cat, drops, &draft{})
}
