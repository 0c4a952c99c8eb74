package ipset

import (
	"context"
	"fmt"
	"net/netip"
)

// AssignIPArgs are the arguments of [Engine.AssignIP].
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner Owner
	Claim
	// Use, if not 0, must be one that the pool allows.
	Use Use
	// MaxBlocks narrows the limit of blocks per host if it is above 0.
	MaxBlocks int
	// Head and Tail are the addresses to reserve for the host at the ends of a block made for it; they need strict affinity.
	Head, Tail uint64
	// Request, if not empty, names this request: a repetition gets the first answer.
	Request string
}

// AssignIP gives one named address. If its block does not exist, the owner claims it. Selectors and reservations do
// not count: the caller knows what it asks for.
//
// Errors, nothing assigned: [ErrBadName], [ErrBadAddress], [ErrUnknownUse], [ErrUnknownHost] for arguments; [ErrNoPool]
// if no enabled pool has the address for this use; [ErrOccupied]; [ErrCooling] unless the handle is the one that
// released it; [ErrReserved]; [ErrStrict] if the block is another's and affinity is strict; [ErrLimit] if the block
// would have to be claimed and may not; [ErrContention], ipalloc.ErrUnknownOutcome and other errors of the store as for AutoAssign.
func (e *Engine) AssignIP(ctx context.Context, a AssignIPArgs) (Allocation, error) {
	fail := func(err error) (Allocation, error) {
		return Allocation{}, &Error{Op: "assign", Address: a.Address, Owner: a.Owner.String(), Err: err}
	}
	check := AssignArgs{Owner: a.Owner, Num4: 1, Claim: a.Claim, Use: a.Use, MaxBlocks: a.MaxBlocks, Request: a.Request}
	if a.Use == 0 {
		check.Use = Workload
	}
	if err := check.check(); err != nil {
		return fail(err)
	}
	if !a.Address.IsValid() || a.Address.Is4In6() || a.Address.Zone() != "" {
		return fail(ErrBadAddress)
	}
	if a.Owner.Kind == Host {
		if _, ok := e.hosts(a.Owner.Name); !ok {
			return fail(ErrUnknownHost)
		}
	}
	p := assignIPPlan{AssignIPArgs: a}
	if err := e.do(ctx, &p); err != nil {
		return fail(err)
	}
	return p.result, nil
}

// assignIPPlan assigns one named address.
type assignIPPlan struct {
	AssignIPArgs
	result Allocation
}

// plan implements plan.
func (p *assignIPPlan) plan(t *txn) error {
	if done, err := p.replay(t, false); done || err != nil {
		return err
	}
	err := p.assign(t)
	if err != nil && err != errFirst && p.Request != "" {
		if done, again := p.replay(t, true); done || again != nil {
			return again
		}
	}
	return err
}

// replay gives the answer that the request key was given before, if any.
func (p *assignIPPlan) replay(t *txn, ask bool) (bool, error) {
	a, err := t.answerTo(p.Request, ask)
	if err != nil || a == nil {
		return false, err
	}
	v4, v6 := a.allocations(p.Owner, p.Claim)
	if all := append(v4, v6...); len(all) != 1 || all[0].Address != p.Address {
		return false, fmt.Errorf("%w: the request key was used for something else", ErrBadArgument)
	} else {
		p.result = all[0]
	}
	return true, nil
}

// assign finds or makes the block and takes the address.
func (p *assignIPPlan) assign(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	i := cat.containing(p.Address)
	if i < 0 || cat.Pools[i].Disabled || p.Use != 0 && cat.Pools[i].Uses&p.Use == 0 {
		return ErrNoPool
	}
	if p.Head+p.Tail > 0 && !cat.Config.Strict {
		return fmt.Errorf("%w: reserving addresses for a host needs strict affinity", ErrStrict)
	}
	be, err := t.locate(cat, p.Address)
	if err != nil {
		return err
	}
	var d draft
	b := be.Block
	if b == nil {
		if b, err = p.claim(t, cat, i, be, &d); err != nil {
			return err
		}
	} else if b.owner != p.Owner && cat.Config.Strict {
		return &Error{Op: "assign", Prefix: b.prefix, Owner: b.owner.String(), Err: ErrStrict}
	}
	x, err := b.locate(p.Address)
	if err != nil {
		return err
	}
	if err := b.canAssign(x, p.Handle); err != nil {
		return err
	}
	if err := t.room(d.size() + opsPerBlock + len(be.touches) + 2); err != nil {
		return err
	}
	d.apply(t)
	if b != be.Block {
		be.set(b)
	}
	b.hold(x, p.identity(b, p.Owner), p.until(t.now))
	t.changed(be)
	p.result, _ = b.Lookup(p.Address)
	if p.Request != "" {
		a := &answer{at: t.now}
		a.add([]Allocation{p.result})
		t.remember(p.Request, a)
	}
	return nil
}

// claim makes the block of the address for the owner.
func (p *assignIPPlan) claim(t *txn, cat *catalogEntry, i int, be *blockEntry, d *draft) (*Block, error) {
	block := netip.PrefixFrom(p.Address, cat.Pools[i].BlockBits).Masked()
	blocks, err := d.blocksOf(t, p.Owner)
	if err != nil {
		return nil, err
	}
	if !cat.mayClaim(blocks, i, p.MaxBlocks) {
		return nil, &Error{Op: "claim", Prefix: block, Err: ErrLimit}
	}
	return t.newBlock(cat, i, block, BlockOptions{Owner: p.Owner, Head: p.Head, Tail: p.Tail}, d)
}

// newBlock drafts a block that does not exist.
func (t *txn) newBlock(cat *catalogEntry, i int, block netip.Prefix, o BlockOptions, d *draft) (*Block, error) {
	t.assumeAbsent(block)
	if _, taken, err := t.occupied(cat, i, block); err != nil || taken {
		if err == nil {
			err = &Error{Op: "claim", Prefix: block, Err: ErrOverlap}
		}
		return nil, err
	}
	mark, err := d.occupy(t, block)
	if err != nil {
		return nil, err
	}
	o.Claimed, o.Seq = unstamp(t.now), max(mark, cat.Generation<<genShift)
	b, err := NewBlock(block, o)
	if err != nil {
		return nil, err
	}
	return b, d.give(t, o.Owner, block)
}
