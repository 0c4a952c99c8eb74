package ipset

import (
	"context"
)

// Sweep ends leases and cooldowns in blocks that no other call touches, returns blocks that are idle or no longer selected, and
// forgets old request keys and sticky handles. Call it every minute or so from one engine. Many blocks go into one commit, as many as
// the store's limits allow; repeat a sweep that was interrupted.
//
// Its cost follows what is due. The engine remembers the empty blocks, some 60 bytes each, and lists them again after IdleAfter;
// a sweep with Unselected lists all of them, because their hosts' labels may have changed. Idle blocks that Keep leaves to their owners
// cost two reads in 1,000.
func (e *Engine) Sweep(ctx context.Context, a SweepArgs) (Swept, error) {
	return e.release.Sweep(ctx, a)
}
