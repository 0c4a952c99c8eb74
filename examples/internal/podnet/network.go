package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Range is where the pods' addresses of one family come from.
type Range struct {
	Name      string // "IPv4" or "IPv6": one of each at most
	Pool      netip.Prefix
	BlockBits int // the length of a block, the unit that nodes claim
}

// Config is what a network is made of.
type Config struct {
	Ranges []Range
	Nodes  []trace.Node
	Events []trace.Event // in time order
	Idle   time.Duration // blocks that have been empty for so long go back to the pool; 0: never
}

// Counts is what a network has done since it was opened.
type Counts struct {
	Created, Deleted int // pods
	Claimed          int // blocks that were free
	TakenOver        int // blocks that another node had and had not used for a minute
	Returned         int // blocks that nobody used
	Borrowed         int // addresses from blocks of other nodes
}

// Add adds what was done after d.
func (c *Counts) Add(d Counts) {
	c.Created += d.Created
	c.Deleted += d.Deleted
	c.Claimed += d.Claimed
	c.TakenOver += d.TakenOver
	c.Returned += d.Returned
	c.Borrowed += d.Borrowed
}

// Network hands out the addresses. Not safe for concurrent use.
type Network struct {
	cfg    Config
	engine *ipset.Engine
	clock  atomic.Int64 // seconds of the trace
	next   int          // the first event that has not been seen through

	held   map[string][]netip.Addr // what the pods were told, in the order of the ranges
	holder map[netip.Addr]string   // the pod that was told
	owners map[netip.Prefix]string // the nodes that blocks belong to, as seen last
	counts Counts
}

// epoch is when traces begin.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Open returns the network that the store holds, or a new one if the store is empty, at the event at
// which it stopped. It fails if the store holds other pools or pods than those of the configuration.
func Open(ctx context.Context, db store.Store, cfg Config) (*Network, error) {
	n := &Network{cfg: cfg, held: map[string][]netip.Addr{}, holder: map[netip.Addr]string{}, owners: map[netip.Prefix]string{}}
	var err error
	n.engine, err = ipset.New(db, ipset.Options{Now: func() time.Time {
		return epoch.Add(time.Duration(n.clock.Load()) * time.Second)
	}})
	if err != nil {
		return nil, err
	}
	if err := n.addPools(ctx); err != nil {
		return nil, err
	}
	return n, n.resume(ctx)
}

// addPools adds the pools that are not there yet.
func (n *Network) addPools(ctx context.Context) error {
	there, err := n.engine.Pools(ctx)
	if err != nil {
		return err
	}
	for _, r := range n.cfg.Ranges {
		i := slices.IndexFunc(there, func(p ipset.Pool) bool { return p.Name == r.Name })
		if i < 0 {
			err = n.engine.AddPool(ctx, ipset.Pool{Name: r.Name, Prefix: r.Pool, BlockBits: r.BlockBits})
			if err != nil {
				return err
			}
			continue
		}
		if p := there[i]; p.Prefix != r.Pool || p.BlockBits != r.BlockBits {
			return fmt.Errorf("the store's pool %s is %v in /%d blocks, not %v in /%d", p.Name, p.Prefix, p.BlockBits, r.Pool, r.BlockBits)
		}
		there = slices.Delete(there, i, i+1)
	}
	if len(there) > 0 {
		return fmt.Errorf("the store has another pool, %s %v", there[0].Name, there[0].Prefix)
	}
	return nil
}

// resume reads who has what, which says which events have been seen through.
func (n *Network) resume(ctx context.Context) error {
	came := make(map[string]int, len(n.cfg.Events)/2)
	for i, e := range n.cfg.Events {
		if e.Comes {
			came[e.Pod.Name] = i
		}
	}
	for _, r := range n.cfg.Ranges {
		for b, err := range n.engine.Operator().Blocks(ctx, r.Pool) {
			if err != nil {
				return err
			}
			n.owners[b.Prefix()] = b.Owner().Name
			for a := range b.All() {
				i, ok := came[a.Handle]
				if !ok {
					return fmt.Errorf("the store has %v for pod %q, which the trace does not know", a.Address, a.Handle)
				}
				if node := a.Attributes.Map()[nodeKey]; node != n.cfg.Events[i].Node {
					return fmt.Errorf("the store has pod %q on node %q, in this trace it is on %q", a.Handle, node, n.cfg.Events[i].Node)
				}
				n.held[a.Handle] = append(n.held[a.Handle], a.Address)
				n.holder[a.Address] = a.Handle
				n.next = max(n.next, i+1)
			}
		}
	}
	n.skipGone()
	return nil
}

// skipGone takes the events as seen through that must have been: a pod that is there has come; one
// that had come before it and is not there has gone, and with that, all that was before. What
// happened after that, if anything, is pods that came and went again: it is asked for once more.
func (n *Network) skipGone() {
	goes := make(map[string]int, len(n.cfg.Events)/2)
	for i, e := range n.cfg.Events {
		if !e.Comes {
			goes[e.Pod.Name] = i
		}
	}
	for i := 0; i < n.next; i++ {
		e := &n.cfg.Events[i]
		if last, ok := goes[e.Pod.Name]; ok && e.Comes && n.held[e.Pod.Name] == nil {
			n.next = max(n.next, last+1)
		}
	}
}

