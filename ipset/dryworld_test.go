package ipset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var dryStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// dryCall is a call of an engine with its arguments; it returns the answer, errors included, as text.
type dryCall struct {
	name string
	do   func(ctx context.Context, e *ipset.Engine) string
}

// answer joins results and the error of a call.
func answer(err error, results ...any) string { return fmt.Sprintf("%+v %v", results, err) }

// collect joins what an iterator yields.
func collect[V any](seq func(func(V, error) bool)) string {
	var all []any
	for v, err := range seq {
		all = append(all, v, err)
	}
	return fmt.Sprintf("%+v", all)
}

// dryWorld makes random calls on pools so small that they fill.
type dryWorld struct {
	r   *rand.Rand
	now time.Time
}

func (w *dryWorld) host() alloc.Owner { return alloc.HostOwner(fmt.Sprint("h", w.r.IntN(4))) }
func (w *dryWorld) handle() string    { return fmt.Sprint("p", w.r.IntN(8)) }
func (w *dryWorld) flip(n int) bool   { return w.r.IntN(n) == 0 }

// pool returns one of some pools; two of them overlap.
func (w *dryWorld) pool() alloc.Pool {
	p := []alloc.Pool{
		{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/28"), BlockBits: 30},
		{Name: "b", Prefix: netip.MustParsePrefix("10.0.1.0/29"), BlockBits: 31, Cooldown: 20 * time.Second},
		{Name: "c", Prefix: netip.MustParsePrefix("10.0.2.0/27"), BlockBits: 30, Subnet: true},
		{Name: "d", Prefix: netip.MustParsePrefix("fd00::/124"), BlockBits: 126},
		{Name: "e", Prefix: netip.MustParsePrefix("10.0.2.0/28"), BlockBits: 30},
	}[w.r.IntN(5)]
	if w.flip(2) {
		p.BlockBits--
	}
	p.Seed = 7 // a dry call draws another
	p.Order = []alloc.Order{alloc.FIFO, alloc.Lowest, alloc.Random}[w.r.IntN(5)/2]
	p.Disabled, p.Manual, p.Priority, p.MaxBlocksPerHost = w.flip(12), w.flip(16), w.r.IntN(2), w.r.IntN(16)/14*2
	return p
}

func (w *dryWorld) address() netip.Addr {
	a := w.pool().Prefix.Addr()
	for range w.r.IntN(17) {
		a = a.Next()
	}
	return a
}

func (w *dryWorld) block() netip.Prefix {
	a := w.address()
	return netip.PrefixFrom(a, a.BitLen()-w.r.IntN(5)).Masked()
}

func (w *dryWorld) claim() alloc.Claim {
	c := alloc.Claim{Handle: w.handle()}
	if w.flip(3) {
		c.Attributes, _ = alloc.NewAttributes(map[string]string{"k": fmt.Sprint(w.r.IntN(2))})
	}
	if w.flip(4) {
		c.TTL = time.Duration(1+w.r.IntN(60)) * time.Second
	}
	return c
}

// assign returns a call that assigns addresses.
func (w *dryWorld) assign() dryCall {
	switch w.r.IntN(4) {
	case 0:
		o, handle := w.host(), w.handle()
		return dryCall{"Assign", func(ctx context.Context, e *ipset.Engine) string {
			al, err := e.Assign(ctx, o, handle)
			return answer(err, al)
		}}
	case 1:
		c := w.claim()
		a := alloc.AssignIPArgs{Address: w.address(), Owner: w.host(), Handle: c.Handle, Attributes: c.Attributes, TTL: c.TTL, Blocks: alloc.BlockArgs{Max: w.r.IntN(6) / 2}}
		if w.flip(3) {
			a.Request = fmt.Sprint("r", w.r.IntN(6))
		}
		if w.flip(3) { // a few addresses, so that holders meet
			a.Share, a.Address = alloc.Share{Max: 2 + w.r.IntN(2), Key: "k"}, w.pool().Prefix.Addr().Next().Next()
		}
		return dryCall{"AssignIP", func(ctx context.Context, e *ipset.Engine) string {
			al, err := e.AssignIP(ctx, a)
			return answer(err, al)
		}}
	}
	c := w.claim()
	a := alloc.AssignArgs{Owner: w.host(), Num4: w.r.IntN(4), Num6: w.r.IntN(6) / 4, Handle: c.Handle, Attributes: c.Attributes, TTL: c.TTL, Partial: !w.flip(3), Existing: w.flip(6), Sticky: w.flip(4), Blocks: alloc.BlockArgs{Max: w.r.IntN(8) / 7 * 2}}
	if w.flip(4) && !a.Existing {
		a.Request = fmt.Sprint("r", w.r.IntN(6))
	}
	if w.flip(8) {
		a.Blocks.Head, a.Blocks.Tail, a.Pools = uint64(w.r.IntN(2)), uint64(w.r.IntN(2)), []string{"a", "none"}[:1+w.r.IntN(2)]
	}
	if w.flip(6) {
		a.Choose, a.Partial, a.Sticky = alloc.Contiguous(), false, false
		if w.flip(2) {
			a.Choose = alloc.Aligned()
		}
	}
	if w.flip(8) {
		a.Also = []store.Op{{Kind: store.Put, Key: "Mine" + fmt.Sprint(w.r.IntN(2)), Value: "x", Expect: []uint64{store.AnyRevision, 0}[w.r.IntN(2)]}}
	}
	if w.flip(30) {
		a.Num4 = 1 << 20 // more than there is
	}
	return dryCall{"AutoAssign", func(ctx context.Context, e *ipset.Engine) string {
		got, err := e.AutoAssign(ctx, a)
		return answer(err, got)
	}}
}

// release returns a call that releases or changes addresses that are held.
func (w *dryWorld) release() dryCall {
	a, o, handle := w.address(), w.host(), w.handle()
	switch w.r.IntN(6) {
	case 0:
		rs := []alloc.Release{{Address: a}, {Address: w.address(), Guard: alloc.Guard{Handle: handle}}, {Address: w.address(), Guard: alloc.Guard{Seq: 3}}}
		return dryCall{"ReleaseIPs", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.ReleaseIPs(ctx, rs...)
			return answer(err, res)
		}}
	case 1:
		return dryCall{"ReleaseByHost", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.ReleaseByHost(ctx, o)
			return answer(err, res)
		}}
	case 2:
		return dryCall{"Renew", func(ctx context.Context, e *ipset.Engine) string {
			n, err := e.Renew(ctx, handle, alloc.RenewArgs{TTL: time.Minute})
			return answer(err, n)
		}}
	case 3:
		s := alloc.UpdateArgs{Address: a}
		if w.flip(2) {
			s.Host = &o
		} else {
			s.Active = &w.claimed().Attributes
		}
		return dryCall{"Update", func(ctx context.Context, e *ipset.Engine) string { return answer(e.Update(ctx, s)) }}
	}
	of := []alloc.Owner{o}[:w.r.IntN(2)]
	return dryCall{"ReleaseByHandle", func(ctx context.Context, e *ipset.Engine) string {
		res, err := e.ReleaseByHandle(ctx, handle, of...)
		return answer(err, res)
	}}
}

