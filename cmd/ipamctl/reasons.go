package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// reservation is a reservation in JSON.
type reservation struct {
	Range string `json:"range"`
	Note  string `json:"note,omitempty"`
	By    string `json:"by,omitempty"`
	Since string `json:"since,omitempty"`
}

func reservationOf(r alloc.Reservation) reservation {
	return reservation{rangeText(r.Range), r.Note, r.By, timeText(r.Since)}
}

// reservation returns the reservation that an entry says.
func (r reservation) reservation() (is alloc.Reservation, err error) {
	is = alloc.Reservation{Note: r.Note, By: r.By}
	if is.Range, err = parseRange(r.Range); err == nil && r.Since != "" {
		if is.Since, err = time.Parse(time.RFC3339Nano, r.Since); err != nil {
			err = fail(exitUsage, "since %q: %v", r.Since, err)
		}
	}
	return is, err
}

// reserved returns the addresses that automatic assignment never takes.
func reserved(ctx context.Context, e *ipset.Engine) (*netipx.IPSet, error) {
	rs, err := e.Operator().Reservations(ctx)
	if err != nil {
		return nil, err
	}
	return alloc.ReservedSet(rs)
}

// by names an import as the one that reserves what it could not take.
func (i *importing) by() string { return "import " + i.source }

// reserve adds the reservations of what this import could not take, and ends those of an earlier one from the same source whose reason is
// gone. An item that is refused again is reserved since then.
func (i *importing) reserve(ctx context.Context, change *alloc.PoolChanges) error {
	is, err := i.e.Operator().Reservations(ctx)
	if err != nil {
		return err
	}
	for _, r := range is {
		if r.By == i.by() {
			change.Unreserve = append(change.Unreserve, r)
		}
	}
	notes := map[netipx.IPRange]string{}
	for _, r := range i.refused {
		for _, where := range r.ranges {
			note := fmt.Sprintf("%s: %v", r.what, r.why)
			if also, there := notes[where]; there {
				note = also + "; " + note
			}
			notes[where] = note
		}
	}
	for where, note := range notes {
		const most = 1024
		change.Reserve = append(change.Reserve, alloc.Reservation{Range: where, Note: strings.ToValidUTF8(note[:min(len(note), most)], ""), By: i.by()})
	}
	return nil
}

func (a *app) poolOpenCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "open NAME", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Open a pool that an import has closed",
		Long: "open prints what is reserved in the pool, with the reasons, asks for confirmation and opens the pool. Until then it serves no call,\n" +
			"and an import can be repeated. Stop the old system, import once more and compare with diff before you open it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				all, err := e.Pools(ctx)
				if err != nil {
					return err
				}
				at := slices.IndexFunc(all, func(p alloc.Pool) bool { return p.Name == args[0] })
				if at < 0 {
					return noPool(all, args[0])
				}
				within := netipx.RangeOfPrefix(all[at].Prefix)
				if err := a.printReservations(ctx, e, func(r netipx.IPRange) bool { return r.Overlaps(within) }); err != nil {
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
