package ipset

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignIPArgs are the arguments of [Engine.AssignIP].
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner Owner
	Claim
	// Use, if not 0, must be one that the pool allows.
	Use Use
	// Selectors applies the selectors of the pool that has the address: its Nodes to the labels of the owner, its Namespaces to
	// Namespace. Without it neither counts. Pool.Manual never does, because the address names the pool.
	Selectors bool
	// Namespace has the labels of the namespace.
	Namespace map[string]string
	// MaxBlocks narrows the limit of blocks per host if it is above 0.
	MaxBlocks int
	// Head and Tail are the addresses to reserve for the host at the ends of a block made for it; they need strict affinity.
	Head, Tail uint64
	// Request, if not empty, names this request: a repetition returns the allocation while the handle still holds it, and
	// assigns the address again after. The same key with other arguments is [ipalloc.ErrInvalid].
	Request string
	// Also are records of yours that are written in the same commit, as in [AssignArgs]: not if the handle has the address
	// already, and not by a repetition of the Request.
	Also []store.Op
}

// AssignIP gives one named address. If its block does not exist, the owner claims it. It ignores reservations and the pool's
// ranges, because the caller names the address, and selectors unless Selectors is set. If the handle already holds the address,
// AssignIP returns the allocation as it is.
//
// With Claim.Share, a held address that its first holder shares under the same key gets one more holder, also from a block of
// another owner under strict affinity. The limit is that of the first holder. A holder is added and removed in one commit.
//
// Errors, nothing assigned: [ipalloc.ErrInvalid] for impossible arguments; [ipalloc.ErrNotFound] for an owner that does not
// exist, if no enabled pool has the address for this use, and with Selectors if the pool does not select the owner and the
// namespace; [ipalloc.ErrOccupied] with the holder if the address is held, and
// if its block is another owner's and affinity is strict; [ipalloc.ErrCooling] with the time, unless the handle is the one that
// released it; [ipalloc.ErrMismatch] with the first holder if the address is shared under another key; [ipalloc.ErrReserved];
// [ipalloc.ErrLimit] if the block would have to be claimed and may not be, and for a shared address that has as many holders as it
// may have, or whose record would take more than 256 KiB or than the store takes;
// [ipalloc.ErrConflict], [ipalloc.ErrUnknownOutcome] and other errors of the store as for AutoAssign.
func (e *Engine) AssignIP(ctx context.Context, a AssignIPArgs) (Allocation, error) {
	fail := func(err error) (Allocation, error) {
		return Allocation{}, wrap(ipalloc.Error{Op: "assign", Addr: a.Address, Owner: a.Owner.String(), Err: err})
	}
	check := AssignArgs{Owner: a.Owner, Num4: 1, Claim: a.Claim, Use: a.Use, MaxBlocks: a.MaxBlocks, Head: a.Head, Tail: a.Tail, Request: a.Request}
	if a.Use == 0 {
		check.Use = Workload
	}
	if err := check.check(); err != nil {
		return fail(err)
	}
	if !a.Address.IsValid() || a.Address.Is4In6() || a.Address.Zone() != "" {
		return fail(errBadAddress)
	}
	if err := e.checkAlso(a.Also); err != nil {
		return fail(err)
	}
	labels, ok := e.labels(a.Owner)
	if !ok {
		return fail(errUnknownOwner)
	}
	p := assignIPPlan{AssignIPArgs: a, node: labels, also: also{ops: a.Also}}
	if err := e.do(ctx, &p); err != nil {
		return fail(occ.Conflict("ipset", err))
	}
	return p.result, nil
}

// assignIPPlan assigns one named address.
type assignIPPlan struct {
	AssignIPArgs
	node   map[string]string // labels of the owner
	result Allocation
	memo   memo
	also   also
}

// Detach implements [occ.Detacher].
func (p *assignIPPlan) Detach() {
	p.Namespace, p.also.ops = maps.Clone(p.Namespace), slices.Clone(p.also.ops)
}

// Plan implements [occ.Plan].
func (p *assignIPPlan) Plan(t *txn) error {
	p.also.runs++
	if done, err := p.replay(t); done || err != nil {
		return err
	}
	return p.assign(t)
}

// replay returns the address if the request key was given it before and the handle still holds it.
func (p *assignIPPlan) replay(t *txn) (bool, error) {
	if p.Request == "" {
		return false, nil
	}
	p.memo = memo{key: kindRequest + p.Request, digest: digestOf("named", p.Address, p.Owner, p.Handle, p.Attributes, p.Share, int64(p.TTL), p.Use,
		p.MaxBlocks, p.Head, p.Tail, p.Selectors, p.Namespace)}
	cat, err := t.catalog()
	if err != nil {
		return false, err
	}
	held, err := t.recall(cat, &p.memo, p.Handle)
	if len(held) == 0 || err != nil {
		return false, err
	}
	p.result = held[0].be.AllocationOf(held[0].x, p.Handle)
	return true, nil
}

// assign finds or makes the block and takes the address.
func (p *assignIPPlan) assign(t *txn) error {
	cat, err := t.catalog()
	if err != nil {
		return err
	}
	f, err := t.find(cat, p.Address, &naming{p.Owner, p.Handle, p.Use, p.MaxBlocks, p.Head, p.Tail, p.Selectors, p.node, p.Namespace, p.Share})
	if err != nil {
		return err
	}
	if f.held != nil {
		p.result = *f.held
		return nil
	}
	written := p.memo.at != 0
	if !written {
		if err := p.also.reserve(t); err != nil {
			return err
		}
	}
	if err := t.Room(t.blockOps(f.be, opsPerAddress+len(cat.index(f.be.at)), p.TTL > 0, true) + p.memo.reserve(t)); err != nil {
		return err
	}
	id, until := block.IdentityOf(p.Claim, p.Owner, cat.index(f.be.at)...), block.LeaseEnd(t.now, p.TTL)
	if f.joins {
		if err := f.b.CanGrow(f.x, block.Holder{Identity: id, Seq: f.b.Seq() + 1, Until: until}, t.e.limits.Value); err != nil {
			return err
		}
	}
	if f.b != f.be.Block {
		f.be.set(f.b)
	}
	if f.joins {
		f.b.Join(f.x, id, until)
	} else {
		f.b.Hold(f.x, id, until)
		f.b.AllowSharing(f.x, p.Share)
	}
	t.Change(f.be)
	p.result = f.b.AllocationOf(f.x, p.Handle)
	if !written {
		p.also.write(t)
	}
	t.remember(&p.memo, []Allocation{p.result})
	return nil
}

// newBlock makes a block that does not exist, for the caller to put into its entry.
func (t *txn) newBlock(cat *catalogEntry, i int, at netip.Prefix, o block.Options) (*block.Block, error) {
	t.assumeAbsent(at)
	if _, taken, err := t.occupied(cat, i, at); err != nil || taken {
		if err == nil {
			err = wrap(ipalloc.Error{Op: "claim", Prefix: at, Err: errCovered})
		}
		return nil, err
	}
	mark, err := t.occupy(at)
	if err != nil {
		return nil, err
	}
	o.Claimed, o.Seq = block.Unstamp(t.now), max(mark, cat.Generation<<genShift)
	b, err := block.New(at, o)
	if err != nil {
		return nil, err
	}
	return b, t.give(o.Owner, at)
}
