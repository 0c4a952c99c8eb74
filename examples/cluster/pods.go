package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// network hands out the addresses of pods, and keeps an account of its own.
type network struct {
	engine *ipset.Engine
	pools  []alloc.Pool
	clock  atomic.Int64 // seconds of the trace

	holder map[netip.Addr]string   // the pod that each address was given to
	held   map[string][]netip.Addr // the reverse
	counts struct{ created, deleted, peak, borrowed, returned int }
}

// epoch is when traces begin.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// idle is how long a block is empty before it goes back to the pool.
const idle = time.Hour

// newNetwork returns a network without pods. The built-in pool is too small for a block for each of
// its 40 nodes, so some nodes borrow.
func newNetwork(ctx context.Context, builtin bool) (*network, error) {
	n := &network{holder: map[netip.Addr]string{}, held: map[string][]netip.Addr{}}
	n.pools = []alloc.Pool{
		{Name: "IPv4", Prefix: netip.MustParsePrefix("10.244.0.0/16"), BlockBits: 26},
		{Name: "IPv6", Prefix: netip.MustParsePrefix("fd00:10:244::/64"), BlockBits: 122},
	}
	if builtin {
		n.pools[0].Prefix, n.pools[0].BlockBits = netip.MustParsePrefix("10.244.0.0/24"), 29
		n.pools[1].Prefix = netip.MustParsePrefix("fd00:10:244::/116")
	}
	var err error
	n.engine, err = ipset.New(store.NewMemory(), ipset.Options{Now: func() time.Time {
		return epoch.Add(time.Duration(n.clock.Load()) * time.Second)
	}})
	for _, p := range n.pools {
		if err == nil {
			err = n.engine.AddPool(ctx, p)
		}
	}
	return n, err
}

// event is a pod that comes or goes.
type event struct {
	at    uint64 // seconds from the beginning of the trace
	comes bool
	pod   *pod
}

// schedule returns the events in time order. At the same time, pods go before others come, except for a pod
// that comes and goes at that time.
func schedule(pods []pod) []event {
	var events []event
	for i := range pods {
		p := &pods[i]
		events = append(events, event{p.created, true, p})
		if !p.stays {
			events = append(events, event{p.deleted, false, p})
		}
	}
	rank := func(e event) int {
		switch {
		case e.comes:
			return 1
		case e.pod.created == e.pod.deleted:
			return 2
		}
		return 0
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(rank(a), rank(b))) })
	return events
}

// run lets the pods come and go, each on the node with the smallest share of its cores in use, and
// compares the accounts.
func (n *network) run(ctx context.Context, nodes []node, pods []pod) error {
	requested := make([]uint64, len(nodes)) // by the pods that are there
	where := make(map[*pod]int)
	for _, e := range schedule(pods) {
		if err := n.tidy(ctx, e.at); err != nil {
			return err
		}
		n.clock.Store(int64(e.at))
		if !e.comes {
			requested[where[e.pod]] -= e.pod.cpu
			if err := n.remove(ctx, e.pod.name); err != nil {
				return err
			}
			continue
		}
		best, least := 0, math.Inf(1)
		for i := range nodes {
			if share := float64(requested[i]) / float64(max(nodes[i].cpu, 1)); share < least {
				best, least = i, share
			}
		}
		requested[best] += e.pod.cpu
		where[e.pod] = best
		if err := n.add(ctx, nodes[best].name, e.pod.name); err != nil {
			return err
		}
	}
	return n.compare(ctx)
}

// add gives a pod an address of each family, or none at all.
func (n *network) add(ctx context.Context, host, pod string) error {
	owner := alloc.HostOwner(host)
	got, err := n.engine.AutoAssign(ctx, alloc.AssignArgs{Owner: owner, Num4: 1, Num6: 1, Handle: pod})
	if err != nil {
		return fmt.Errorf("pod %q on node %q: %w", pod, host, err)
	}
	for _, a := range append(got.V4, got.V6...) {
		if other, taken := n.holder[a.Address]; taken {
			return fmt.Errorf("%v was given to pod %q, and pod %q holds it", a.Address, pod, other)
		}
		n.holder[a.Address] = pod
		n.held[pod] = append(n.held[pod], a.Address)
		block, err := n.engine.Operator().BlockOf(ctx, a.Address)
		if err != nil {
			return err
		}
		if block.Owner() != owner {
			n.counts.borrowed++
		}
	}
	n.counts.created++
	n.counts.peak = max(n.counts.peak, len(n.held))
	return nil
}

// remove takes a pod's addresses back.
func (n *network) remove(ctx context.Context, pod string) error {
	if _, err := n.engine.ReleaseByHandle(ctx, pod); err != nil {
		return fmt.Errorf("pod %q: %w", pod, err)
	}
	for _, a := range n.held[pod] {
		delete(n.holder, a)
	}
	delete(n.held, pod)
	n.counts.deleted++
	return nil
}

// tidy gives idle blocks back, once for each idle time that ends before the next event. The second
// round sees the blocks that became empty with the last event; later rounds would see nothing new.
func (n *network) tidy(ctx context.Context, until uint64) error {
	every := uint64(idle / time.Second)
	at := (uint64(n.clock.Load())/every + 1) * every
	for round := 0; round < 2 && at <= until; round++ {
		n.clock.Store(int64(at))
		swept, err := n.engine.Operator().Sweep(ctx, alloc.SweepArgs{IdleAfter: idle})
		if err != nil {
			return err
		}
		n.counts.returned += len(swept.Returned)
		at += every
	}
	return nil
}

// compare checks the engine's records against what the pods were given.
func (n *network) compare(ctx context.Context) error {
	found := 0
	for a, err := range n.engine.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		if pod := n.holder[a.Address]; pod != a.Handle {
			return fmt.Errorf("the engine has %v for pod %q; it was given to %q", a.Address, a.Handle, pod)
		}
		found++
	}
	if found != len(n.holder) {
		return fmt.Errorf("the engine has %d addresses, the pods hold %d", found, len(n.holder))
	}
	report, err := n.engine.Operator().Check(ctx, nil)
	if err == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("check: %v", report.Problems[0])
	}
	return err
}

// report prints the counts of pods and addresses, and with drawn a map of each pool.
func (n *network) report(ctx context.Context, w io.Writer, drawn bool) error {
	c := n.counts
	fmt.Fprintf(w, "addresses: each pod has one of each family; %d deleted, at most %d at a time\n", c.deleted, c.peak)
	pools, err := n.engine.Utilization(ctx)
	if err != nil {
		return err
	}
	for i, u := range pools {
		pool := n.pools[i]
		held := make(map[netip.Prefix]uint64, len(u.Blocks))
		for _, b := range u.Blocks {
			held[b.Prefix] = b.Used.Lo
		}
		fmt.Fprintf(w, "  %s %v: %s held at the end, in %s of /%d\n",
			u.Pool, pool.Prefix, count(int(u.Used.Lo), "address", "addresses"), count(len(u.Blocks), "block", "blocks"), pool.BlockBits)
		if drawn {
			draw(w, pool.Prefix, pool.BlockBits, "addresses held in the block, + more than 9, . no block", func(p netip.Prefix) rune {
				used, is := held[p]
				switch {
				case !is:
					return '.'
				case used > 9:
					return '+'
				}
				return '0' + rune(used)
			})
		}
	}
	_, err = fmt.Fprintf(w, "  %s borrowed from blocks of other nodes, %s returned\n", count(c.borrowed, "address", "addresses"), count(c.returned, "idle block", "idle blocks"))
	return err
}
