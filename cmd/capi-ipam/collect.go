package main

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// leakEvery is how often addresses of claims that do not exist are looked for, leakGrace for how long they are left.
const leakEvery, leakGrace = time.Minute, 5 * time.Minute

// collect gives back the addresses of claims that do not exist, whose finalizers were removed by hand, and what is left of pools
// that went in that way.
func (p *provider) collect(ctx context.Context) {
	for tick := time.Tick(leakEvery); ctx.Err() == nil; {
		if released, err := p.collectAll(ctx); err != nil || released > 0 {
			p.log.Info("addresses of claims that are gone", "released", released, "err", err)
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

// collectAll goes through the spaces once. It returns how many addresses were given back.
func (p *provider) collectAll(ctx context.Context) (released int, err error) {
	r := &round{provider: p}
	seen := map[string]*ipset.Collector{}
	for uid, err := range p.engine.Operator().Spaces(ctx) {
		if err != nil {
			return released, err
		}
		engine, err := p.engine.InSpace(uid)
		if err != nil {
			return released, err
		}
		there, err := engine.Pools(ctx)
		if err != nil {
			return released, err
		}
		if len(there) == 0 {
			continue
		}
		at, ok := poolKey(there[0].Name)
		if !ok {
			continue
		}
		c := p.collectors[uid]
		if c == nil {
			c = engine.Operator().NewCollector(leakGrace)
		}
		seen[uid] = c
		n, err := r.space(ctx, c, engine, at, types.UID(uid))
		released += n
		if err != nil {
			return released, err
		}
	}
	p.collectors = seen
	return released, nil
}

// round is one look at all addresses. Nothing is a candidate on the word of a cache: a replica whose watch has stopped would
// take the addresses of all claims that it never saw.
type round struct {
	*provider
	listed map[string]bool // UIDs of the claims as the API server lists them; nil before the first candidate
}

func (r *round) space(ctx context.Context, c *ipset.Collector, engine *ipset.Engine, at key, uid types.UID) (int, error) {
	poolThere, err := r.poolExists(ctx, at, uid)
	if err != nil {
		return 0, err
	}
	var failed error // of a question; an address about which there is no answer stays
	leaked, err := c.Collect(ctx, func(al alloc.Allocation) ipset.Liveness {
		l, err := r.liveness(ctx, at, poolThere, al)
		if err != nil {
			failed = err
			return ipset.Alive
		}
		return l
	})
	if err == nil {
		err = failed
	}
	for _, al := range leaked {
		if s, _ := r.inForce(at); s != nil && s.uid == uid {
			s.drop(al.Handle)
		}
	}
	if err == nil && !poolThere && !holdsAny(ctx, engine) {
		err = r.removeSpace(ctx, at, uid)
	}
	return len(leaked), err
}

// liveness asks the API server for each candidate: first a list, which is made once a round and only if there is a candidate,
// then for the claim and for its IPAddress, which must go before the address is free.
func (r *round) liveness(ctx context.Context, at key, poolThere bool, al alloc.Allocation) (ipset.Liveness, error) {
	k, ok := holderOf(al)
	if !ok {
		return ipset.Alive, nil
	}
	if !poolThere {
		return ipset.Leaked, nil
	}
	if c, err := cached[claim](r.caches[claims], k.namespace, k.name); err != nil || c != nil && c.holds(al, at) {
		return ipset.Alive, err
	}
	if r.listed == nil {
		listed := map[string]bool{}
		if err := list(ctx, r.provider, claims, "", func(c *claim) { listed[string(c.UID)] = true }); err != nil {
			return ipset.Alive, err
		}
		r.listed = listed
	}
	c, err := live[claim](ctx, r.provider, k)
	if err != nil || c != nil && c.holds(al, at) {
		return ipset.Alive, err
	}
	if r.listed[al.Handle] && c == nil { // it has gone since, or the answers contradict each other
		return ipset.Alive, nil
	}
	a, err := live[address](ctx, r.provider, key{addresses, k.namespace, k.name})
	if err != nil {
		return ipset.Alive, err
	}
	if a != nil && a.owner() == al.Handle {
		r.queue.Add(k) // dropStray deletes it
		return ipset.Alive, nil
	}
	return ipset.Leaked, nil
}

// holds reports whether an address of a pool is held for the claim as it is now.
func (c *claim) holds(al alloc.Allocation, at key) bool {
	of, ours := c.Spec.PoolRef.pool(c.Namespace)
	return ours && of == at && string(c.UID) == al.Handle
}

// holdsAny reports whether an address is held, also if it cannot tell.
func holdsAny(ctx context.Context, e *ipset.Engine) bool {
	for range e.Allocations(ctx, netip.Prefix{}) {
		return true
	}
	return false
}
