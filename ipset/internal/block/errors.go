package block

import (
	"github.com/ipalloc/ipalloc"
)

// errOwner means that the guard of a call names another holder.
var errOwner = failed(ipalloc.Error{Op: "change", Reason: "held by another, or with other attributes", Err: ipalloc.ErrMismatch})

// failed returns the error of a call. Blocks are part of ipset, so the engine completes these errors with the
// fields that it knows.
func failed(e ipalloc.Error) error {
	e.Package = "ipset"
	return &e
}
