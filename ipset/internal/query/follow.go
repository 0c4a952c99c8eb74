package query

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/occ"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A cache that is behind costs a conflict and a second attempt. Following the records of some owners keeps their cells current,
// so their next commit succeeds at once even when other engines change their blocks.

// Follow carries out the call of that name.
func (e *Reader) Follow(ctx context.Context, owners ...alloc.Owner) error {
	for _, o := range owners {
		if err := o.Check(); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "follow", Owner: o.String(), Err: err})
		}
	}
	var watched map[string]bool // what the cache is not behind of after revision rev
	for rev := uint64(0); ; {
		keys, now, err := e.followed(ctx, owners)
		if err != nil {
			return cause.Wrap(ipalloc.Error{Op: "follow", Err: err})
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
		if err := e.Run.Do(ctx, p); err != nil {
			return cause.Wrap(ipalloc.Error{Op: "follow", Err: err})
		}
		switch rev, err = e.follow(ctx, rev, keys, watched); {
		case errors.Is(err, ipalloc.ErrOutOfRange):
			watched = nil
		case err != nil:
			return cause.Wrap(ipalloc.Error{Op: "follow", Err: err})
		}
	}
}

// followed returns the keys to watch, and a revision of the store before they were read.
func (e *Reader) followed(ctx context.Context, owners []alloc.Owner) (keys []string, rev uint64, err error) {
	if _, rev, err = e.Store.List(ctx, store.Range{From: record.CatalogKey, To: record.CatalogKey + "\x00"}); err != nil {
		return nil, 0, err
	}
	keys = append(keys, record.CatalogKey)
	for _, o := range owners {
		blocks, err := e.BlocksOf(ctx, o)
		if err != nil {
			return nil, 0, err
		}
		keys = append(keys, record.OwnerKey(o))
		for _, b := range blocks {
			keys = append(keys, record.BlockKey(record.KindBlock, b))
		}
	}
	return keys, rev, nil
}

// follow learns what changes of keys after a revision. It returns when an owner's blocks are others than those watched, with the
// revision up to which it has followed.
func (e *Reader) follow(ctx context.Context, rev uint64, keys []string, watched map[string]bool) (uint64, error) {
	for ev, err := range e.Store.Watch(ctx, rev, keys...) {
		if err != nil {
			return rev, err
		}
		p := learnPlan{rev: ev.Rev}
		again := false
		for _, r := range ev.Changes {
			if watched[r.Key] { // a key that a watched one begins is another's
				p.records = append(p.records, r)
				again = again || r.Key[:1] == record.KindOwner
			}
		}
		if err := e.Run.Do(ctx, &p); err != nil {
			return rev, err
		}
		if rev = ev.Rev; again {
			return rev, nil
		}
	}
	return rev, ctx.Err()
}

// learnPlan forgets some records, and puts the records that a commit wrote into the cache, unless it has newer
// ones.
type learnPlan struct {
	forget  []string
	records []store.Record
	rev     uint64
}

// Plan implements [occ.Plan]. It must be the first plan, because the records that a transaction rests upon must not
// change under it.
func (p *learnPlan) Plan(t *txn.Txn) error {
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