func (w *dryWorld) claimed() *alloc.Claim { c := w.claim(); return &c }

// lease returns a call about leases.
func (w *dryWorld) lease() dryCall {
	a, g := w.address(), alloc.Guard{Handle: w.handle()}
	if w.flip(2) {
		g.Handle = ""
	}
	switch w.r.IntN(4) {
	case 3:
		args := alloc.TransferArgs{From: w.handle(), To: g.Handle}
		if w.flip(2) {
			args.Address = a
		}
		return dryCall{"Transfer", func(ctx context.Context, e *ipset.Engine) string {
			got, err := e.Transfer(ctx, args)
			return answer(err, got)
		}}
	case 0:
		c := w.claim()
		args := alloc.AssignArgs{Owner: w.host(), Num4: 1, Handle: c.Handle, Attributes: c.Attributes, TTL: 30 * time.Second}
		return dryCall{"Offer", func(ctx context.Context, e *ipset.Engine) string {
			got, err := e.Offer(ctx, args)
			return answer(err, got)
		}}
	case 1:
		return dryCall{"RenewIP", func(ctx context.Context, e *ipset.Engine) string {
			al, err := e.RenewIP(ctx, a, g, alloc.RenewArgs{TTL: time.Minute})
			return answer(err, al)
		}}
	}
	d := alloc.DeclineArgs{Address: a, Guard: g, For: time.Duration(1+w.r.IntN(60)) * time.Second, Reason: "in use"}
	return dryCall{"Decline", func(ctx context.Context, e *ipset.Engine) string {
		al, err := e.Decline(ctx, d)
		return answer(err, al)
	}}
}

