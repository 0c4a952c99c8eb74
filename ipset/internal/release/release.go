package release

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/keep"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// There are three ways to say what goes: addresses, a handle, a host. The calls differ in what they promise if a guard fails; the plan
// behind them, in plan.go, is one.

// ReleaseIPs carries out the call of that name. It reports the outcome of each address as it is known.
func (e *Releaser) ReleaseIPs(ctx context.Context, releases []alloc.Release, report func(netip.Addr, alloc.Outcome)) error {
	if len(releases) == 0 {
		return nil
	}
	if e.Import { // keepers are holders like any other for an import
		ctx = keep.In(ctx)
	}
	if err := checkReleases(ctx, releases); err != nil {
		return err
	}
	p := e.used.Swap(nil)
	if p == nil {
		p = new(releasePlan)
	}
	p.named = append(p.named[:0], releases...)
	for p.from = 0; p.from < len(releases); p.from += len(p.outcomes) {
		if err := e.Do(ctx, p); err != nil { // a batch may still be at it
			return cause.Wrap(ipalloc.Error{Op: "release", Addr: releases[p.from].Address, Err: err})
		}
		for i, o := range p.outcomes {
			report(releases[p.from+i].Address, o)
		}
	}
	p.forget()
	e.used.Store(p)
	return nil
}

// checkReleases refuses what is no address, and the guards of keepers.
func checkReleases(ctx context.Context, releases []alloc.Release) error {
	for _, r := range releases {
		if !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "" {
			return cause.Wrap(ipalloc.Error{Op: "release", Addr: r.Address, Err: cause.BadAddress})
		}
		if err := keep.Check(ctx, "Handle", r.Handle); err != nil {
			return err
		}
	}
	return nil
}

// ReleaseByHandle carries out the call of that name.
func (e *Releaser) ReleaseByHandle(ctx context.Context, handle string, of []alloc.Owner) ([]netip.Addr, error) {
	err := cmp.Or(cause.Name("handle", handle), keep.Check(ctx, "handle", handle))
	for _, o := range of {
		err = cmp.Or(err, o.Check())
	}
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release", Err: err})
	}
	p := e.used.Swap(nil)
	if p == nil {
		p = new(releasePlan)
	}
	p.places, err = e.IDs(ctx, p.places[:0], record.HandleRange(handle))
	if err != nil || len(p.places) != 1 {
		var released []netip.Addr
		if err == nil {
			released, err = e.releaseAt(ctx, p.places, releasePlan{handle: handle, of: of})
		}
		return released, cause.Of("release", handle, err)
	}
	p.handle, p.of = handle, append(p.of[:0], of...) // most handles hold one address, and the release of one fits
	if err := e.Do(ctx, p); err != nil {             // a batch may still be at it
		return nil, cause.Of("release", handle, err)
	}
	released := slices.Clone(p.released)
	p.forget()
	e.used.Store(p)
	return released, nil
}

// releaseAt carries out a plan for some places, a few at a time.
func (e *Releaser) releaseAt(ctx context.Context, places []netip.Prefix, what releasePlan) (released []netip.Addr, err error) {
	err = e.InSteps(places, func(part []netip.Prefix) (int, error) {
		p := releasePlan{host: what.host, handle: what.handle, of: what.of, places: part}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err // a batch may still be at it
		}
		released = append(released, p.released...)
		return p.done, nil
	})
	return released, err
}

// Release carries out the call of that name.
func (e *Releaser) Release(ctx context.Context, a alloc.ReleaseArgs) ([]netip.Addr, error) {
	var err error
	switch {
	case a.Handle != "":
		err = cmp.Or(cause.Name("handle", a.Handle), keep.Check(ctx, "handle", a.Handle))
	case len(a.Addresses)+len(a.Also) == 0:
		err = cause.Invalid("Handle", "neither a handle nor addresses nor records")
	}
	if err == nil {
		err = checkReleases(ctx, a.Addresses)
	}
	if o := (alloc.Owner{}); err == nil && a.Owner != o {
		if err = cause.As("Owner", a.Owner.Check()); err == nil && a.Handle == "" {
			err = cause.Invalid("Owner", "it restricts Handle, which is empty")
		}
	}
	if err == nil {
		err = e.CheckAlso(a.Also)
	}
	var released []netip.Addr
	if err == nil {
		released, err = e.ReleaseIf(ctx, a, nil)
	}
	if err != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "release", Handle: a.Handle, Err: err})
	}
	return released, nil
}

// ReleaseIf releases addresses, all or none, if some of their records are at the revisions that guards say. The arguments have been
// checked.
func (e *Releaser) ReleaseIf(ctx context.Context, a alloc.ReleaseArgs, guards []store.Op) ([]netip.Addr, error) {
	var of []alloc.Owner
	if a.Owner != (alloc.Owner{}) {
		of = []alloc.Owner{a.Owner}
	}
	p := releasePlan{of: of, named: a.Addresses, handle: a.Handle, whole: true, also: txn.Also{Ops: a.Also}, guards: guards}
	if err := e.Do(ctx, &p); err != nil {
		return nil, occ.Conflict("ipset", err)
	}
	return p.released, nil
}
