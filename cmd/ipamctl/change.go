package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// dryRunFlag gives a command --dry-run.
func (a *app) dryRunFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.dryRun, "dry-run", false, "answer what the change would, and change nothing")
	return c
}

// destructiveFlags gives a command --dry-run and --yes.
func (a *app) destructiveFlags(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask for confirmation")
	return a.dryRunFlag(c)
}

// need returns an error unless all of the flags were given.
func need(cmd *cobra.Command, flags ...string) error {
	for _, f := range flags {
		if !cmd.Flags().Changed(f) {
			return fail(exitUsage, "--%s is needed; the form is: %s", f, cmd.UseLine())
		}
	}
	return nil
}

// change runs f on an engine that may write, or with --dry-run on one whose calls answer the same and write nothing.
func (a *app) change(ctx context.Context, m mode, f func(ctx context.Context, e *ipset.Engine) error) error {
	return a.changeOn(ctx, m, func(ctx context.Context, e *ipset.Engine, _ store.Store) error { return f(ctx, e) })
}

// edit is change for settings that are read, changed in part and written: f does that, again if they changed meanwhile, so nothing
// that another caller sets is lost. Then show prints them.
func (a *app) edit(ctx context.Context, m mode, f, show func(ctx context.Context, e *ipset.Engine) error) error {
	return a.changeOn(ctx, m, func(ctx context.Context, e *ipset.Engine, db store.Store) error {
		err := error(nil)
		if a.dryRun {
			err = f(ctx, e)
		} else {
			err = store.Together(ctx, db, func(tx store.Store) error {
				e, err := a.engine(tx)
				if err != nil {
					return err
				}
				return f(ctx, e)
			})
		}
		if err != nil {
			return err
		}
		return show(ctx, e)
	})
}

// changeOn opens the store, and runs f on it and on its engine.
func (a *app) changeOn(ctx context.Context, m mode, f func(ctx context.Context, e *ipset.Engine, db store.Store) error) (err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	source, err := a.changeable(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	db := &stoppable{Store: source, app: a, stop: ctx}
	e, err := a.engine(db)
	if err != nil {
		return err
	}
	if a.dryRun {
		e = e.DryRun()
	}
	if err := f(context.WithoutCancel(ctx), e, db); err != nil {
		return err
	}
	if a.dryRun {
		a.note("dry run: nothing was changed")
	}
	return nil
}

// changeRecords is change for the packages beside ipset: f gets a store, with --dry-run one whose commits are forgotten.
func (a *app) changeRecords(ctx context.Context, m mode, f func(ctx context.Context, db store.Store) error) error {
	return a.changeOn(ctx, m, func(ctx context.Context, _ *ipset.Engine, db store.Store) error {
		if a.dryRun {
			db = store.NewOverlay(db)
		}
		return f(ctx, db)
	})
}

// recordList is a command that lists records of the packages beside ipset: f adds the rows.
func (a *app) recordList(use, short string, l listing, args cobra.PositionalArgs, f func(ctx context.Context, db store.Store, l *listing, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Aliases: []string{"ls"}, Args: args, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readStore(cmd.Context(), func(ctx context.Context, _ *ipset.Engine, db *source) error {
				if err := f(ctx, db, &l, args); err != nil {
					return err
				}
				return a.print(&l)
			})
		},
	}
}

// recordEnd is a command that ends records of the packages beside ipset, after a question that says what it does to its last argument. f
// adds a row for each that it ended.
func (a *app) recordEnd(use, short, what string, l listing, args int, f func(ctx context.Context, db store.Store, l *listing, args []string) error) *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: use, Args: cobra.ExactArgs(args), Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			last := args[len(args)-1]
			if err := a.confirm(cmd.Context(), what+" "+last, last); err != nil {
				return err
			}
			return a.changeRecords(cmd.Context(), writing, func(ctx context.Context, db store.Store) error {
				err := f(ctx, db, &l, args)
				if len(l.columns) == 0 {
					return err
				}
				return a.printThen(&l, err)
			})
		},
	})
}

// lastCall is how long a call that is in flight may take to end after a signal or --timeout.
const lastCall = 2 * time.Second

// stoppable is a store whose calls begin only while stop has not ended. A call in flight may end, so that what it did is known
// and counted.
type stoppable struct {
	store.Store
	app  *app
	stop context.Context
}

// call returns the context of a call.
func (s *stoppable) call(ctx context.Context) (context.Context, func(), error) {
	if err := s.stop.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	end := context.AfterFunc(s.stop, func() { time.AfterFunc(lastCall, cancel) })
	return ctx, func() { end(); cancel() }, nil
}

// Get implements store.Store.
func (s *stoppable) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	ctx, done, err := s.call(ctx)
	if err != nil {
		return dst, err
	}
	defer done()
	return s.Store.Get(ctx, dst, keys...)
}

// List implements store.Store.
func (s *stoppable) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	ctx, done, err := s.call(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	return s.Store.List(ctx, r)
}

// Commit implements store.Store.
func (s *stoppable) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	ctx, done, err := s.call(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	rev, err := s.Store.Commit(ctx, ops)
	if err == nil {
		s.app.wrote.Store(true)
	}
	return rev, err
}

// changeable opens the store for a change, or to read it for a dry run.
func (a *app) changeable(ctx context.Context, m mode) (*source, error) {
	if !a.dryRun {
		return a.open(ctx, m)
	}
	db, err := a.open(ctx, reading)
	if m == making && statusOf(err) == exitNotFound {
		return &source{Store: store.NewMemory()}, nil // the change would make an empty store
	}
	return db, err
}
