package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// fullRetry is how long a claim on a full pool waits if no release wakes it, such as one by another replica.
const fullRetry = 30 * time.Second

// owner is the owner of all blocks: claims have no hosts.
var owner = alloc.Owner{Kind: alloc.Virtual, Name: "capi"}

// holder is what the store keeps with the address of a claim. The handle is the UID: a claim that is deleted and created again
// is another one. Namespace and name say whom to ask for before an address is taken back.
func holder(k key, uid string) alloc.Claim {
	attributes, _ := alloc.NewAttributes(map[string]string{"namespace": k.namespace, "name": k.name}) // fails for 64 KiB only
	return alloc.Claim{Handle: uid, Attributes: attributes}
}

// holderOf returns the claim that an address is held for; ok is false if the address does not say.
func holderOf(al alloc.Allocation) (k key, ok bool) {
	m := al.Attributes.Map()
	k = key{claims, m["namespace"], m["name"]}
	return k, k.namespace != "" && k.name != ""
}

// serveClaim gives a claim its address, or takes it back. Each step may be repeated, by any replica: an address that the
// store gave to the claim's handle is found again. A claim that has everything costs no request.
func (p *provider) serveClaim(ctx context.Context, k key) error {
	c, err := cached[claim](p.caches[claims], k.namespace, k.name)
	if err != nil {
		return err
	} else if c == nil {
		p.forget(k)
		return p.dropStray(ctx, k)
	} else if p.behind(k, c) {
		return nil
	}
	at, ours := c.Spec.PoolRef.pool(k.namespace)
	if !ours {
		return nil
	}
	if paused, err := p.paused(&c.ObjectMeta, c.cluster()); err != nil || paused {
		return err
	}
	if c.DeletionTimestamp != nil {
		return p.release(ctx, k, c, at)
	}
	from, why := p.inForce(at)
	if from == nil {
		if c.ready(k.name) {
			return nil // what it has, it keeps; after a restart no pool is in force yet
		}
		return p.setClaimStatus(ctx, k, c, "PoolNotReady", why) // the pool has its claims looked at when it is in force
	}
	have, err := cached[address](p.caches[addresses], k.namespace, k.name)
	if err != nil {
		return err
	}
	mine := have != nil && have.owner() == string(c.UID) && have.Spec.PoolRef == c.Spec.PoolRef
	if mine && from.holds(string(c.UID), have.Spec.Address) && slices.Contains(c.Finalizers, finalizer) && c.ready(k.name) {
		return nil
	}
	obj, err := p.setFinalizer(ctx, k, &c.ObjectMeta, finalizer, true)
	if err != nil {
		return gone(err)
	}
	if obj != nil {
		if c, err = decode[claim](obj); err != nil {
			return err
		}
	}
	switch {
	case mine:
		err = p.adopt(ctx, k, string(c.UID), from, have.Spec.Address)
	case have != nil:
		return p.dropStray(ctx, k) // the claim is looked at again when it has gone
	default:
		err = p.provide(ctx, k, c, from, obj != nil && c.Status.AddressRef.Name == "")
	}
	if errors.Is(err, ipalloc.ErrFull) || errors.Is(err, ipalloc.ErrCooling) || errors.Is(err, ipalloc.ErrReserved) {
		from.wait(k)
		p.queue.AddAfter(k, fullRetry)
		return p.setClaimStatus(ctx, k, c, "PoolExhausted", "all addresses of the pool are in use")
	} else if err != nil {
		return errors.Join(err, p.setClaimStatus(ctx, k, c, "AllocationFailed", err.Error()))
	}
	err = p.setClaimStatus(ctx, k, c, "", "")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the claim changed or went while it was served
		return errors.Join(gone(err), p.dropStray(ctx, k))
	}
	return err
}

// gone returns nil for the error of a request whose object is gone: its deletion is looked at by itself.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// provide assigns an address to a claim and publishes it. The finalizer of the claim comes before its address, and the API server
// lets one process add it. That process is the first and does not ask the store what the claim has. An IPAddress that is there
// nevertheless counts: publish releases what was assigned beside it.
func (p *provider) provide(ctx context.Context, k key, c *claim, from *serving, first bool) error {
	args := ipset.AssignArgs{Owner: owner, Claim: holder(k, string(c.UID)), Pools: []string{from.name}, Existing: !first}
	if from.prefix.Addr().Is4() {
		args.Num4 = 1
	} else {
		args.Num6 = 1
	}
	got, err := from.engine.AutoAssign(ctx, args)
	if err != nil {
		return err
	}
	a := append(got.V4, got.V6...)[0].Address
	from.keep(string(c.UID), a)
	return p.publish(ctx, k, c, from, a)
}

