package ipset

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Follow watches the catalog and the blocks of some owners, and takes into the cache what another engine changes, until ctx
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
	var watched map[string]bool // what the cache is not behind of after revision rev
	for rev := uint64(0); ; {
		keys, now, err := e.followed(ctx, owners)
		if err != nil {
			return wrap(ipalloc.Error{Op: "follow", Err: err})
		}
		if watched == nil {
			rev = now
		}
		p, next := &learnPlan{}, make(map[string]bool, len(keys))
		for _, k := range keys {
			if next[k] = true; !watched[k] {
				p.forget = append(p.forget, k)
			}
		}
		watched = next
		if err := e.run.Do(ctx, p); err != nil {
			return wrap(ipalloc.Error{Op: "follow", Err: err})
		}
		switch rev, err = e.follow(ctx, rev, keys, watched); {
		case errors.Is(err, store.ErrCompacted):
			watched = nil
		case err != nil:
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

// follow learns what changes of keys after a revision. It returns when an owner's blocks are others than those watched, with the
// revision up to which it has followed.
func (e *Engine) follow(ctx context.Context, rev uint64, keys []string, watched map[string]bool) (uint64, error) {
	for ev, err := range e.store.Watch(ctx, rev, keys...) {
		if err != nil {
			return rev, err
		}
		p := learnPlan{rev: ev.Rev}
		again := false
		for _, r := range ev.Changes {
			if watched[r.Key] { // a key that a watched one begins is another's
				p.records = append(p.records, r)
				again = again || r.Key[:1] == kindOwner
			}
		}
		if err := e.run.Do(ctx, &p); err != nil {
			return rev, err
		}
		if rev = ev.Rev; again {
			return rev, nil
		}
	}
	return rev, ctx.Err()
}

// learnPlan forgets some records, and takes those that a commit wrote into the cache, unless newer ones are there.
type learnPlan struct {
	forget  []string
	records []store.Record
	rev     uint64
}

// Plan implements [occ.Plan]. What the transaction rests upon must stay the same throughout.
func (p *learnPlan) Plan(t *txn) error {
	if t.Pending() || t.Guards() > 0 {
		return occ.ErrFirst
	}
	for _, k := range p.forget {
		t.Forget(k)
	}
	for _, r := range p.records {
		if c := t.Known(r.Key); c == nil || c.Rev < p.rev {
			t.Learn(r)
		}
	}
	return nil
}
