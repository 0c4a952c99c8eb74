package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
)

// owner is whose blocks all addresses come from: claims have no hosts.
var owner = ipset.Owner{Kind: ipset.Virtual, Name: "capi"}

// handle is under what the address of a claim is held. A claim that is deleted and created again is another.
func handle(c *claim) string { return string(c.UID) }

// serveClaim gives a claim its address, or takes it back. Each step may be repeated, by any replica: an address that the
// store gave to the claim's handle is found again.
func (p *provider) serveClaim(ctx context.Context, k key) error {
	obj, there, err := p.claims.GetByKey(k.namespace + "/" + k.name)
	if err != nil {
		return err
	}
	if !there {
		_, err := p.dropStray(ctx, k)
		return err
	}
	c, err := decode[claim](obj)
	if err != nil {
		return err
	}
	ref := c.Spec.PoolRef
	switch {
	case ref.APIGroup != pools.Group || ref.Kind != poolKind:
		return nil // another provider's
	case c.DeletionTimestamp != nil:
		return p.release(ctx, k, c)
	}
	if err := p.setFinalizer(ctx, k, &c.ObjectMeta, true); err != nil {
		return err
	}
	obj, there, err = p.pools.GetByKey(k.namespace + "/" + ref.Name)
	if err != nil {
		return err
	}
	if !there {
		return errors.Join(p.setStatus(ctx, k, c, "PoolNotReady", "there is no such pool"), fmt.Errorf("no pool %q", ref.Name))
	}
	from, err := decode[pool](obj)
	if err != nil {
		return err
	}
	a, err := p.assign(ctx, k, c, from)
	if err != nil {
		reason := "AllocationFailed"
		switch {
		case errors.Is(err, ipalloc.ErrFull):
			reason = "PoolExhausted"
		case errors.Is(err, ipalloc.ErrNotFound):
			reason = "PoolNotReady"
		}
		return errors.Join(err, p.setStatus(ctx, k, c, reason, err.Error()))
	}
	if there, err = p.publish(ctx, k, c, from, a); err != nil || !there {
		return err
	}
	err = p.setStatus(ctx, k, c, "", "")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the claim went while it was served
		_, err = p.engine.ReleaseByHandle(ctx, handle(c))
	}
	return err
}

// assign returns the address of a claim.
func (p *provider) assign(ctx context.Context, k key, c *claim, from *pool) (netip.Addr, error) {
	prefix, _, err := from.parse()
	if err != nil {
		return netip.Addr{}, err
	}
	args := ipset.AssignArgs{Owner: owner, Claim: ipset.Claim{Handle: handle(c)}, Pools: []string{from.key()}, Existing: true}
	if prefix.Addr().Is4() {
		args.Num4 = 1
	} else {
		args.Num6 = 1
	}
	got, err := p.engine.AutoAssign(ctx, args)
	if err != nil {
		return netip.Addr{}, err
	}
	return append(got.V4, got.V6...)[0].Address, nil
}

// publish creates the IPAddress of a claim, if it is not there. It reports false if the claim is gone or on its way out: what
// the cache shows may be older than what another replica has done.
func (p *provider) publish(ctx context.Context, k key, c *claim, from *pool, a netip.Addr) (bool, error) {
	controls := true
	want := &address{
		TypeMeta: metav1.TypeMeta{APIVersion: capi.String(), Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: k.namespace, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: capi.String(), Kind: "IPAddressClaim", Name: k.name, UID: c.UID, Controller: &controls, BlockOwnerDeletion: &controls}}},
		Spec: addressSpec{PoolRef: c.Spec.PoolRef, Address: a.String(), Prefix: int32(from.Spec.Prefix), Gateway: from.Spec.Gateway},
	}
	want.Spec.ClaimRef.Name = k.name
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return false, err
	}
	resource := p.client.Resource(addresses).Namespace(k.namespace)
	_, err = resource.Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
	if err == nil {
		stray, err := p.dropStray(ctx, k)
		return !stray, err
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, err
	}
	obj, err := resource.Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	have, err := decode[address](obj)
	if err != nil || ownedBy(have, c) && have.Spec.Address == a.String() {
		return err == nil, err
	}
	if stray, err := p.dropStray(ctx, k); err != nil || stray && ownedBy(have, c) {
		return false, err
	}
	return false, fmt.Errorf("the IPAddress of that name has %s, of another claim or another time; %s was assigned", have.Spec.Address, a)
}

// dropStray deletes an IPAddress whose claim is gone, is another one of the same name, or is being deleted, and releases what
// that claim held. It asks the API server, not the cache. A replica that has not yet seen a deletion creates such an
// IPAddress; it asks after it has created one, so that a claim deleted later finds it there.
func (p *provider) dropStray(ctx context.Context, k key) (bool, error) {
	resource := p.client.Resource(addresses).Namespace(k.namespace)
	obj, err := resource.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	have, err := decode[address](obj)
	if err != nil || have.Spec.PoolRef.APIGroup != pools.Group || have.Spec.PoolRef.Kind != poolKind {
		return false, err
	}
	obj, err = p.client.Resource(claims).Namespace(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err == nil {
		c, err := decode[claim](obj)
		if err != nil || c.DeletionTimestamp == nil && ownedBy(have, c) {
			return false, err
		}
	} else if !apierrors.IsNotFound(err) {
		return false, err
	}
	err = resource.Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	for _, o := range have.OwnerReferences {
		if _, err := p.engine.ReleaseByHandle(ctx, string(o.UID)); err != nil {
			return true, err
		}
	}
	return true, nil
}

func ownedBy(a *address, c *claim) bool {
	return slices.ContainsFunc(a.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == c.UID })
}

// release takes back the address of a deleted claim: first the IPAddress goes, then the address is free for others, then the
// claim may go.
func (p *provider) release(ctx context.Context, k key, c *claim) error {
	if !slices.Contains(c.Finalizers, finalizer) {
		return nil
	}
	resource := p.client.Resource(addresses).Namespace(k.namespace)
	obj, err := resource.Get(ctx, k.name, metav1.GetOptions{})
	if err == nil {
		have, err := decode[address](obj)
		if err != nil {
			return err
		}
		if ownedBy(have, c) {
			err := resource.Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := p.engine.ReleaseByHandle(ctx, handle(c)); err != nil {
		return err
	}
	err = p.setFinalizer(ctx, k, &c.ObjectMeta, false)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setStatus writes the status of a claim, if it is another one: a reference to its address, or the reason why it has none.
func (p *provider) setStatus(ctx context.Context, k key, c *claim, reason, message string) error {
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: c.Generation}
	status := map[string]any{}
	if reason == "" {
		status["addressRef"] = map[string]any{"name": k.name}
	} else {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, message
	}
	for _, have := range c.Status.Conditions {
		if have.Type == ready.Type && have.Status == ready.Status && have.Reason == ready.Reason && (reason != "" || c.Status.AddressRef.Name == k.name) {
			return nil
		}
	}
	ready.LastTransitionTime = metav1.NewTime(time.Now())
	status["conditions"] = []metav1.Condition{ready}
	return p.patch(ctx, k, map[string]any{"metadata": map[string]any{"uid": c.UID}, "status": status}, "status")
}
