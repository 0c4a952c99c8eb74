package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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

func (a *app) watchCommand() *cobra.Command {
	var r recording
	c := &cobra.Command{
		Use: "watch", Args: cobra.NoArgs,
		Short: "Print changes of pools, blocks and addresses as they come",
		Long: "watch prints a line for every change: pools and settings, blocks claimed, orphaned and returned, addresses assigned, released,\n" +
			"cooling and cooled, leases, hosts and attributes. Only the owner of a bbolt file sees its changes: name the socket at which\n" +
			"the service serves it. With -o json it prints an object on each line. It ends with Ctrl-C.\n\n" +
			"watch --to FILE appends the state that it finds, and then a line for every change, and syncs the file at the end of a commit. It adds\n" +
			"the changes of prefixes, numbers, attachments and limits as it finds them; one that comes and goes at once may be missing. Started\n" +
			"again, it continues after the last revision in the file; if the store no longer has the commits since, a line says that changes\n" +
			"are missing. It costs the engines nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			db, e, err := a.delivering(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			if r.app = a; r.file != "" {
				err = r.runWithOthers(ctx, e, db)
			} else {
				err = a.watch(ctx, e, r.left)
			}
			if errors.Is(err, errEnough) || errors.Is(err, context.DeadlineExceeded) && a.timeout > 0 {
				return nil // --timeout is how long to watch
			}
			return err
		},
	}
	c.Flags().StringVar(&r.file, "to", "", "append the changes to this `FILE`, which history reads, instead of printing them")
	c.Flags().IntVar(&r.left, "count", 0, "end after this many changes; 0 does not")
	c.Flags().Int64Var(&r.size, "size", 64<<20, "begin a new file at this many `BYTES`")
	c.Flags().IntVar(&r.keep, "keep", 10, "the `NUMBER` of old files that are kept")
	return c
}

// delivering opens a store that delivers its commits, and an engine on it.
func (a *app) delivering(ctx context.Context) (*source, *ipset.Engine, error) {
	a.following = true
	db, err := a.open(ctx, reading)
	if err != nil {
		return nil, nil, err
	}
	e, err := a.engine(db)
	if err == nil && db.location.Kind == "bolt" {
		err = fail(exitUsage, "the commits of a bbolt file are seen by its owner alone; beside a service name the socket at which it serves the file, as in --store unix:///var/lib/ipam.db.sock")
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, e, nil
}

// watch prints the changes that the store delivers.
func (a *app) watch(ctx context.Context, e *ipset.Engine, limit int) error {
	n, blocks, addresses := 0, 0, 0
	for c, err := range e.Changes(ctx, 0) {
		if err != nil {
			return err
		}
		for _, ch := range c.Changes {
			switch {
			case !c.Present:
				v := changeOf(c.Rev, ch)
				v.Time = timeText(a.now())
				if err := a.printChange(v); err != nil {
					return err
				}
				if n++; n == limit {
					return nil
				}
			case ch.Kind == alloc.AddressAssigned:
				addresses++
			case ch.Block.IsValid():
				blocks++
			}
		}
		if c.Present && !c.More {
			a.note("watching %s and %s", plural(blocks, "block"), plural(addresses, "address"))
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
	ranges := func(rs []alloc.Reservation) string {
		var all []string
		for _, r := range rs {
			all = append(all, strings.TrimSpace(rangeText(r.Range)+" "+r.By+" "+r.Note))
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
