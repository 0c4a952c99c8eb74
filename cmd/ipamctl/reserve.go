package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

func (a *app) reserveCommand() *cobra.Command {
	c := &cobra.Command{Use: "reserve", Short: "Show and change what is never assigned automatically"}
	var note, by string
	add := a.reserveChange("add PREFIX...", "Reserve prefixes, addresses or ranges FIRST-LAST; addresses in use stay in use and are listed",
		func(ctx context.Context, e *ipset.Engine, ranges []netipx.IPRange) error {
			rs := alloc.Reservations(ranges...)
			for i := range rs {
				rs[i].Note, rs[i].By = note, by
			}
			if err := e.Operator().ChangePools(ctx, alloc.PoolChanges{Reserve: rs}); err != nil {
				return err
			}
			return a.noteInUse(ctx, e, ranges)
		})
	add.Flags().StringVar(&note, "note", "", "why, as reserve list shows it: a `TEXT`")
	add.Flags().StringVar(&by, "by", "", "who reserves it: a `NAME`; reservations of several names are kept apart")
	c.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the reservations: since when, by whom and why",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.printReservations(ctx, e, nil) })
		},
	}, add, a.reserveChange("remove PREFIX...", "End reservations, whoever made them", func(ctx context.Context, e *ipset.Engine, ranges []netipx.IPRange) error {
		return e.Operator().ChangePools(ctx, alloc.PoolChanges{Unreserve: alloc.Reservations(ranges...)})
	}))
	return c
}

// rangeText writes a range, as a prefix if it is one.
func rangeText(r netipx.IPRange) string {
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.String()
}

// reasonText says why a range is reserved, by whom and since when, "" if nothing of it is known.
func reasonText(r alloc.Reservation) (text string) {
	if r.Note != "" {
		text = ": " + r.Note
	}
	if r.By != "" {
		text += ", by " + r.By
	}
	if !r.Since.IsZero() {
		text += ", since " + timeText(r.Since)
	}
	return text
}

// printReservations prints the reservations for which want holds, nil for all.
func (a *app) printReservations(ctx context.Context, e *ipset.Engine, want func(netipx.IPRange) bool) error {
	all, err := e.Operator().Reservations(ctx)
	if err != nil {
		return err
	}
	l := &listing{columns: []string{"RESERVED", "SINCE", "BY", "NOTE"}, empty: "nothing is reserved"}
	for _, is := range all {
		if r := reservationOf(is); want == nil || want(is.Range) {
			l.add(r.Range, r, r.Range, r.Since, r.By, r.Note)
		}
	}
	return a.print(l)
}

// parseRange reads a prefix, an address, or FIRST-LAST.
func parseRange(s string) (netipx.IPRange, error) {
	if r, err := netipx.ParseIPRange(s); err == nil {
		return r, nil
	}
	p, err := parsePrefix(s)
	if err != nil {
		return netipx.IPRange{}, fail(exitUsage, "%q is neither a prefix, an address nor a range", s)
	}
	return netipx.RangeOfPrefix(p), nil
}

func (a *app) reserveChange(use, short string, change func(context.Context, *ipset.Engine, []netipx.IPRange) error) *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ranges := make([]netipx.IPRange, len(args))
			for i, arg := range args {
				var err error
				if ranges[i], err = parseRange(arg); err != nil {
					return err
				}
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				if err := change(ctx, e, ranges); err != nil {
					return err
				}
				return a.printReservations(ctx, e, nil)
			})
		},
	})
}

// noteInUse lists what is in use of some ranges.
func (a *app) noteInUse(ctx context.Context, e *ipset.Engine, ranges []netipx.IPRange) error {
	for _, r := range ranges {
		for _, p := range r.Prefixes() {
			for al, err := range e.Allocations(ctx, p) {
				if err != nil {
					return err
				}
				if !al.Cooling {
					a.note("%v is reserved and in use by %q", al.Address, al.Handle)
				}
			}
		}
	}
	return nil
}

// configView is the configuration in JSON.
type configView struct {
	Strict           bool `json:"strict"`
	NoAutoBlocks     bool `json:"noAutoBlocks"`
	MaxBlocksPerHost int  `json:"maxBlocksPerHost"`
}

func (a *app) configCommand() *cobra.Command {
	var want alloc.Config
	setting := &cobra.Command{
		Use: "set", Args: cobra.NoArgs,
		Short: "Change the configuration; settings without a flag stay as they are",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.edit(cmd.Context(), making, func(ctx context.Context, e *ipset.Engine) error {
				cfg, err := e.Operator().Config(ctx)
				if err != nil {
					return err
				}
				set(cmd.Flags(), "strict", &cfg.Strict, want.Strict)
				set(cmd.Flags(), "no-auto-blocks", &cfg.NoAutoBlocks, want.NoAutoBlocks)
				set(cmd.Flags(), "max-blocks-per-host", &cfg.MaxBlocksPerHost, want.MaxBlocksPerHost)
				return e.Operator().SetConfig(ctx, cfg)
			}, a.printConfig)
		},
	}
	setting.Flags().BoolVar(&want.Strict, "strict", false, "hosts borrow no address from blocks of others")
	setting.Flags().BoolVar(&want.NoAutoBlocks, "no-auto-blocks", false, "hosts claim no block by themselves; needs --strict")
	setting.Flags().IntVar(&want.MaxBlocksPerHost, "max-blocks-per-host", 0, "the blocks that one host may claim; 0 is no limit")
	c := &cobra.Command{Use: "config", Short: "Show and change what holds for all pools"}
	c.AddCommand(&cobra.Command{
		Use: "show", Args: cobra.NoArgs, Short: "Show the configuration",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.read(cmd.Context(), a.printConfig) },
	}, a.dryRunFlag(setting))
	return c
}

func (a *app) printConfig(ctx context.Context, e *ipset.Engine) error {
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return err
	}
	l := &listing{single: true, columns: []string{"STRICT", "NO AUTO BLOCKS", "MAX BLOCKS PER HOST"}}
	l.add("config", configView(cfg), fmt.Sprint(cfg.Strict), fmt.Sprint(cfg.NoAutoBlocks), fmt.Sprint(cfg.MaxBlocksPerHost))
	return a.print(l)
}
