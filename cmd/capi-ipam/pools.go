package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// Every pool has a space of the store, named by its UID: pools of one subnet do not meet there, and a pool that is created again
// begins anew. ranges.go keeps the ranges of pools of one namespace apart.
//
// A pool in the store is closed first: its one use is takeOverUse, which no automatic assignment has. It is opened when the
// addresses of all IPAddresses of the pool are held. So a new store, and objects that were moved from elsewhere, give nothing
// out twice, and every replica may do all of it.
const (
	takeOverUse = alloc.Tunnel
	openUses    = alloc.Tunnel | alloc.Workload
)

// serving is a pool in force.
type serving struct {
	engine     *ipset.Engine
	uid        types.UID
	generation int64
	name       string // in the store
	prefix     netip.Prefix
	gateway    string
	total      int64

	mu      sync.Mutex
	held    map[string]netip.Addr // by UID of the claim, as far as this process knows
	waiting map[key]bool          // claims for which the pool was full
}

// holds reports whether the store is known to hold an address for a claim.
func (s *serving) holds(uid, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.held[uid]
	return ok && a.String() == text
}

func (s *serving) keep(uid string, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[uid] = a
}

func (s *serving) drop(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, uid)
}

func (s *serving) wait(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[k] = true
}

// woken returns the claims for which the pool was full, which are then no longer remembered.
func (s *serving) woken() (all []key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.waiting {
		all = append(all, k)
	}
	clear(s.waiting)
	return all
}

// inForce returns a pool that gives out addresses, or why it does not.
func (p *provider) inForce(k key) (*serving, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.serving[k]; s != nil {
		return s, ""
	}
	return nil, fmt.Sprintf("%s %q does not exist or is not ready; its status says why", k.resource.Resource, k.String())
}

// setServing puts a pool in force, or out of force if s is nil.
func (p *provider) setServing(k key, s *serving) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving[k] = s; s == nil {
		delete(p.serving, k)
	}
}

// spaceOf returns the engine of the space of a pool, nil if the pool is gone: collect then returns what it held.
func (p *provider) spaceOf(ctx context.Context, k key) (*ipset.Engine, error) {
	o, err := cached[pool](p.caches[k.resource], k.namespace, k.name)
	if err == nil && o == nil {
		o, err = live[pool](ctx, p, k)
	}
	if err != nil || o == nil {
		return nil, err
	}
	return p.engine.InSpace(string(o.UID))
}

// servePool makes the pool in the store what the object says. A deleted object goes when its last address is back.
func (p *provider) servePool(ctx context.Context, k key) error {
	o, err := cached[pool](p.caches[k.resource], k.namespace, k.name)
	if err != nil {
		return err
	}
	if o == nil {
		p.setServing(k, nil)
		p.enqueueAll(byPool, k.String()) // they say so
		return nil
	}
	if paused, err := p.paused(&o.ObjectMeta, ""); err != nil || paused {
		p.setServing(k, nil)
		return err
	}
	if o.DeletionTimestamp != nil {
		p.setServing(k, nil)
		return p.removePool(ctx, k, o)
	}
	before, _ := p.inForce(k)
	if before != nil && before.uid == o.UID && before.generation == o.Generation {
		return p.setPoolStatus(ctx, k, o, before, nil)
	}
	obj, err := p.setFinalizer(ctx, k, &o.ObjectMeta, finalizer, true)
	if err != nil {
		return gone(err)
	}
	if obj != nil {
		if o, err = decode[pool](obj); err != nil {
			return err
		}
	}
	now, err := p.open(ctx, k, o)
	if err != nil {
		if before != nil && before.uid != o.UID {
			p.setServing(k, nil)
		}
		return errors.Join(err, p.setPoolStatus(ctx, k, o, nil, err))
	}
	if before != nil && before.uid == o.UID {
		now.waiting = before.waiting
	}
	p.setServing(k, now)
	p.enqueueAll(byPool, k.String())
	return p.setPoolStatus(ctx, k, o, now, nil)
}

