package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// within puts a store's space in place of the store, if --space names one. It must exist unless the command may make it.
func (a *app) within(ctx context.Context, db store.Store, m mode) (store.Store, error) {
	if a.space == "" {
		return db, nil
	}
	in, err := store.Space(db, a.space)
	if err != nil {
		return nil, fail(exitUsage, "--space: %v", err)
	}
	if m == making {
		return in, nil
	}
	some, _, err := in.List(ctx, store.Range{Limit: 1})
	if err == nil && len(some) == 0 {
		err = fail(exitNotFound, "there is no space %q; space list lists them", a.space)
	}
	return in, err
}

// noName is the word of --space and of lists for the space without a name.
const noName = "."

// spaceText is a space in --space and in lists.
func spaceText(name string) string { return cmp.Or(name, noName) }

// eachSpace calls f with the engine of the space that --space names, or else of the space without a name and of every other.
func (a *app) eachSpace(ctx context.Context, e *ipset.Engine, f func(e *ipset.Engine) error) error {
	if err := f(e); err != nil || a.spaceGiven {
		return err
	}
	for name, err := range e.Operator().Spaces(ctx) {
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

// listSpaces has f add rows for each space that eachSpace visits. If there are several, each row says its space, but -o name
// has only those of the space without a name, because its lines are arguments of other commands.
func (a *app) listSpaces(ctx context.Context, e *ipset.Engine, l *listing, f func(e *ipset.Engine) error) error {
	var all []*ipset.Engine
	err := a.eachSpace(ctx, e, func(in *ipset.Engine) error {
		all = append(all, in)
		return nil
	})
	if err != nil {
		return err
	}
	several := len(all) > 1 && a.format != "name"
	if several {
		l.columns = append([]string{"SPACE"}, l.columns...)
	}
	of := ""    // the space of the rows to come
	marked := 0 // rows that say their space
	mark := func() {
		for ; several && marked < len(l.rows); marked++ {
			r := &l.rows[marked]
			r.cells, r.item = append([]string{spaceText(of)}, r.cells...), inSpace{of, r.item}
		}
	}
	if l.long && a.sort == "" { // as it comes; a sorted list is held as a whole
		l.most = a.rows
		l.flush = func() error {
			mark()
			err := a.printRows(l)
			l.rows, marked = l.rows[:0], 0
			return err
		}
	}
	for i, in := range all {
		if i > 0 && a.format == "name" {
			a.note("%s not listed: name one with --space", plural(len(all)-1, "other space"))
			break
		}
		of = in.Space()
		if err := f(in); err != nil {
			return err
		}
		mark()
	}
	return a.print(l)
}

// inSpace is an object of JSON with the space that it is of.
type inSpace struct {
	space string
	item  any
}

func (s inSpace) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(s.item)
	if err != nil || s.space == "" {
		return text, err
	}
	name, err := json.Marshal(s.space)
	return slices.Concat([]byte(`{"space":`), name, []byte{','}, text[1:]), err
}

func (a *app) spaceCommand() *cobra.Command {
	c := &cobra.Command{Use: "space", Short: "Show and remove named spaces, whose pools may overlap",
		Long: "A space is a store in the store: its pools, handles and everything else are its own. Every command works on the space that\n" +
			"--space names, which must exist except for pool add, config set, import, restore and copy. Without it, check, repair and the lists go\n" +
			"through all spaces; show, explain and commands that name a pool find the space that has it; every other command works on the space\n" +
			"without a name, which the name . stands for."}
	c.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the spaces with the number of their pools",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.spaceGiven {
				return fail(exitUsage, "--space: the spaces are those of the whole store")
			}
			return a.read(cmd.Context(), a.printSpaces)
		},
	}, a.destructiveFlags(&cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Args: cobra.ExactArgs(1),
		Short: "Remove what is left of a space without pools and addresses",
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.spaceGiven {
				return fail(exitUsage, "--space: name the space to remove as the argument alone")
			}
			if err := a.confirm(cmd.Context(), "remove the space "+args[0], args[0]); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				for name, err := range e.Operator().Spaces(ctx) {
					if err != nil {
						return err
					}
					if name == args[0] {
						return e.Operator().RemoveSpace(ctx, name)
					}
				}
				return fail(exitNotFound, "there is no space %q", args[0])
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