// blocks returns a call about blocks and hosts.
func (w *dryWorld) blocks() dryCall {
	p, o, must := w.block(), w.host(), w.flip(2)
	switch w.r.IntN(9) {
	case 7:
		args := alloc.RenameArgs{From: w.host(), To: o, Merge: must}
		return dryCall{"RenameHost", func(ctx context.Context, e *ipset.Engine) string {
			res, blocks, err := e.Operator().RenameHost(ctx, args)
			return answer(err, res, blocks)
		}}
	case 0:
		return dryCall{"ClaimAffinity", func(ctx context.Context, e *ipset.Engine) string {
			claimed, failed, err := e.ClaimAffinity(ctx, p, o)
			return answer(err, claimed, failed)
		}}
	case 1:
		return dryCall{"DisownBlocks of a prefix", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.DisownBlocks(ctx, alloc.DisownArgs{Prefix: p, Owner: o, OnlyEmpty: must})
			return answer(err, res)
		}}
	case 2:
		return dryCall{"DisownBlocks", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.DisownBlocks(ctx, alloc.DisownArgs{Owner: o, OnlyEmpty: must})
			return answer(err, res)
		}}
	case 3:
		return dryCall{"RemoveHost", func(ctx context.Context, e *ipset.Engine) string {
			res, blocks, err := e.RemoveHost(ctx, o)
			return answer(err, res, blocks)
		}}
	case 4:
		return dryCall{"EnsureBlock", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.EnsureBlock(ctx, alloc.AssignArgs{Owner: o, Num4: 1})
			return answer(err, res)
		}}
	case 5:
		name := w.pool().Name
		return dryCall{"DisownBlocks of a pool", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.DisownBlocks(ctx, alloc.DisownArgs{Pool: name, OnlyEmpty: must})
			return answer(err, res)
		}}
	case 6:
		return dryCall{"Collect", func(ctx context.Context, e *ipset.Engine) string {
			res, err := e.Operator().NewCollector(0).Collect(ctx, func(al alloc.Allocation) alloc.Liveness {
				if al.Handle == "p3" {
					return alloc.Gone
				}
				return alloc.Alive
			})
			return answer(err, res)
		}}
	}
	args := alloc.SweepArgs{IdleAfter: time.Duration(w.r.IntN(90)) * time.Second, Keep: w.r.IntN(2), Unselected: w.flip(2), RequestsAfter: time.Minute, StickyAfter: time.Minute}
	return dryCall{"Sweep", func(ctx context.Context, e *ipset.Engine) string {
		res, err := e.Operator().Sweep(ctx, args)
		return answer(err, res)
	}}
}