// open brings a pool into force in the store.
func (p *provider) open(ctx context.Context, k key, o *pool) (*serving, error) {
	prefix, set, err := o.parse()
	if err != nil {
		return nil, err
	}
	if err := p.admit(ctx, k, o, set); err != nil {
		return nil, err
	}
	engine, err := p.engine.InSpace(string(o.UID))
	if err != nil {
		return nil, err
	}
	s := &serving{engine: engine, uid: o.UID, generation: o.Generation, name: k.String(), prefix: prefix, gateway: o.Spec.Gateway,
		total: size(set), held: map[string]netip.Addr{}, waiting: map[key]bool{}}
	want := ipset.Pool{Name: s.name, Prefix: prefix, Ranges: set.Ranges(), Manual: true, Uses: takeOverUse}
	there, err := engine.Pools(ctx)
	switch {
	case err != nil:
	case len(there) == 0:
		err = engine.AddPool(ctx, want)
	default:
		want.Uses = there[0].Uses
		err = engine.UpdatePool(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	if want.Uses != openUses {
		if err := p.takeOver(ctx, k, s); err != nil {
			return nil, err
		}
		want.Uses = openUses
		if err := engine.UpdatePool(ctx, want); err != nil {
			return nil, err
		}
	}
	for al, err := range engine.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		s.keep(al.Handle, al.Address)
	}
	return s, nil
}

// takeOver has the store hold the addresses of all IPAddresses of a pool whose claims exist. It asks the API server, not the
// caches.
func (p *provider) takeOver(ctx context.Context, k key, s *serving) error {
	uids := map[key]string{}
	if err := list(ctx, p, claims, k.namespace, func(c *claim) {
		if at, ok := c.Spec.PoolRef.pool(c.Namespace); ok && at == k {
			uids[key{claims, c.Namespace, c.Name}] = string(c.UID)
		}
	}); err != nil {
		return err
	}
	var there []*address
	if err := list(ctx, p, addresses, k.namespace, func(a *address) {
		if at, ok := a.Spec.PoolRef.pool(a.Namespace); ok && at == k {
			there = append(there, a)
		}
	}); err != nil {
		return err
	}
	slices.SortStableFunc(there, func(a, b *address) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, a := range there {
		of := key{claims, a.Namespace, a.Name}
		uid, ok := uids[of]
		if !ok {
			continue // dropStray deletes it
		}
		err := p.adopt(ctx, of, uid, s, a.Spec.Address)
		if errors.Is(err, ipalloc.ErrOccupied) || errors.Is(err, ipalloc.ErrNotFound) || errors.Is(err, ipalloc.ErrInvalid) {
			p.log.Error("an IPAddress cannot be taken over", "name", of.String(), "address", a.Spec.Address, "err", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// removePool removes a deleted pool from the store when neither the store nor an IPAddress has an address of it.
func (p *provider) removePool(ctx context.Context, k key, o *pool) error {
	if !slices.Contains(o.Finalizers, finalizer) {
		return nil
	}
	engine, err := p.engine.InSpace(string(o.UID))
	if err != nil {
		return err
	}
	held, err := engine.Operator().Drain(ctx, k.String())
	if err != nil && !errors.Is(err, ipalloc.ErrNotFound) {
		return err
	}
	used := len(held)
	if used == 0 {
		if err := list(ctx, p, addresses, k.namespace, func(a *address) {
			if at, ok := a.Spec.PoolRef.pool(a.Namespace); ok && at == k {
				used++
			}
		}); err != nil {
			return err
		}
	}
	if used > 0 {
		p.queue.AddAfter(k, retryMax)
		return p.setPoolStatus(ctx, k, o, nil, fmt.Errorf("the pool is being deleted; %d addresses are in use", used))
	}
	if err := p.removeSpace(ctx, k, o.UID); err != nil {
		return err
	}
	_, err = p.setFinalizer(ctx, k, &o.ObjectMeta, finalizer, false)
	return gone(err)
}

// removeSpace removes what the store has of a pool that holds nothing.
func (p *provider) removeSpace(ctx context.Context, k key, uid types.UID) error {
	engine, err := p.engine.InSpace(string(uid))
	if err != nil {
		return err
	}
	if err := engine.RemovePool(ctx, k.String()); err != nil && !errors.Is(err, ipalloc.ErrNotFound) {
		return err
	}
	if err := p.engine.Operator().RemoveSpace(ctx, string(uid)); err != nil {
		return err
	}
	return p.withdraw(ctx, k, uid)
}

// setPoolStatus writes the counts of a pool and whether it is in force, if they changed.
func (p *provider) setPoolStatus(ctx context.Context, k key, o *pool, s *serving, why error) error {
	now := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "InForce", ObservedGeneration: o.Generation}
	status := poolStatus{Addresses: o.Status.Addresses, Conditions: slices.Clone(o.Status.Conditions)}
	switch {
	case errors.Is(why, errOverlap):
		now.Status, now.Reason, now.Message = metav1.ConditionFalse, "Overlaps", why.Error()
	case o.DeletionTimestamp != nil:
		now.Status, now.Reason, now.Message = metav1.ConditionFalse, "Terminating", why.Error()
	case why != nil:
		now.Status, now.Reason, now.Message = metav1.ConditionFalse, "NotReady", why.Error()
	default:
		used, err := p.caches[addresses].IndexKeys(byPool, k.String())
		if err != nil {
			return err
		}
		n := int64(len(used))
		status.Addresses = counts{Total: s.total, Used: n, Free: max(s.total-n, 0)}
	}
	if !meta.SetStatusCondition(&status.Conditions, now) && status.Addresses == o.Status.Addresses {
		return nil
	}
	_, err := p.patch(ctx, k, &o.ObjectMeta, map[string]any{"status": status}, "status")
	return gone(err)
}