// Next returns the number of the event at which Run goes on.
func (n *Network) Next() int { return n.next }

// Addresses returns what a pod was told, in the order of the ranges; nothing for one that is not there.
func (n *Network) Addresses(pod string) []netip.Addr { return n.held[pod] }

// Counts returns what was done since Open.
func (n *Network) Counts() Counts { return n.counts }

// Run carries on up to event number end, which is not part of it. An error leaves the network where
// it was; so does the end of ctx.
func (n *Network) Run(ctx context.Context, end int) error {
	for n.next < end {
		e := &n.cfg.Events[n.next]
		if err := n.tidy(ctx, e.Time); err != nil {
			return err
		}
		n.clock.Store(int64(e.Time))
		step := n.remove
		if e.Comes {
			step = n.add
		}
		if err := step(ctx, e); err != nil {
			return err
		}
		n.next++
	}
	return nil
}

// nodeKey is the attribute that says where a pod is.
const nodeKey = "node"

// add gives a pod its addresses: one of each family, or none at all.
func (n *Network) add(ctx context.Context, e *trace.Event) error {
	attributes, err := alloc.NewAttributes(map[string]string{nodeKey: e.Node})
	if err != nil {
		return err
	}
	args := ipset.AssignArgs{
		Owner:   alloc.HostOwner(e.Node),
		Claim:   alloc.Claim{Handle: e.Pod.Name, Attributes: attributes},
		Use:     alloc.Workload,
		Request: e.Pod.Name, // to ask again is to get the same while the pod has it: a cluster would take the pod's UID
	}
	for _, r := range n.cfg.Ranges {
		if r.Pool.Addr().Is4() {
			args.Num4 = 1
		} else {
			args.Num6 = 1
		}
	}
	got, err := n.engine.AutoAssign(ctx, args)
	if err != nil {
		return n.explain(e, err)
	}
	var addrs []netip.Addr
	var found []string
	for _, r := range n.cfg.Ranges {
		list := got.V6
		if r.Pool.Addr().Is4() {
			list = got.V4
		}
		if len(list) != 1 || !r.Pool.Contains(list[0].Address) {
			found = append(found, fmt.Sprintf("pod %q got %v, one address of %v is right", e.Pod.Name, list, r.Pool))
			continue
		}
		a := list[0]
		if other, ok := n.holder[a.Address]; ok && other != e.Pod.Name {
			found = append(found, fmt.Sprintf("pod %q got %v, which pod %q has", e.Pod.Name, a.Address, other))
		}
		if err := n.noteBlock(ctx, a, e.Node); err != nil {
			return err
		}
		n.holder[a.Address] = e.Pod.Name
		addrs = append(addrs, a.Address)
	}
	n.held[e.Pod.Name] = addrs
	n.counts.Created++
	return wording.Broken("when a pod came", found)
}

// explain says why a pod got nothing, and what would help.
func (n *Network) explain(e *trace.Event, err error) error {
	err = fmt.Errorf("pod %q on node %q, with %s: %w", e.Pod.Name, e.Node, wording.Count(len(n.held), "other pod"), err)
	if errors.Is(err, ipalloc.ErrFull) {
		_, most := trace.Peak(n.cfg.Events)
		return fmt.Errorf("%w; at the peak there are %s (-podpool4, -podpool6)", err, wording.Count(most, "pod"))
	}
	return err
}

// noteBlock counts how the node came to a block.
func (n *Network) noteBlock(ctx context.Context, a alloc.Allocation, node string) error {
	was, known := n.owners[a.Block]
	if known && was == node {
		return nil
	}
	b, err := n.engine.Operator().BlockOf(ctx, a.Address)
	if err != nil || b == nil {
		return err
	}
	owner := b.Owner().Name
	switch {
	case owner != node:
		n.counts.Borrowed++
	case known:
		n.counts.TakenOver++
	default:
		n.counts.Claimed++
	}
	n.owners[a.Block] = owner
	return nil
}

// remove takes a pod's addresses back. A pod that has none any more is no error.
func (n *Network) remove(ctx context.Context, e *trace.Event) error {
	if _, err := n.engine.ReleaseByHandle(ctx, e.Pod.Name); err != nil {
		return fmt.Errorf("pod %q: %w", e.Pod.Name, err)
	}
	for _, a := range n.held[e.Pod.Name] {
		delete(n.holder, a)
	}
	delete(n.held, e.Pod.Name)
	n.counts.Deleted++
	return nil
}

// tidy gives back the blocks that became idle before an event: one round of it at every multiple of
// the idle time. Two rounds after the last event see all there is to see.
func (n *Network) tidy(ctx context.Context, until uint64) error {
	every := uint64(n.cfg.Idle / time.Second)
	if every == 0 || n.next == 0 {
		return nil
	}
	at := n.cfg.Events[n.next-1].Time/every*every + every
	for round := 0; round < 2 && at <= until; round++ {
		n.clock.Store(int64(at))
		swept, err := n.engine.Operator().Sweep(ctx, ipset.SweepArgs{IdleAfter: n.cfg.Idle})
		if err != nil {
			return err
		}
		for _, b := range swept.Returned {
			delete(n.owners, b)
		}
		n.counts.Returned += len(swept.Returned)
		at += every
	}
	return nil
}
