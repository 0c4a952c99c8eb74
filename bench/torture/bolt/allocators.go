package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// allocator is what a worker works on: it gives something to a handle, and takes all of that back.
type allocator interface {
	assign(ctx context.Context, handle string) ([]string, error)
	release(ctx context.Context, handle string) error
}

// pods have addresses of an engine.
type pods struct{ e *ipset.Engine }

func (p pods) assign(ctx context.Context, handle string) (out []string, err error) {
	got, err := p.e.AutoAssign(ctx, ipset.AssignArgs{
		Owner: alloc.HostOwner(fmt.Sprint("host", rand.IntN(hosts))), Num4: 1 + rand.IntN(3), Num6: rand.IntN(2), Use: alloc.Workload,
		Claim: alloc.Claim{Handle: handle},
	})
	for _, a := range append(got.V4, got.V6...) {
		out = append(out, a.Address.String())
	}
	return out, err
}

func (p pods) release(ctx context.Context, handle string) error {
	_, err := p.e.ReleaseByHandle(ctx, handle)
	return err
}

// trees have prefixes of an allocator.
type trees struct{ a *prefixes.Allocator }

// treePrefix begins the handles of those.
const treePrefix = "tree"

// treePool is what they come from.
var treePool = prefixes.Pool{Prefix: netip.MustParsePrefix("fd00::/36"), Sizes: prefixes.Sizes{Shortest: 40, Longest: 64}}

func (p trees) assign(ctx context.Context, handle string) ([]string, error) {
	h, err := p.a.Allocate(ctx, prefixes.Request{Pool: treePool.Prefix, Owner: handle, Bits: 48 + rand.IntN(17)})
	return []string{h.Prefix.String()}, err
}

func (p trees) release(ctx context.Context, handle string) error {
	_, err := p.a.ReleaseByOwner(ctx, handle)
	return err
}

// cidrs are prefixes of nodes from a set with a journal, which knows no handles.
type cidrs struct {
	j    *journal.Journal[*cidrset.Set]
	mine map[string]netip.Prefix
}

// nodePrefix begins the handles of those.
const nodePrefix = "node"

func (c cidrs) assign(ctx context.Context, handle string) ([]string, error) {
	p, err := journal.Do(ctx, c.j, (*cidrset.Set).AllocateNext)
	c.mine[handle] = p
	return []string{p.String()}, err
}

func (c cidrs) release(ctx context.Context, handle string) error {
	p := c.mine[handle]
	delete(c.mine, handle)
	return c.j.Do(ctx, func(s *cidrset.Set) error {
		if n, err := s.Release(p); n != 1 || err != nil {
			return fmt.Errorf("%v: %d freed, %w", p, n, err)
		}
		return nil
	})
}

// grants are addresses and ports of services from a registry with a journal.
type grants struct {
	j *journal.Journal[*servicealloc.Registry]
}

func (g grants) assign(ctx context.Context, handle string) ([]string, error) {
	got, err := journal.Do(ctx, g.j, func(r *servicealloc.Registry) (servicealloc.Grant, error) {
		return r.Allocate(handle, servicealloc.Request{Addrs: []netip.Addr{netip.IPv4Unspecified()}, Ports: []servicealloc.Port{{Protocol: servicealloc.TCP}}})
	})
	return parts(got), err
}

// parts names what is in a grant.
func parts(g servicealloc.Grant) (out []string) {
	for _, a := range g.Addrs {
		out = append(out, a.String())
	}
	for _, p := range g.Ports {
		out = append(out, fmt.Sprint("port-", p.Number))
	}
	return out
}

func (g grants) release(ctx context.Context, handle string) error {
	return g.j.Do(ctx, func(r *servicealloc.Registry) error {
		_, err := r.Release(handle, 0)
		return err
	})
}

// journals opens those of a file, making them if they are new.
func journals(s *boltstore.Store) (*journal.Journal[*cidrset.Set], *journal.Journal[*servicealloc.Registry], error) {
	ctx := context.Background()
	nodes, err := journal.OpenSet(ctx, s, "nodes", netip.MustParsePrefix("10.200.0.0/13"), 24)
	if err != nil {
		return nil, nil, err
	}
	services, err := journal.OpenRegistry(ctx, s, "services", servicealloc.PortRange{First: 30000, Last: 32767})
	if err != nil {
		return nil, nil, err
	}
	return nodes, services, services.Do(ctx, func(r *servicealloc.Registry) error {
		if len(r.Ranges()) > 0 {
			return nil
		}
		return r.SetRange(servicealloc.RangeInfo{Name: "services", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/20")}})
	})
}

// held returns who has what, as a file says; "" for what has no handle there.
func held(ctx context.Context, e *ipset.Engine, tree *prefixes.Allocator, nodes *journal.Journal[*cidrset.Set], services *journal.Journal[*servicealloc.Registry]) (map[string]string, error) {
	have := make(map[string]string)
	var err error
	add := func(what, handle string) {
		if other, twice := have[what]; twice {
			err = errors.Join(err, fmt.Errorf("%s is held twice: by %q and %q", what, other, handle))
		}
		have[what] = handle
	}
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		add(al.Address.String(), al.Handle)
	}
	for h, err := range tree.All(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		add(h.Prefix.String(), h.Owner)
	}
	if rep, err := tree.Check(ctx); err != nil || len(rep.Problems) > 0 {
		return nil, fmt.Errorf("check of the prefixes: %v, %w", rep, err)
	}
	nodes.View(func(s *cidrset.Set) {
		err = errors.Join(err, s.Check())
		for p := range s.All() {
			add(p.String(), "")
		}
	})
	services.View(func(r *servicealloc.Registry) {
		err = errors.Join(err, r.Check())
		for g := range r.All() {
			for _, part := range parts(g) {
				add(part, g.Owner)
			}
		}
	})
	return have, err
}
