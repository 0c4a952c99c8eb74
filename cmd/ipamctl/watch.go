package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// changeView is a change that watch prints.
type changeView struct {
	Time   string `json:"time"`
	Rev    uint64 `json:"revision,omitempty"`
	Change string `json:"change"`
	What   string `json:"what"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// changeWords name a difference of two states as a change.
var changeWords = map[string]string{
	"pool added": "pool added", "pool removed": "pool removed", "block added": "block claimed", "block removed": "block returned",
	"block changed": "block claimed", "address added": "assigned", "address removed": "released", "address changed": "host changed",
}

func (a *app) watchCommand() *cobra.Command {
	var interval time.Duration
	var limit int
	c := &cobra.Command{
		Use: "watch", Args: cobra.NoArgs,
		Short: "Print changes of pools, blocks and addresses as they come",
		Long: "watch prints a line for every change: pools and settings, blocks claimed, orphaned and returned, addresses assigned, released,\n" +
			"cooling and cooled, leases, hosts and attributes. The changes of a bbolt file are seen by its owner alone, so of a file watch compares\n" +
			"the state at each interval with the one before: pools, blocks and holders; what is undone between two looks is not seen. With -o json\n" +
			"it prints an object on each line. It ends with Ctrl-C.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			err := a.watch(ctx, interval, limit)
			if errors.Is(err, context.DeadlineExceeded) && a.timeout > 0 {
				return nil // --timeout is how long to watch
			}
			return err
		},
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often a bbolt file is looked at")
	c.Flags().IntVarP(&limit, "count", "n", 0, "end after this many changes; 0 does not")
	return c
}

// errEnough ends watching after as many changes as were asked for.
var errEnough = errors.New("enough changes")

func (a *app) watch(ctx context.Context, interval time.Duration, limit int) (err error) {
	n := 0
	tell := func(v changeView) error {
		v.Time = timeText(a.now())
		if err := a.printChange(v); err != nil {
			return err
		}
		if n++; n == limit {
			return errEnough
		}
		return nil
	}
	db, err := a.open(ctx, reading)
	if err != nil {
		return err
	}
	e, err := a.engine(db)
	var first *inventory
	switch {
	case err != nil:
	case db.location.Kind == "bolt":
		first, err = takeHeld(ctx, e)
	default:
		err = a.followChanges(ctx, e, tell)
	}
	if err = errors.Join(err, db.Close()); err == nil && first != nil {
		err = a.compareStates(ctx, first, interval, tell)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// watching says what is there at the beginning.
func (a *app) watching(blocks, addresses int) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, "ipamctl: watching %s and %s\n", plural(blocks, "block"), plural(addresses, "address"))
	}
}

// followChanges prints the changes that the store delivers.
func (a *app) followChanges(ctx context.Context, e *ipset.Engine, tell func(changeView) error) error {
	blocks, addresses := 0, 0
	for c, err := range e.Changes(ctx, 0) {
		if err != nil {
			return err
		}
		for _, ch := range c.Changes {
			switch {
			case !c.Present:
				if err := tell(changeOf(c.Rev, ch)); err != nil {
					return err
				}
			case ch.Kind == alloc.AddressAssigned:
				addresses++
			case ch.Block.IsValid():
				blocks++
			}
		}
		if c.Present && !c.More {
			a.watching(blocks, addresses)
		}
	}
	return ctx.Err()
}

// changeOf describes a change.
func changeOf(rev uint64, c alloc.Change) changeView {
	v := changeView{Rev: rev, Change: c.Kind.String()}
	holder := func(al alloc.Allocation) (text string) {
		if !al.Address.IsValid() {
			return ""
		}
		if text = al.Handle; al.Host.Kind != alloc.Nobody {
			text += " on " + al.Host.String()
		}
		switch {
		case c.Kind == alloc.LeaseChanged || al.Cooling:
			text += " until " + timeText(al.Until)
		case c.Kind == alloc.AttributesChanged:
			text += fmt.Sprint(" ", al.Attributes.Map(), al.Alternate.Map())
		}
		return text
	}
	var names []string // of the settings that differ
	if c.FormerPool != nil && c.Pool != nil {
		names = differing(entryOf(*c.FormerPool), entryOf(*c.Pool))
	}
	pool := func(p *alloc.Pool) string {
		if p == nil {
			return ""
		}
		v.What = p.Prefix.String()
		return entryOf(*p).settings(names)
	}
	ranges := func(s *netipx.IPSet) string {
		var all []string
		for _, r := range s.Ranges() {
			all = append(all, r.String())
		}
		return strings.Join(all, ", ")
	}
	settings := func(c *alloc.Config) string {
		if c == nil {
			return ""
		}
		return fmt.Sprintf("strict=%v noAutoBlocks=%v maxBlocksPerHost=%d", c.Strict, c.NoAutoBlocks, c.MaxBlocksPerHost)
	}
	switch {
	case c.Address.IsValid():
		v.What, v.Before, v.After = c.Address.String(), holder(c.Was), holder(c.Is)
	case c.Block.IsValid():
		v.What = c.Block.String()
		if c.Former.Kind != alloc.Nobody {
			v.Before = c.Former.String()
		}
		if c.Owner.Kind != alloc.Nobody {
			v.After = c.Owner.String()
		}
	case c.Kind == alloc.ReservationsChanged:
		v.Before, v.After = ranges(c.FormerReserved), ranges(c.Reserved)
	case c.Kind == alloc.ConfigChanged:
		v.Before, v.After = settings(c.FormerConfig), settings(c.Config)
	default:
		v.Before, v.After = pool(c.FormerPool), pool(c.Pool)
	}
	return v
}

// takeHeld is take for watch: what is held, without what cools and without details.
func takeHeld(ctx context.Context, e *ipset.Engine) (*inventory, error) {
	inv, err := take(ctx, e)
	if err != nil {
		return nil, err
	}
	inv.noDetails = true
	inv.Addresses = slices.DeleteFunc(inv.Addresses, func(a addressEntry) bool { return a.Cooling })
	return inv, nil
}

// compareStates prints how the state of a bbolt file differs from the one an interval before.
func (a *app) compareStates(ctx context.Context, before *inventory, interval time.Duration, tell func(changeView) error) error {
	a.watching(len(before.Blocks), len(before.Addresses))
	a.quiet = true // what there is to say of the file has been said
	for {
		if err := wait(ctx, interval); err != nil {
			return err
		}
		var after *inventory
		err := a.read(ctx, func(ctx context.Context, e *ipset.Engine) (err error) {
			after, err = takeHeld(ctx, e)
			return err
		})
		if err != nil {
			return err
		}
		for _, d := range differences(before, after) {
			if err := tell(changeView{Change: changeWords[d.Kind+" "+d.Change], What: d.What, Before: d.Mine, After: d.Other}); err != nil {
				return err
			}
		}
		before = after
	}
}

func (a *app) printChange(v changeView) error {
	switch a.format {
	case "json":
		return a.printLine(v)
	case "name":
		_, err := fmt.Fprintln(a.stdout, v.What)
		return err
	}
	holder := v.After
	switch {
	case v.After == "":
		holder = v.Before
	case v.Before != "" && v.Before != v.After:
		holder = v.Before + " -> " + v.After
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-19s  %s  %s\n", v.Time, v.Change, v.What, printable(holder))
	return err
}
