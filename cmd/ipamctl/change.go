package main

import (
	"context"
	"errors"

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
func (a *app) change(ctx context.Context, m mode, f func(ctx context.Context, e *ipset.Engine) error) (err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	db, err := a.changeable(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e, err := a.engine(db)
	if err != nil {
		return err
	}
	if a.dryRun {
		e = e.DryRun()
	}
	if err := f(ctx, e); err != nil {
		return err
	}
	if a.dryRun {
		a.note("dry run: nothing was changed")
	}
	return nil
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
