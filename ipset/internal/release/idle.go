package release

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The index of empty blocks is by address, so that a host finds one to take over. A sweep asks for those that have been empty for
// longest. It lists the index and remembers what it says: a block that becomes empty later is idle only when IdleAfter has passed
// since, and then the index is listed again.

// IdleList is the empty blocks at a moment.
type IdleList struct {
	listed int64         // when
	after  time.Duration // the IdleAfter for which the list serves
	rows   []idleRow     // those that have been empty for longest first
}

// idleRow is a block and since when it is empty.
type idleRow struct {
	since int64
	at    netip.Prefix
}

// sweepIdle gives back blocks that are empty.
func (e *Releaser) sweepIdle(ctx context.Context, a alloc.SweepArgs, s *alloc.Swept) error {
	now, err := e.Past()
	if err != nil {
		return err
	}
	before := int64(math.MinInt64)
	if a.IdleAfter > 0 {
		before = block.Later(now, -int64(a.IdleAfter))
	}
	l := e.idle.Swap(nil) // a sweep beside this one lists for itself, and one after an error
	if l == nil || a.Unselected || l.after != a.IdleAfter || l.listed <= before || l.listed > now {
		if l, err = e.listIdle(ctx, now, a.IdleAfter); err != nil {
			return err
		}
	}
	n, _ := slices.BinarySearchFunc(l.rows, before, func(r idleRow, before int64) int {
		if r.since <= before {
			return -1
		}
		return 1
	})
	if a.Unselected {
		n = len(l.rows)
	}
	var kept []idleRow
	if n > 0 {
		cat, err := e.ReadCatalog(ctx)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(l.rows[:n], txn.ReadMost) {
			if kept, err = e.giveBack(ctx, cat, a, before, part, kept, s); err != nil {
				return err
			}
		}
	}
	if !a.Unselected {
		sortIdle(kept)
		l.rows = append(kept, l.rows[n:]...)
		e.idle.Store(l)
	}
	return nil
}

// listIdle lists the empty blocks.
func (e *Releaser) listIdle(ctx context.Context, now int64, after time.Duration) (*IdleList, error) {
	l := &IdleList{listed: now, after: after}
	for recs, err := range e.Pages(ctx, store.Range{From: record.KindEmpty, To: record.KindEmpty + "\xff"}) {
		if err != nil {
			return nil, err
		}
		for _, rec := range recs {
			if p, ok := record.ParseBlockID(rec.Key[1:]); ok {
				l.rows = append(l.rows, idleRow{record.ParseIndexValue(rec.Value), p})
			}
		}
	}
	sortIdle(l.rows)
	return l, nil
}

// sortIdle orders blocks by since when they are empty.
func sortIdle(rows []idleRow) {
	slices.SortFunc(rows, func(a, b idleRow) int { return cmp.Or(cmp.Compare(a.since, b.since), record.ComparePrefix(a.at, b.at)) })
}

// giveBack gives back those of the blocks that are idle or no longer selected, and appends to kept those that their owners keep.
func (e *Releaser) giveBack(ctx context.Context, cat *pool.Catalog, a alloc.SweepArgs, before int64, rows, kept []idleRow, s *alloc.Swept) ([]idleRow, error) {
	stays := make(map[netip.Prefix]int64, len(rows))
	for _, r := range rows {
		stays[r.at] = r.since
	}
	due := make(map[netip.Prefix]ownedBlock)
	err := e.EachBlock(ctx, slices.SortedFunc(maps.Keys(stays), record.ComparePrefix), func(b *block.Block) {
		if b.Owner().Kind == alloc.Nobody {
			return
		}
		d := ownedBlock{b.Owner(), b.Prefix(), !a.Unselected || e.selected(cat, b)}
		if !d.byRule || b.Since() <= before && b.IsEmpty() {
			due[d.at] = d
		}
	})
	if err != nil {
		return kept, err
	}
	maps.DeleteFunc(stays, func(at netip.Prefix, _ int64) bool { _, is := due[at]; return !is })
	if err := e.leaveOut(ctx, due, a.Keep); err != nil {
		return kept, err
	}
	err = e.InSteps(slices.SortedFunc(maps.Keys(due), record.ComparePrefix), func(step []netip.Prefix) (int, error) {
		p := disownPlan{mustBeEmpty: true, afresh: true, keep: a.Keep, idleSince: before}
		for _, at := range step {
			p.blocks = append(p.blocks, due[at])
		}
		if err := e.Do(ctx, &p); err != nil {
			return 0, err
		}
		s.Returned = append(s.Returned, p.released...)
		for _, at := range p.released {
			delete(stays, at)
		}
		return p.done, nil
	})
	for at, since := range stays {
		kept = append(kept, idleRow{since, at})
	}
	return kept, err
}

// leaveOut removes the blocks of owners that have no more than they keep, which then costs no commit. One round trip.
func (e *Releaser) leaveOut(ctx context.Context, due map[netip.Prefix]ownedBlock, keep int) error {
	owners := make(map[string]bool)
	for _, d := range due {
		if d.byRule && keep > 0 {
			owners[record.OwnerKey(d.owner)] = false
		}
	}
	if len(owners) == 0 {
		return nil
	}
	recs, err := e.Store.Get(ctx, nil, slices.Sorted(maps.Keys(owners))...)
	if err != nil {
		return err
	}
	for _, r := range recs {
		owned, err := record.DecodeOwned(r)
		if err != nil {
			return cause.Wrap(ipalloc.Error{Op: "read", Name: r.Key, Err: err})
		}
		owners[r.Key] = owned.N <= keep
	}
	maps.DeleteFunc(due, func(_ netip.Prefix, d ownedBlock) bool { return d.byRule && owners[record.OwnerKey(d.owner)] })
	return nil
}