// adopt makes the store hold what an IPAddress says, which may have been there before the store was: after a move of the
// cluster's objects, or with a new store. A holder that is gone gives way.
func (p *provider) adopt(ctx context.Context, k key, uid string, from *serving, text string) error {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return err
	}
	// The use is one that a pool allows also before it is in force.
	args := ipset.AssignIPArgs{Address: a, Owner: owner, Claim: holder(k, uid), Use: takeOverUse}
	_, err = from.engine.AssignIP(ctx, args)
	if errors.Is(err, ipalloc.ErrOccupied) {
		held, lookup := from.engine.Lookup(ctx, a)
		if lookup != nil {
			return errors.Join(err, lookup)
		}
		if of, ok := holderOf(held); !ok {
			return err
		} else if there, ask := p.exists(ctx, of, held.Handle); ask != nil || there {
			return errors.Join(err, ask)
		}
		if _, err := from.engine.ReleaseIPs(ctx, alloc.Release{Address: a, Guard: alloc.Guard{Handle: held.Handle, Seq: held.Seq}}); err != nil {
			return err
		}
		_, err = from.engine.AssignIP(ctx, args)
	}
	if err != nil {
		return err
	}
	from.keep(uid, a)
	// What was assigned before the IPAddress was seen has never been published.
	all, err := from.engine.IPsByHandle(ctx, uid)
	if err != nil {
		return err
	}
	for _, al := range all {
		if al.Address == a {
			continue
		}
		if _, err := from.engine.ReleaseIPs(ctx, alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: uid, Seq: al.Seq}}); err != nil {
			return err
		}
	}
	return nil
}

// exists asks the API server whether a claim of that name has that UID.
func (p *provider) exists(ctx context.Context, k key, uid string) (bool, error) {
	c, err := live[claim](ctx, p, k)
	return err == nil && c != nil && string(c.UID) == uid, err
}

// release takes back the address of a deleted claim: first the IPAddress goes, then the address is free for others, then the
// claim may go.
func (p *provider) release(ctx context.Context, k key, c *claim, at key) error {
	if !slices.Contains(c.Finalizers, finalizer) {
		if have, err := cached[address](p.caches[addresses], k.namespace, k.name); err != nil || have == nil {
			return err
		}
		return p.dropStray(ctx, k)
	}
	have, err := live[address](ctx, p, key{addresses, k.namespace, k.name})
	if err != nil {
		return err
	}
	if have != nil && have.owner() == string(c.UID) {
		if gone, err := p.remove(ctx, have); err != nil || !gone {
			return err // the claim is looked at again when the IPAddress has gone
		}
	}
	engine, err := p.spaceOf(ctx, at)
	if err != nil {
		return err
	}
	if engine != nil {
		if _, err := engine.ReleaseByHandle(ctx, string(c.UID)); err != nil {
			return err
		}
	}
	if from, _ := p.inForce(at); from != nil {
		from.drop(string(c.UID))
		for _, waiting := range from.woken() {
			p.queue.Add(waiting)
		}
	}
	_, err = p.setFinalizer(ctx, k, &c.ObjectMeta, finalizer, false)
	return gone(err)
}

// ready reports whether the status of a claim says that it has its address.
func (c *claim) ready(name string) bool {
	return c.Status.AddressRef.Name == name && meta.IsStatusConditionTrue(c.Status.Conditions, "Ready")
}

// setClaimStatus writes the status of a claim, if it is another one: a reference to its address, or the reason why it has none.
// Conditions of others stay.
func (p *provider) setClaimStatus(ctx context.Context, k key, c *claim, reason, message string) error {
	now := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: c.Generation}
	status := map[string]any{}
	if reason == "" {
		now.Status, now.Reason = metav1.ConditionTrue, "Ready"
		status["addressRef"] = map[string]any{"name": k.name}
	}
	conditions := slices.Clone(c.Status.Conditions)
	if !meta.SetStatusCondition(&conditions, now) && (reason != "" || c.Status.AddressRef.Name == k.name) {
		return nil
	}
	status["conditions"] = conditions
	_, err := p.patch(ctx, k, &c.ObjectMeta, map[string]any{"status": status}, "status")
	return err
}
