package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc/ipset/block"
)

// ImportBlock puts a block as it is into the store, with its index records. The engine takes over the block; the caller must
// not use it afterwards. A block with more addresses than one commit can hold is written in steps: an import that is
// interrupted
// leaves the block with the addresses so far, the others free.
//
// It returns [ipalloc.ErrOccupied] if a block is there already, of whatever size, and [ipalloc.ErrNotFound] if no pool has it
// or the
// pool's blocks have another size; nothing is changed then.
func (e *Engine) ImportBlock(ctx context.Context, b *block.Block) error {
	return e.admin.ImportBlock(ctx, b)
}
