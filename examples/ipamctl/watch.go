package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
)

// changeView is a change that watch prints.
type changeView struct {
	Time   string `json:"time"`
	Change string `json:"change"`
	What   string `json:"what"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// changeWords name a difference of two states as a change.
var changeWords = map[string]string{
	"pool added": "pool added", "pool removed": "pool removed", "block added": "block claimed", "block removed": "block returned",
	"block changed": "block changed owner", "address added": "assigned", "address removed": "released", "address changed": "changed holder",
}

func (a *app) watchCommand() *cobra.Command {
	var interval time.Duration
	var limit int
	c := &cobra.Command{
		Use: "watch", Args: cobra.NoArgs,
		Short: "Print changes of pools, blocks and addresses as they come",
		Long: "watch prints a line for each pool added or removed, each block claimed, returned or passed to another owner, and each address\n" +
			"assigned, released or passed to another holder. It compares the state with the one before: when the store delivers a change,\n" +
			"and at each interval for a bbolt file, whose changes only its owner sees. What is undone between two looks is not seen. With\n" +
			"-o json it prints an object on each line. It ends with Ctrl-C.",
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

func (a *app) watch(ctx context.Context, interval time.Duration, limit int) error {
	quiet := a.quiet
	var before *inventory
	for n := 0; ; {
		after, changed, err := a.look(ctx, interval)
		if err != nil {
			return err
		}
		a.quiet = true // what there is to say of the store has been said
		if before != nil {
			for _, d := range differences(before, after) {
				if err := a.printChange(d); err != nil {
					return err
				}
				if n++; n == limit {
					return nil
				}
			}
		} else if !quiet {
			fmt.Fprintf(a.stderr, "ipamctl: watching %s and %s\n", plural(len(after.Blocks), "block"), plural(len(after.Addresses), "address"))
		}
		before = after
		if err := changed(ctx); err != nil {
			return err
		}
	}
}

// look reads the state, and returns a function that waits until it may have changed.
func (a *app) look(ctx context.Context, interval time.Duration) (inv *inventory, changed func(context.Context) error, err error) {
	db, err := a.open(ctx, reading)
	if err != nil {
		return nil, nil, err
	}
	e, err := a.engine(db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	if db.location.Kind == "bolt" {
		inv, err = take(ctx, e)
		return inv, func(ctx context.Context) error { return wait(ctx, interval) }, errors.Join(err, db.Close())
	}
	_, rev, err := db.List(ctx, rangeOfNothing)
	if err == nil {
		inv, err = take(ctx, e)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return inv, func(ctx context.Context) error {
		defer db.Close()
		for _, err := range db.Watch(ctx, rev, "") {
			return err // one change is enough
		}
		return ctx.Err()
	}, nil
}

func (a *app) printChange(d difference) error {
	v := changeView{Time: timeText(a.now()), Change: changeWords[d.Kind+" "+d.Change], What: d.What, Before: d.Mine, After: d.Other}
	switch a.format {
	case "json":
		return a.printLine(v)
	case "name":
		_, err := fmt.Fprintln(a.stdout, v.What)
		return err
	}
	holder := v.After
	switch {
	case d.Change == "changed":
		holder = v.Before + " -> " + v.After
	case v.After == "":
		holder = v.Before
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-19s  %s  %s\n", v.Time, v.Change, v.What, printable(holder))
	return err
}

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var count, rows int
	c := &cobra.Command{
		Use: "top", Args: cobra.NoArgs,
		Short: "Show the fullest pools and the hosts with the most addresses, again and again",
		Long: "top shows the pools, the fullest first, with what changed since the last look and, if a pool fills, when it is full at that pace,\n" +
			"and the hosts with the most addresses. It ends with Ctrl-C, or after --count looks.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := top{app: a, rows: rows, used: map[string]float64{}}
			for n := 1; ; n++ {
				if err := a.read(cmd.Context(), t.show); err != nil {
					return err
				}
				a.quiet = true
				if n == count {
					return nil
				}
				if err := wait(cmd.Context(), interval); err != nil {
					return nil // Ctrl-C is how it ends
				}
			}
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "the time between two looks")
	c.Flags().IntVarP(&count, "count", "n", 0, "end after this many looks; 0 does not")
	c.Flags().IntVar(&rows, "rows", 10, "the most hosts to show")
	return c
}

// top is what one look leaves for the next.
type top struct {
	*app
	rows int
	used map[string]float64
	at   time.Time
}

func (t *top) show(ctx context.Context, e *ipset.Engine) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	hosts, err := hostViews(ctx, e)
	if err != nil {
		return err
	}
	sortPools(all, "use")
	sortHosts(hosts, "addresses")
	now := t.now()
	var out strings.Builder
	if isTerminal(t.stdout) {
		out.WriteString("\x1b[H\x1b[2J")
	}
	fmt.Fprintf(&out, "%s  %s  %s\n\n", now.UTC().Format(time.DateTime), plural(len(all), "pool"), plural(len(hosts), "host"))
	l := &listing{columns: append(slices.Clone(poolColumns), "CHANGE", "FULL IN")}
	for i := range all {
		p := &all[i]
		used := p.Used.Float64()
		change, full := "-", "-"
		if before, known := t.used[p.Name]; known {
			change = fmt.Sprintf("%+.0f", used-before)
			if pace := (used - before) / now.Sub(t.at).Seconds(); pace > 0 {
				full = time.Duration(p.Utilization.Available.Float64() / pace * float64(time.Second)).Round(time.Second).String()
			}
		}
		t.used[p.Name] = used
		l.add(p.Name, nil, append(p.cells(), change, full)...)
	}
	t.at = now
	if err := writeTable(&out, l.columns, l.rows); err != nil {
		return err
	}
	out.WriteByte('\n')
	h := &listing{columns: []string{"HOST", "BLOCKS", "ADDRESSES", "BORROWED", "LENT"}}
	for _, v := range hosts[:min(len(hosts), t.rows)] {
		h.add(v.Host, nil, v.Host, fmt.Sprint(len(v.Blocks)), fmt.Sprint(v.Addresses), fmt.Sprint(v.Borrowed), fmt.Sprint(v.Lent))
	}
	if err := writeTable(&out, h.columns, h.rows); err != nil {
		return err
	}
	_, err = fmt.Fprint(t.stdout, out.String())
	return err
}
