package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// within puts a store's space in place of the store, if --space names one.
func (a *app) within(db store.Store) (store.Store, error) {
	if a.space == "" {
		return db, nil
	}
	in, err := store.Space(db, a.space)
	if err != nil {
		return nil, fail(exitUsage, "--space: %v", err)
	}
	return in, nil
}

// eachSpace calls f with the engine of the space that --space names, or else of the space without a name and of every other.
func (a *app) eachSpace(ctx context.Context, e *ipset.Engine, f func(e *ipset.Engine) error) error {
	if err := f(e); err != nil || a.space != "" {
		return err
	}
	for name, err := range e.Spaces(ctx) {
		if err != nil {
			return err
		}
		in, err := e.InSpace(name)
		if err == nil {
			err = f(in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) spaceCommand() *cobra.Command {
	c := &cobra.Command{Use: "space", Short: "Show and remove named spaces, whose pools may overlap",
		Long: "A space is a store in the store: its pools, handles and everything else are its own. Every command works on the space that\n" +
			"--space names, and on that without a name if none is given. A space begins with the first thing that is written to it."}
	c.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the spaces with the number of their pools",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.space != "" {
				return fail(exitUsage, "--space: the spaces are those of the whole store")
			}
			return a.read(cmd.Context(), a.printSpaces)
		},
	}, a.destructiveFlags(&cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Args: cobra.ExactArgs(1),
		Short: "Remove what is left of a space without pools and addresses",
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.space != "" {
				return fail(exitUsage, "--space: name the space to remove as the argument alone")
			}
			if err := a.confirm("remove the space "+args[0], args[0]); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				return e.RemoveSpace(ctx, args[0])
			})
		},
	}))
	return c
}

// spaceView is a space in JSON.
type spaceView struct {
	Space string `json:"space"`
	Pools int    `json:"pools"`
}

func (a *app) printSpaces(ctx context.Context, e *ipset.Engine) error {
	l := &listing{columns: []string{"SPACE", "POOLS"}, empty: "there is no named space"}
	err := a.eachSpace(ctx, e, func(e *ipset.Engine) error {
		if e.Space() == "" {
			return nil
		}
		pools, err := e.Pools(ctx)
		if err != nil {
			return err
		}
		v := spaceView{e.Space(), len(pools)}
		l.add(v.Space, v, v.Space, fmt.Sprint(v.Pools))
		return nil
	})
	if err != nil {
		return err
	}
	return a.print(l)
}
