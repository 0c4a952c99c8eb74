package prefixes

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
)

const pkg = "prefixes"

// fail returns an error that the call completes later.
func fail(sentinel error, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Reason: reason, Err: sentinel}
}

// explain adds the failed call to an error.
func explain(err error, call ipalloc.Error) error {
	if err == nil {
		return nil
	}
	err = occ.Conflict(pkg, err)
	in, ok := err.(*ipalloc.Error)
	if !ok || in.Package != pkg {
		e := call
		e.Package, e.Err = pkg, err
		return &e
	}
	e := *in // the callers of one commit may share it
	e.Op, e.Owner = call.Op, call.Owner
	if !errors.Is(e.Err, ipalloc.ErrCorrupt) && !errors.Is(e.Err, ipalloc.ErrVersion) { // they name the prefix of the record
		e.Prefix, e.Pool, e.Bits = call.Prefix, call.Pool, call.Bits
	}
	return &e
}

// invalid returns the error for an impossible argument.
func invalid(field, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Field: field, Reason: reason, Err: ipalloc.ErrInvalid}
}

func checkPrefix(field string, p netip.Prefix) error {
	if reason := addr.Check(p); reason != nil {
		return invalid(field, reason.Error())
	}
	return nil
}

func checkOwner(field, owner string) error {
	switch {
	case owner == "":
		return invalid(field, "empty")
	case len(owner) > MaxOwner:
		return invalid(field, fmt.Sprintf("longer than %d bytes", MaxOwner))
	case strings.Contains(owner, "\x00"):
		return invalid(field, "has a NUL byte")
	}
	return nil
}

func checkAttributes(attributes string) error {
	if len(attributes) > MaxAttributes {
		return invalid("Attributes", fmt.Sprintf("longer than %d bytes", MaxAttributes))
	}
	return nil
}

// check returns why a pool cannot allocate prefixes of these lengths, "" if it can. A
// root pool may allocate itself.
func (s Sizes) check(pool netip.Prefix, root bool) string {
	switch {
	case s.Shortest > s.Longest:
		return fmt.Sprintf("shortest length /%d is longer than /%d", s.Shortest, s.Longest)
	case s.Shortest < pool.Bits(), s.Shortest == pool.Bits() && !root:
		return fmt.Sprintf("/%d is not longer than %s", s.Shortest, pool)
	case s.Longest > pool.Addr().BitLen():
		return fmt.Sprintf("/%d is longer than an address", s.Longest)
	}
	return ""
}

// checkOf returns the error for lengths that a holding cannot allocate.
func (s Sizes) checkOf(at netip.Prefix) error {
	if s != (Sizes{}) {
		if reason := s.check(at, false); reason != "" {
			return invalid("Children", reason)
		}
	}
	return nil
}

// checkBits returns the error for a length that no prefix in the pool has.
func checkBits(field string, pool netip.Prefix, bits int) error {
	if bits < pool.Bits() || bits > pool.Addr().BitLen() {
		return invalid(field, fmt.Sprintf("/%d is not from /%d to /%d", bits, pool.Bits(), pool.Addr().BitLen()))
	}
	return nil
}

// check returns the error for a request that is impossible in any state of the store.
func (r *Request) check(field string, bits int) error {
	if err := checkPrefix("Pool", r.Pool); err != nil {
		return err
	}
	if err := checkOwner("Owner", r.Owner); err != nil {
		return err
	}
	if err := checkBits(field, r.Pool, bits); err != nil {
		return err
	}
	if err := r.Children.checkOf(netip.PrefixFrom(r.Pool.Addr(), bits)); err != nil {
		return err
	}
	if r.Children != (Sizes{}) && bits == r.Pool.Bits() {
		return invalid("Children", "the prefix is the whole pool")
	}
	return r.checkLease()
}
