package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
)

// key returns the name of the pool in the store.
func (o *pool) key() string { return o.Namespace + "/" + o.Name }

// servePool makes the pool in the store what the object says. A deleted object goes when its last address is back.
func (p *provider) servePool(ctx context.Context, k key) error {
	obj, there, err := p.pools.GetByKey(k.namespace + "/" + k.name)
	if err != nil || !there {
		return err
	}
	o, err := decode[pool](obj)
	if err != nil {
		return err
	}
	if o.DeletionTimestamp != nil {
		return p.removePool(ctx, k, o)
	}
	prefix, ranges, err := o.parse()
	if err != nil {
		return err
	}
	if err := p.setFinalizer(ctx, k, &o.ObjectMeta, true); err != nil {
		return err
	}
	want := ipset.Pool{Name: o.key(), Prefix: prefix, Ranges: ranges, Subnet: true, Manual: true}
	err = p.engine.AddPool(ctx, want)
	if errors.Is(err, ipalloc.ErrExists) {
		if update := p.engine.UpdatePool(ctx, want); !errors.Is(update, ipalloc.ErrNotFound) {
			return update
		} // else its prefix overlaps that of another pool, as err says
	}
	return err
}

func (p *provider) removePool(ctx context.Context, k key, o *pool) error {
	if !slices.Contains(o.Finalizers, finalizer) {
		return nil
	}
	held, err := p.engine.Drain(ctx, o.key())
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("%d addresses are in use", len(held))
	}
	if err == nil {
		err = p.engine.RemovePool(ctx, o.key())
	}
	if err != nil && !errors.Is(err, ipalloc.ErrNotFound) {
		return err
	}
	err = p.setFinalizer(ctx, k, &o.ObjectMeta, false)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// parse returns the subnet of the pool, and which addresses of it are given out: not the gateway.
func (o *pool) parse() (subnet netip.Prefix, ranges []netipx.IPRange, err error) {
	var b netipx.IPSetBuilder
	for _, text := range o.Spec.Addresses {
		switch {
		case strings.Contains(text, "-"):
			r, err := netipx.ParseIPRange(text)
			if err != nil {
				return subnet, nil, err
			}
			b.AddRange(r)
		case strings.Contains(text, "/"):
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return subnet, nil, err
			}
			b.AddPrefix(p)
		default:
			a, err := netip.ParseAddr(text)
			if err != nil {
				return subnet, nil, err
			}
			b.Add(a)
		}
	}
	if o.Spec.Gateway != "" {
		gateway, err := netip.ParseAddr(o.Spec.Gateway)
		if err != nil {
			return subnet, nil, err
		}
		b.Remove(gateway)
	}
	set, err := b.IPSet()
	if err != nil {
		return subnet, nil, err
	}
	if ranges = set.Ranges(); len(ranges) == 0 {
		return subnet, nil, fmt.Errorf("pool %s has no addresses", o.key())
	}
	subnet, err = ranges[0].From().Prefix(o.Spec.Prefix)
	if err == nil && !subnet.Contains(ranges[len(ranges)-1].To()) {
		err = fmt.Errorf("pool %s: %s is not in %s", o.key(), ranges[len(ranges)-1], subnet)
	}
	return subnet, ranges, err
}
