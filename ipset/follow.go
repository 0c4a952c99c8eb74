package ipset

import (
	"context"
)

// Follow watches the catalog and the blocks of some owners, and takes into the cache what another engine changes, until ctx
// ends. It returns the context's error or that of the store. It only saves time: without it, a stale record is found by the
// conflict that it causes, which costs the call that meets it two round trips more.
//
// It is one watch of the store: on the catalog, on the list of blocks of each owner named, and on each of these blocks. What
// arrives does not grow with the number of other owners. When an owner gets a block, the watch begins again with it. One call
// per engine is enough.
func (e *Engine) Follow(ctx context.Context, owners ...Owner) error {
	return e.query.Follow(ctx, owners...)
}
