package assign

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// AssignIPArgs are the arguments of [Engine.AssignIP].
type AssignIPArgs struct {
	Address netip.Addr
	// Owner is the host that the address is for.
	Owner block.Owner
	block.Claim
	// Use, if not 0, must be one that the pool allows.
	Use pool.Use
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

// AssignIP carries out the call of that name.
func (e *Assigner) AssignIP(ctx context.Context, a AssignIPArgs) (block.Allocation, error) {
	fail := func(err error) (block.Allocation, error) {
		return block.Allocation{}, cause.Wrap(ipalloc.Error{Op: "assign", Addr: a.Address, Owner: a.Owner.String(), Err: err})
	}
	check := AssignArgs{Owner: a.Owner, Num4: 1, Claim: a.Claim, Use: a.Use, MaxBlocks: a.MaxBlocks, Head: a.Head, Tail: a.Tail, Request: a.Request}
	if a.Use == 0 {
		check.Use = pool.Workload
	}
	if err := check.check(); err != nil {
		return fail(err)
	}
	if !a.Address.IsValid() || a.Address.Is4In6() || a.Address.Zone() != "" {
		return fail(cause.BadAddress)
	}
	if err := e.CheckAlso(a.Also); err != nil {
		return fail(err)
	}
	labels, ok := e.Labels(a.Owner)
	if !ok {
		return fail(cause.UnknownOwner)
	}
	p := assignIPPlan{AssignIPArgs: a, node: labels, also: txn.Also{Ops: a.Also}}
	if err := e.Do(ctx, &p); err != nil {
		return fail(occ.Conflict("ipset", err))
	}
	return p.result, nil
}

// assignIPPlan assigns one named address.
type assignIPPlan struct {
	AssignIPArgs
	node   map[string]string // labels of the owner
	result block.Allocation
	memo   record.Memo
	also   txn.Also
}

// Detach implements [occ.Detacher].
func (p *assignIPPlan) Detach() {
	p.Namespace, p.also.Ops = maps.Clone(p.Namespace), slices.Clone(p.also.Ops)
}

// Plan implements [occ.Plan].
func (p *assignIPPlan) Plan(t *txn.Txn) error {
	p.also.Runs++
	if done, err := p.replay(t); done || err != nil {
		return err
	}
	return p.assign(t)
}

// replay returns the address if the request key was given it before and the handle still holds it.
func (p *assignIPPlan) replay(t *txn.Txn) (bool, error) {
	if p.Request == "" {
		return false, nil
	}
	p.memo = record.Memo{Key: record.KindRequest + p.Request, Digest: record.DigestOf("named", p.Address, p.Owner, p.Handle, p.Attributes, p.Share, int64(p.TTL), p.Use,
		p.MaxBlocks, p.Head, p.Tail, p.Selectors, p.Namespace)}
	cat, err := t.Catalog()
	if err != nil {
		return false, err
	}
	held, err := t.Recall(cat, &p.memo, p.Handle)
	if len(held) == 0 || err != nil {
		return false, err
	}
	p.result = held[0].Be.AllocationOf(held[0].X, p.Handle)
	return true, nil
}

// assign finds or makes the block and takes the address.
func (p *assignIPPlan) assign(t *txn.Txn) error {
	cat, err := t.Catalog()
	if err != nil {
		return err
	}
	f, err := find(t, cat, p.Address, &naming{p.Owner, p.Handle, p.Use, p.MaxBlocks, p.Head, p.Tail, p.Selectors, p.node, p.Namespace, p.Share})
	if err != nil {
		return err
	}
	if f.held != nil {
		p.result = *f.held
		return nil
	}
	written := p.memo.At != 0
	if !written {
		if err := p.also.Reserve(t); err != nil {
			return err
		}
	}
	if err := t.Room(t.BlockOps(f.be, txn.OpsPerAddress+len(cat.Index(f.be.At)), p.TTL > 0, true) + txn.Reserve(&p.memo, t)); err != nil {
		return err
	}
	id, until := block.IdentityOf(p.Claim, p.Owner, cat.Index(f.be.At)...), block.LeaseEnd(t.Now, p.TTL)
	if f.joins {
		if err := f.b.CanGrow(f.x, block.Holder{Identity: id, Seq: f.b.Seq() + 1, Until: until}, t.E.Limits.Value); err != nil {
			return err
		}
	}
	if f.b != f.be.Block {
		f.be.Set(f.b)
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
		p.also.Write(t)
	}
	t.Remember(&p.memo, []block.Allocation{p.result})
	return nil
}
