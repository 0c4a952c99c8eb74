//go:build transplant

// Package ipam implements go-ipam's Ipamer with prefixes.Allocator for its prefixes and
// ipset.Engine for their addresses. The code that chooses and stores is replaced; the value
// types, and the calls that only combine other calls, are go-ipam's.
package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// retryOnOptimisticLock repeats a call that another one was faster than.
func retryOnOptimisticLock(call func() error) error {
	for {
		if err := call(); !errors.Is(err, ipalloc.ErrConflict) {
			return err
		}
	}
}

// find returns a prefix, or the error of the calls that need it.
func (i *ipamer) find(ctx context.Context, cidr, namespace string) (held, error) {
	p, err := i.storage.(storage).find(ctx, cidr, namespace)
	if err != nil {
		err = fmt.Errorf("%w: unable to find prefix for cidr:%s error:%s", ErrNotFound, cidr, err)
	}
	return p, err
}

func (i *ipamer) acquireChildPrefixInternal(ctx context.Context, namespace, parentCidr, childCidr string, length int) (*Prefix, error) {
	parent, err := i.find(ctx, parentCidr, namespace)
	if err != nil {
		return nil, err
	}
	var at netip.Prefix
	if childCidr != "" {
		if at, err = netip.ParsePrefix(childCidr); err != nil {
			return nil, fmt.Errorf("unable to parse childCidr:%s %w", childCidr, err)
		}
		length = at.Bits()
	}
	if length <= parent.at.Bits() {
		return nil, fmt.Errorf("given length:%d must be greater than prefix length:%d", length, parent.at.Bits())
	}
	if parent.hasIPs() {
		return nil, fmt.Errorf("prefix %s has ips, acquire child prefix not possible", parent)
	}
	if !at.IsValid() {
		if at, err = parent.Fits(ctx, parent.at, length); errors.Is(err, ipalloc.ErrFull) {
			return nil, parent.lacks(parentCidr, length)
		} else if err != nil {
			return nil, err
		}
	}
	err = parent.create(ctx, at, parent.at, parent.use(store.Put, forChildren))
	switch taken := errors.Is(err, ipalloc.ErrOccupied) || errors.Is(err, ipalloc.ErrExists); {
	case taken && childCidr != "":
		return nil, fmt.Errorf("specific prefix %s is not available in prefix %s", childCidr, parentCidr)
	case taken:
		return nil, ipalloc.ErrConflict // since Fits looked
	case err != nil:
		return nil, err
	}
	return i.newPrefix(at.String(), parentCidr)
}

// lacks returns the error of a prefix without room for a child of that length.
func (p held) lacks(cidr string, length int) error {
	text, verb := fmt.Sprintf("no prefix found in %s with length:%d", cidr, length), "are"
	_, free := p.availablePrefixes()
	if len(free) == 0 {
		return errors.New(text)
	} else if len(free) == 1 {
		verb = "is"
	}
	return fmt.Errorf("%s, but %s %s available", text, strings.Join(free, ","), verb)
}

// next returns the address that the engine would give next, which may lie behind the prefix.
func (p held) next(ctx context.Context) (netip.Addr, error) {
	args := alloc.AssignArgs{Owner: alloc.HostOwner(owner), Num4: 1, Choose: alloc.From(p.at.Addr().Next())}
	if p.at.Addr().Is6() {
		args.Num4, args.Num6 = 0, 1
	}
	got, err := p.engine.DryRun().AutoAssign(ctx, args)
	if errors.Is(err, ipalloc.ErrFull) {
		return netip.Addr{}, nil
	} else if err != nil {
		return netip.Addr{}, err
	}
	return append(got.V4, got.V6...)[0].Address, nil
}

func (i *ipamer) acquireSpecificIPInternal(ctx context.Context, namespace, prefixCidr, specificIP string) (*IP, error) {
	p, err := i.find(ctx, prefixCidr, namespace)
	if err != nil {
		return nil, err
	}
	if p.isParent {
		return nil, fmt.Errorf("prefix %s has childprefixes, acquire ip not possible", p)
	}
	ip, bad := netip.ParseAddr(specificIP)
	if specificIP == "" {
		if ip, err = p.next(ctx); err != nil {
			return nil, err
		}
	}
	switch inside, taken := p.at.Contains(ip), p.ips[ip.String()]; {
	case specificIP == "" && (!inside || taken): // IPv4's broadcast address counts as taken
		return nil, fmt.Errorf("%w: no more ips in prefix: %s left, length of prefix.ips: %d", ErrNoIPAvailable, p, len(p.ips))
	case specificIP != "" && bad != nil:
		return nil, fmt.Errorf("given ip:%s in not valid", specificIP)
	case !inside:
		return nil, fmt.Errorf("given ip:%s is not in %s", specificIP, prefixCidr)
	case taken:
		return nil, fmt.Errorf("%w: given ip:%s is already allocated", ErrAlreadyAllocated, ip)
	}
	args := alloc.AssignIPArgs{Address: ip, Owner: alloc.HostOwner(owner), Also: []store.Op{p.use(store.Put, "")}}
	if _, err := p.engine.AssignIP(ctx, args); errors.Is(err, ipalloc.ErrOccupied) {
		return nil, ipalloc.ErrConflict // since find looked
	} else if err != nil {
		return nil, err
	}
	return &IP{IP: ip, ParentPrefix: p.Cidr}, nil
}

func (i *ipamer) releaseIPFromPrefixInternal(ctx context.Context, namespace, prefixCidr, ip string) error {
	p, err := i.find(ctx, prefixCidr, namespace)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(ip); err == nil && p.ips[ip] {
		got, err := p.engine.ReleaseIPs(ctx, alloc.Release{Address: a})
		if err != nil || got[0].Outcome == alloc.Released {
			return err
		}
	}
	return fmt.Errorf("%w: unable to release ip:%s because it is not allocated in prefix:%s", ErrNotFound, ip, prefixCidr)
}
