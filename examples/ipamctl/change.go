package main

import (
	"context"
	"errors"
	"fmt"

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

// change runs f on an engine that may write. With --dry-run that engine works on a copy of all records in
// memory, taken in one consistent view, so that the answer is that of the same code on the same state.
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
	if err := f(ctx, e); err != nil {
		return err
	}
	if a.dryRun {
		a.note("dry run: nothing was changed")
	}
	return nil
}

// changeable opens the store for a change, or a copy of it in memory for a dry run.
func (a *app) changeable(ctx context.Context, m mode) (*source, error) {
	if !a.dryRun {
		return a.open(ctx, m)
	}
	db, err := a.open(ctx, reading)
	if m == making && statusOf(err) == exitNotFound {
		return &source{Store: store.NewMemory()}, nil // the change would make an empty store
	}
	if err != nil {
		return nil, err
	}
	mem, err := a.inMemory(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.Store = &trial{mem, db.Limits()}
	return db, nil
}

// trial is a copy in memory that refuses the commits that the store refuses as too large.
type trial struct {
	*store.Memory
	limits store.Limits
}

func (t *trial) Limits() store.Limits { return t.limits }

func (t *trial) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := store.CheckOps("store", ops, t.limits); err != nil {
		return 0, err
	}
	return t.Memory.Commit(ctx, ops)
}

// inMemory copies all records into memory.
func (a *app) inMemory(ctx context.Context, db store.Store) (*store.Memory, error) {
	defer a.progress("copying the records into memory")()
	recs, _, err := db.List(ctx, store.Range{})
	if err != nil {
		return nil, err
	}
	mem := store.NewMemory()
	if len(recs) == 0 {
		return mem, nil
	}
	ops := make([]store.Op, len(recs))
	for i, r := range recs {
		ops[i] = store.Op{Kind: store.Put, Key: r.Key, Value: r.Value}
	}
	if _, err := mem.Commit(ctx, ops); err != nil {
		return nil, fmt.Errorf("copy %s into memory: %w", plural(len(recs), "record"), err)
	}
	return mem, nil
}
