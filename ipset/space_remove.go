package ipset

import (
	"context"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// RemoveSpace removes all records of this package from a space that has no pool left and no address that is held or cooling: its
// empty blocks, and what it remembers of request keys and sequence numbers. A space of that name that is made later is a new one,
// whose sequence numbers begin again. A space that does not exist is no error.
//
// It returns [ipalloc.ErrInUse] if the space has a pool, an address or a record of another program, and says which; no more than
// empty blocks is gone then. Records of others are never removed: with one that comes while the space is removed, RemoveSpace
// returns ErrInUse, and nothing but that record is left. No assignment is lost, because everything goes on the condition that the
// catalog is as it was without pools; the catalog goes last. If RemoveSpace is interrupted, or a pool is added meanwhile, what is
// left is a space in order: use it, or call RemoveSpace again. It takes a commit for up to 256 records.
func (e *Engine) RemoveSpace(ctx context.Context, name string) error {
	in, err := e.InSpace(name)
	if err != nil {
		return err
	}
	if err := in.admin.RemoveAll(ctx); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "remove space", Name: name, Err: err})
	}
	s := e.spaces
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.engines, name)
	return nil
}
