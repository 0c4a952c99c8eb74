package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// publish creates the IPAddress of a claim. One that is there already and is the claim's counts more than what the store gave:
// a machine may have it.
func (p *provider) publish(ctx context.Context, k key, c *claim, from *serving, a netip.Addr) error {
	yes, no := true, false
	want := &address{
		TypeMeta: metav1.TypeMeta{APIVersion: capi.String(), Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: k.namespace, Finalizers: []string{protection}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: capi.String(), Kind: claimKind, Name: k.name, UID: c.UID, Controller: &yes, BlockOwnerDeletion: &yes},
			{APIVersion: own.String(), Kind: c.Spec.PoolRef.Kind, Name: c.Spec.PoolRef.Name, UID: from.uid, Controller: &no, BlockOwnerDeletion: &yes}}},
		Spec: addressSpec{PoolRef: c.Spec.PoolRef, Address: a.String(), Prefix: int32(from.prefix.Bits()), Gateway: from.gateway},
	}
	if name := c.cluster(); name != "" {
		want.Labels = map[string]string{clusterLabel: name}
	}
	want.Spec.ClaimRef.Name = k.name
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return err
	}
	at := key{addresses, k.namespace, k.name}
	_, err = p.resource(at).Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := live[address](ctx, p, at)
	switch {
	case err != nil:
		return err
	case have == nil:
		return fmt.Errorf("the IPAddress of that name has just gone")
	case have.Spec.PoolRef != c.Spec.PoolRef:
		return fmt.Errorf("the IPAddress of that name is of %s %q", have.Spec.PoolRef.Kind, have.Spec.PoolRef.Name)
	case have.owner() != string(c.UID):
		if err := p.dropStray(ctx, k); err != nil {
			return err
		}
		return fmt.Errorf("the IPAddress of that name was of another claim or another time")
	case have.Spec.Address == a.String():
		return nil
	}
	return p.adopt(ctx, k, string(c.UID), from, have.Spec.Address)
}

// dropStray deletes an IPAddress whose claim is gone, is another one of the same name, or has been released, and gives back what
// its claim held. It asks the API server, not the cache. A replica that has not yet seen a deletion creates such an IPAddress.
//
// An IPAddress may be written by anyone who has that right in its namespace. Nothing is given back on its word: the address must
// be held by the UID of its controlling claim and under its own namespace and name, and that claim must be gone.
func (p *provider) dropStray(ctx context.Context, k key) error {
	have, err := live[address](ctx, p, key{addresses, k.namespace, k.name})
	if err != nil || have == nil {
		return err
	}
	at, ours := have.Spec.PoolRef.pool(k.namespace)
	if !ours {
		return nil
	}
	c, err := live[claim](ctx, p, k)
	if err != nil {
		return err
	}
	uid := have.owner()
	if c != nil && string(c.UID) == uid && (c.DeletionTimestamp == nil || slices.Contains(c.Finalizers, finalizer)) {
		return nil
	}
	if c != nil {
		if paused, err := p.paused(&c.ObjectMeta, c.cluster()); err != nil || paused {
			return err
		}
	}
	if gone, err := p.remove(ctx, have); err != nil || !gone || uid == "" {
		return err
	}
	engine, err := p.spaceOf(ctx, at)
	if err != nil || engine == nil {
		return err
	}
	held, err := engine.IPsByHandle(ctx, uid)
	if err != nil || len(held) == 0 {
		return err
	}
	var releases []alloc.Release
	for _, al := range held {
		if of, ok := holderOf(al); !ok || of != k {
			p.log.Warn("an IPAddress named the claim of another as its owner", "name", k.String(), "uid", uid)
			return nil
		}
		releases = append(releases, alloc.Release{Address: al.Address, Guard: alloc.Guard{Handle: uid, Seq: al.Seq}})
	}
	if _, err = engine.ReleaseIPs(ctx, releases...); err != nil {
		return err
	}
	if from, _ := p.inForce(at); from != nil {
		from.drop(uid)
		for _, waiting := range from.woken() {
			p.queue.Add(waiting)
		}
	}
	return nil
}

// remove deletes an IPAddress and reports whether it has gone: a finalizer of another may keep it.
func (p *provider) remove(ctx context.Context, a *address) (bool, error) {
	k := key{addresses, a.Namespace, a.Name}
	rest := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == protection })
	if _, err := p.setFinalizer(ctx, k, &a.ObjectMeta, protection, false); err != nil && gone(err) != nil {
		return false, err
	}
	err := p.resource(k).Delete(ctx, k.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
	return len(rest) == 0, gone(err)
}
