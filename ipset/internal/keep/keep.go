// Package keep has the names that the engine reserves for package kept: for handles and sharing keys, which all other
// calls refuse.
package keep

import (
	"context"
	"strings"

	"github.com/ipalloc/ipalloc"
)

// Prefix begins the handle of a keeper and the sharing key of a kept address. The handle that the address is kept for follows.
const Prefix = "kept/"

type key struct{}

// In returns a context whose calls may use the reserved names.
func In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether a handle is a keeper's.
func Is(handle string) bool { return strings.HasPrefix(handle, Prefix) }

// Check refuses a reserved name, unless package kept makes the call.
func Check(ctx context.Context, field, name string) error {
	if !Is(name) || ctx.Value(key{}) != nil {
		return nil
	}
	return &ipalloc.Error{Package: "ipset", Op: "check", Field: field, Reason: "names that begin with " + Prefix + " are those of package kept", Err: ipalloc.ErrInvalid}
}
