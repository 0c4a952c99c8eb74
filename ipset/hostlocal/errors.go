package hostlocal

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc"
)

// SetError is the error inside an [*ipalloc.Error] of this package that concerns range sets or
// several addresses. Numbers that do not apply are -1.
type SetError struct {
	Set   int // the number of the range set
	Range int // the number of the range in the set
	Other int // the number of the set, or of the range in the set, that it overlaps
	// Addrs are the requested addresses that no set took (ErrOutOfRange), or the
	// addresses that the attachment holds (ErrMismatch).
	Addrs []netip.Addr
	Err   error // a sentinel of package ipalloc
}

func (e *SetError) Error() string { return e.Err.Error() }

// Unwrap returns the sentinel.
func (e *SetError) Unwrap() error { return e.Err }

const pkg = "hostlocal"

// fault returns an error about an argument; [Engine.explain] fills in the call.
func fault(sentinel error, field, reason string) *ipalloc.Error {
	return &ipalloc.Error{Package: pkg, Field: field, Reason: reason, Err: sentinel}
}

// setFault returns an error about a range set, or about none if set is -1.
func setFault(sentinel error, set int, a netip.Addr, reason string) (*ipalloc.Error, *SetError) {
	in := &SetError{Set: set, Range: -1, Other: -1, Err: sentinel}
	err := &ipalloc.Error{Package: pkg, Addr: a, Reason: reason, Err: in}
	if set >= 0 {
		err.Field = fmt.Sprintf("Sets[%d]", set)
	}
	return err, in
}

// corrupt returns an error about a damaged record.
func corrupt(key, format string, args ...any) *ipalloc.Error {
	return fault(ipalloc.ErrCorrupt, "", fmt.Sprintf("record %q: ", key)+fmt.Sprintf(format, args...))
}

// own returns the error of this package that err is or wraps, or nil.
func own(err error) *ipalloc.Error {
	var e *ipalloc.Error
	if errors.As(err, &e) && e.Package == pkg {
		return e
	}
	return nil
}

// explain adds the failed call to an error, and turns any other error, such as the
// store's, into an error of this package.
func (e *Engine) explain(err error, op string, who Attachment) error {
	if err == nil {
		return nil
	}
	f := own(err)
	if f == nil {
		f = fault(err, "", "")
		err = f
	}
	f.Op, f.Name = op, e.network
	if who != (Attachment{}) {
		f.Owner = who.String()
	}
	return err
}
