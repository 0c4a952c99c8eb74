package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// reasonsKey is the key of the record in which ipamctl keeps why and since when ranges are reserved. The engine keeps the ranges alone.
const reasonsKey = "Ipamctl/reserved"

// reason is why a range is reserved.
type reason struct {
	Range  string `json:"range"`
	Note   string `json:"note"`
	Since  string `json:"since"`
	Source string `json:"source,omitempty"` // of the import that reserved it
}

// reasons reads why ranges are reserved, in a dry run as its changes have left it.
func (a *app) reasons(ctx context.Context, db store.Store) (all []reason, rev uint64, err error) {
	if a.planned != nil {
		return *a.planned, 0, nil
	}
	recs, err := db.Get(ctx, nil, reasonsKey)
	if err != nil || recs[0].Rev == 0 {
		return nil, 0, err
	}
	if err := json.Unmarshal([]byte(recs[0].Value), &all); err != nil {
		return nil, 0, fail(exitDamaged, "the record %q: %v", reasonsKey, err)
	}
	return all, recs[0].Rev, nil
}

// editReasons changes the record of reasons. One without reasons is deleted.
func (a *app) editReasons(ctx context.Context, db store.Store, edit func(all []reason) []reason) error {
	for {
		all, rev, err := a.reasons(ctx, db)
		if err != nil {
			return err
		}
		next := edit(slices.Clone(all))
		if slices.Equal(next, all) {
			return nil
		}
		if a.dryRun {
			a.planned = &next
			return nil
		}
		op := store.Op{Kind: store.Delete, Key: reasonsKey, Expect: rev}
		if len(next) > 0 {
			text, err := json.Marshal(next)
			if err != nil {
				return err
			}
			op.Kind, op.Value = store.Put, string(text)
		}
		if _, err = db.Commit(ctx, []store.Op{op}); !errors.Is(err, ipalloc.ErrConflict) {
			return err
		}
	}
}

// within reports whether a range lies in one of others.
func (r reason) within(others []netipx.IPRange) bool {
	is, err := parseRange(r.Range)
	return err == nil && slices.ContainsFunc(others, func(o netipx.IPRange) bool { return o.Contains(is.From()) && o.Contains(is.To()) })
}

// keep notes why an import has reserved ranges, and ends the reservations of an earlier one from the same source whose reason is gone.
func (i *importing) keep(ctx context.Context, db store.Store) error {
	var now []reason
	for _, r := range i.refused {
		for _, where := range r.ranges {
			now = append(now, reason{rangeText(where), fmt.Sprintf("%s: %v", r.what, r.why), timeText(i.now()), i.source})
		}
	}
	var gone []netipx.IPRange
	err := i.editReasons(ctx, db, func(all []reason) []reason {
		gone = nil
		var kept []reason
		for _, r := range all {
			k := slices.IndexFunc(now, func(n reason) bool { return n.Range == r.Range && n.Source == r.Source })
			where, err := parseRange(r.Range)
			switch {
			case r.Source != i.source || err != nil:
				kept = append(kept, r)
			case k < 0:
				gone = append(gone, where)
			case now[k].Note == r.Note:
				now[k].Since = r.Since
			}
		}
		return append(kept, now...)
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	change := alloc.PoolChanges{Unreserve: gone}
	for _, r := range i.refused {
		change.Reserve = append(change.Reserve, r.ranges...)
	}
	// What is reserved for another reason as well stays: both are applied, and a range of both would end.
	change.Unreserve = slices.DeleteFunc(change.Unreserve, func(r netipx.IPRange) bool {
		return slices.ContainsFunc(change.Reserve, r.Overlaps)
	})
	return i.e.Operator().ChangePools(ctx, change)
}

func (a *app) poolOpenCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "open NAME", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Open a pool that an import has closed",
		Long: "open prints what is reserved in the pool, with the reasons, asks for confirmation and opens the pool. Until then it serves no call,\n" +
			"and an import can be repeated. Stop the old system, import once more and compare with diff before you open it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeOn(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine, db store.Store) error {
				all, err := e.Pools(ctx)
				if err != nil {
					return err
				}
				at := slices.IndexFunc(all, func(p alloc.Pool) bool { return p.Name == args[0] })
				if at < 0 {
					return noPool(all, args[0])
				}
				within := netipx.RangeOfPrefix(all[at].Prefix)
				if err := a.printReservations(ctx, e, db, func(r netipx.IPRange) bool { return r.Overlaps(within) }); err != nil {
					return err
				}
				if !all[at].Closed {
					a.note("pool %s is open", args[0])
					return nil
				}
				// The question ends with a signal, as the change itself does not.
				if err := a.confirm(cmd.Context(), "open pool "+args[0], args[0]); err != nil {
					return err
				}
				if err := e.Operator().OpenPool(ctx, args[0]); err != nil {
					return err
				}
				a.note("pool %s is open now", args[0])
				return nil
			})
		},
	})
}
