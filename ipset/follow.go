package ipset

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Follow watches the catalog and the blocks of some owners, and drops from the cache what another engine changes, until ctx
// ends. It returns the context's error or that of the store. It only saves time: without it, a stale record is found by the
// conflict that it causes, which costs the call that meets it two round trips more.
//
// It is one watch of the store: on the catalog, on the list of blocks of each owner named, and on each of these blocks. What
// arrives does not grow with the number of other owners. When an owner gets a block, the watch begins again with it. One call
// per engine is enough.
func (e *Engine) Follow(ctx context.Context, owners ...Owner) error {
	for _, o := range owners {
		if err := o.Check(); err != nil {
			return wrap(ipalloc.Error{Op: "follow", Owner: o.String(), Err: err})
		}
	}
	for {
		keys, rev, err := e.followed(ctx, owners)
		if err != nil {
			return wrap(ipalloc.Error{Op: "follow", Err: err})
		}
		if err := e.run.Do(ctx, &forgetPlan{keys: keys}); err != nil {
			return wrap(ipalloc.Error{Op: "follow", Err: err})
		}
		if err := e.follow(ctx, rev, keys); err != nil && !errors.Is(err, store.ErrCompacted) {
			return wrap(ipalloc.Error{Op: "follow", Err: err})
		}
	}
}

// followed returns the keys to watch, and a revision of the store before they were read.
func (e *Engine) followed(ctx context.Context, owners []Owner) (keys []string, rev uint64, err error) {
	if _, rev, err = e.store.List(ctx, store.Range{From: catalogKey, To: catalogKey + "\x00"}); err != nil {
		return nil, 0, err
	}
	keys = append(keys, catalogKey)
	for _, o := range owners {
		blocks, err := e.BlocksOf(ctx, o)
		if err != nil {
			return nil, 0, err
		}
		keys = append(keys, ownerKey(o))
		for _, b := range blocks {
			keys = append(keys, blockKey(kindBlock, b))
		}
	}
	return keys, rev, nil
}

// follow forgets what changes of keys. It returns nil when an owner's blocks are others than those watched.
func (e *Engine) follow(ctx context.Context, rev uint64, keys []string) error {
	watched := make(map[string]bool, len(keys))
	for _, k := range keys {
		watched[k] = true
	}
	for ev, err := range e.store.Watch(ctx, rev, keys...) {
		if err != nil {
			return err
		}
		p := forgetPlan{rev: ev.Rev}
		again := false
		for _, r := range ev.Changes {
			if watched[r.Key] { // a key that a watched one begins is another's
				p.keys = append(p.keys, r.Key)
				again = again || r.Key[:1] == kindOwner
			}
		}
		if err := e.run.Do(ctx, &p); err != nil {
			return err
		}
		if again {
			return nil
		}
	}
	return ctx.Err()
}

// forgetPlan drops cached records that are older than a revision; 0 drops them whatever they are.
type forgetPlan struct {
	keys []string
	rev  uint64
}

// Plan implements [occ.Plan]. What the transaction rests upon must stay the same throughout.
func (p *forgetPlan) Plan(t *txn) error {
	if t.Pending() || t.Guards() > 0 {
		return occ.ErrFirst
	}
	for _, k := range p.keys {
		if c := t.Known(k); c != nil && (p.rev == 0 || c.Rev < p.rev) {
			t.Forget(k)
		}
	}
	return nil
}