// config returns a call that changes pools or the configuration.
func (w *dryWorld) config() dryCall {
	p, bits := w.pool(), w.r.IntN(4)
	var set netipx.IPSetBuilder
	if w.flip(2) {
		set.AddPrefix(w.block())
	}
	reserved, _ := set.IPSet()
	cfg := alloc.Config{Strict: w.flip(3), NoAutoBlocks: w.flip(12), MaxBlocksPerHost: w.r.IntN(20) / 16 * 3}
	switch w.r.IntN(11) {
	case 9:
		return dryCall{"MergePools", func(ctx context.Context, e *ipset.Engine) string {
			return answer(e.Operator().MergePools(ctx, p.Name, p.Name+"-0", p.Name+"-1"))
		}}
	case 10: // what is found is of this moment
		return dryCall{"Repair", func(ctx context.Context, e *ipset.Engine) string {
			rep, err := e.Operator().Check(ctx, nil)
			if err != nil {
				return answer(err)
			}
			n, err := e.Operator().Repair(ctx, rep.Repair)
			return answer(err, rep.Problems, n)
		}}
	case 0, 1, 2:
		return dryCall{"AddPool", func(ctx context.Context, e *ipset.Engine) string { return answer(e.AddPool(ctx, p)) }}
	case 3:
		return dryCall{"UpdatePool", func(ctx context.Context, e *ipset.Engine) string { return answer(e.UpdatePool(ctx, p)) }}
	case 4:
		return dryCall{"RemovePool", func(ctx context.Context, e *ipset.Engine) string { return answer(e.RemovePool(ctx, p.Name)) }}
	case 5:
		return dryCall{"SplitPool", func(ctx context.Context, e *ipset.Engine) string {
			return answer(e.Operator().SplitPool(ctx, p.Name, bits))
		}}
	case 6:
		return dryCall{"SetReservations", func(ctx context.Context, e *ipset.Engine) string {
			live, err := e.Operator().SetReservations(ctx, alloc.Reservations(reserved.Ranges()...))
			return answer(err, live)
		}}
	case 7:
		return dryCall{"Drain", func(ctx context.Context, e *ipset.Engine) string {
			held, err := e.Operator().Drain(ctx, p.Name)
			return answer(err, held)
		}}
	}
	return dryCall{"SetConfig", func(ctx context.Context, e *ipset.Engine) string { return answer(e.Operator().SetConfig(ctx, cfg)) }}
}

// query returns a call that only reads.
func (w *dryWorld) query() dryCall {
	a, handle, o := w.address(), w.handle(), w.host()
	return dryCall{"queries", func(ctx context.Context, e *ipset.Engine) string {
		al, err := e.Lookup(ctx, a)
		all := answer(err, al)
		if b, err := e.Operator().BlockOf(ctx, a); b != nil {
			all += answer(err, b.Prefix(), b.Owner(), b.Used())
		}
		als, err := e.IPsByHandle(ctx, handle)
		all += answer(err, als)
		als, err = e.IPsByHost(ctx, o)
		all += answer(err, als)
		blocks, err := e.BlocksOf(ctx, o)
		all += answer(err, blocks)
		use, err := e.Utilization(ctx)
		all += answer(err, use)
		pools, err := e.Pools(ctx)
		all += answer(err, pools)
		return all + collect(e.Allocations(ctx, netip.Prefix{})) + collect(e.Operator().Borrowings(ctx))
	}}
}

// kinds are the kinds of calls.
func (w *dryWorld) kinds() []func() dryCall {
	return []func() dryCall{w.assign, w.assign, w.assign, w.assign, w.assign, w.assign, w.assign, w.release, w.release, w.release, w.lease, w.lease, w.blocks, w.blocks, w.config, w.query}
}

func (w *dryWorld) call() dryCall {
	kinds := w.kinds()
	return kinds[w.r.IntN(len(kinds))]()
}

// engine returns an engine on the clock of the world.
func (w *dryWorld) engine(t testing.TB, db store.Store, cache int) *ipset.Engine {
	e, err := ipset.New(db, ipset.Options{
		Now: func() time.Time { return w.now }, Cache: cache,
		Retry: ipset.Retry{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
