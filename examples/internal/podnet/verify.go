package podnet

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
)

// Verify compares what the store holds with what the pods were told and with what the trace says,
// and asks the engine for its own check. It returns a *[wording.BrokenError] for what is wrong, or an
// error of the store.
func (n *Network) Verify(ctx context.Context, when string) error {
	found := n.checkPods()
	engineFound, err := n.checkEngine(ctx)
	if err != nil {
		return err
	}
	found = append(found, engineFound...)
	report, err := n.engine.Operator().Check(ctx, n.uses())
	if err != nil {
		return err
	}
	for _, p := range report.Problems {
		found = append(found, "Check: "+p.String())
	}
	slices.Sort(found)
	return wording.Broken("pods "+when, found)
}

// uses says who uses which address, as Check wants to know it.
func (n *Network) uses() iter.Seq[audit.InUse] {
	return func(yield func(audit.InUse) bool) {
		for a, pod := range n.holder {
			if !yield(audit.InUse{Address: a, Handle: pod}) {
				return
			}
		}
	}
}

// there returns the pods that the trace has at this point, with their nodes.
func (n *Network) there() map[string]string {
	pods := map[string]string{}
	for _, e := range n.cfg.Events[:n.next] {
		if e.Comes {
			pods[e.Pod.Name] = e.Node
		} else {
			delete(pods, e.Pod.Name)
		}
	}
	return pods
}

// checkPods says what is wrong with what the pods were told: that some pod of the trace lacks an
// address of a family, that one outside the trace has one, that two pods have the same.
func (n *Network) checkPods() (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	there := n.there()
	owner := map[netip.Addr]string{}
	for pod, addrs := range n.held {
		if _, ok := there[pod]; !ok {
			fault("pod %q has %v, and is not there", pod, addrs)
		}
		if len(addrs) != len(n.cfg.Ranges) {
			fault("pod %q has %v, one address of each family is right", pod, addrs)
			continue
		}
		for i, a := range addrs {
			if other, ok := owner[a]; ok {
				fault("%v is held by pods %q and %q", a, min(pod, other), max(pod, other))
			}
			owner[a] = pod
			if r := n.cfg.Ranges[i]; !r.Pool.Contains(a) {
				fault("pod %q has %v, which is outside %v", pod, a, r.Pool)
			}
		}
	}
	for pod := range there {
		if _, ok := n.held[pod]; !ok {
			fault("pod %q has no address", pod)
		}
	}
	return found
}

// checkEngine says where the engine's account differs from what the pods were told: addresses, their
// handles and nodes, blocks and counts.
func (n *Network) checkEngine(ctx context.Context) (found []string, err error) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	there, seen := n.there(), 0
	pools, err := n.engine.Utilization(ctx)
	if err != nil {
		return nil, err
	}
	for i, r := range n.cfg.Ranges {
		var used uint64
		var end netip.Addr // of the block before
		for b, err := range n.engine.Operator().Blocks(ctx, r.Pool) {
			if err != nil {
				return nil, err
			}
			p := b.Prefix()
			if p.Bits() != r.BlockBits || p != p.Masked() || !r.Pool.Contains(p.Addr()) || end.IsValid() && !end.Less(p.Addr()) {
				fault("there is a block %v, which is outside its place", p)
			}
			end = netipx.PrefixLastIP(p)
			if owner := b.Owner().Name; n.owners[p] != owner {
				fault("block %v belongs to node %q, it was node %q", p, owner, n.owners[p])
			}
			used += b.Used()
			for a := range b.All() {
				seen++
				if pod := n.holder[a.Address]; pod != a.Handle || a.Attributes.Map()[nodeKey] != there[pod] || !p.Contains(a.Address) {
					fault("the engine has %v for pod %q with %v, pod %q on node %q has it", a.Address, a.Handle, a.Attributes.Map(), pod, there[pod])
				}
			}
		}
		j := slices.IndexFunc(pools, func(u ipset.Utilization) bool { return u.Pool == r.Name })
		if j < 0 {
			fault("the engine does not know the pool %s", r.Name)
			continue
		}
		u := pools[j]
		if n.count(i) != used || u.Used != (alloc.Count{Lo: used}) || u.Capacity.Sub(u.Used) != u.Available {
			fault("%s: the engine counts %d used and %d available, its blocks hold %d, the pods %d", r.Name, u.Used.Lo, u.Available.Lo, used, n.count(i))
		}
		order := r.Pool.Addr().BitLen() - r.Pool.Bits()
		if u.Capacity != (alloc.Count{Hi: uint64(order / 64), Lo: 1 << order}) {
			fault("%s: the engine says that the pool has %d addresses, it has 2^%d", r.Name, u.Capacity.Lo, order)
		}
	}
	if seen != len(n.holder) {
		fault("the engine has %d addresses, the pods hold %d", seen, len(n.holder))
	}
	return found, nil
}

// count returns how many addresses of a range the pods hold.
func (n *Network) count(i int) (held uint64) {
	for a := range n.holder {
		if n.cfg.Ranges[i].Pool.Contains(a) {
			held++
		}
	}
	return held
}
