package prefixes

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

const pkg = "prefixes"

// fail returns an error that a call completes.
func fail(sentinel error, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Reason: reason, Err: sentinel}
}

// explain completes an error with the call that it ends.
func explain(err error, call ipalloc.Error) error {
	if err == nil {
		return nil
	}
	in, ok := err.(*ipalloc.Error)
	if !ok || in.Package != pkg {
		e := call
		e.Package, e.Err = pkg, err
		return &e
	}
	e := *in // the callers of one commit may share it
	e.Op, e.Owner = call.Op, call.Owner
	if !errors.Is(e.Err, ipalloc.ErrCorrupt) && !errors.Is(e.Err, ipalloc.ErrMismatch) { // they name the prefix of the record
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

// check returns why a pool cannot hand out prefixes of these lengths, "" if it can.
func (s Sizes) check(pool netip.Prefix) string {
	switch {
	case s.Shortest > s.Longest:
		return fmt.Sprintf("shortest length /%d is longer than /%d", s.Shortest, s.Longest)
	case s.Shortest <= pool.Bits():
		return fmt.Sprintf("/%d is not longer than %s", s.Shortest, pool)
	case s.Longest > pool.Addr().BitLen():
		return fmt.Sprintf("/%d is longer than an address", s.Longest)
	case s.Longest-pool.Bits() > maxRelative:
		return fmt.Sprintf("/%d is more than %d bits longer than %s", s.Longest, maxRelative, pool)
	}
	return ""
}

// check returns the error for a request that no state of the store could grant.
func (r *Request) check(bits int) error {
	if err := checkPrefix("Pool", r.Pool); err != nil {
		return err
	}
	if err := checkOwner("Owner", r.Owner); err != nil {
		return err
	}
	if bits <= r.Pool.Bits() || bits > r.Pool.Addr().BitLen() {
		return invalid("Bits", fmt.Sprintf("not from %d to %d", r.Pool.Bits()+1, r.Pool.Addr().BitLen()))
	}
	if r.Children != (Sizes{}) {
		if reason := r.Children.check(netip.PrefixFrom(r.Pool.Addr(), bits)); reason != "" {
			return invalid("Children", reason)
		}
	}
	return checkAttributes(r.Attributes)
}
