package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// prefixView is a prefix that is held, in JSON.
type prefixView struct {
	Prefix     string `json:"prefix"`
	Pool       string `json:"pool"`
	Owner      string `json:"owner"`
	Until      string `json:"until,omitempty"`
	Attributes string `json:"attributes,omitempty"`

	Children *sizesView `json:"children,omitempty"` // if it is a pool itself
}

func viewPrefix(h prefixes.Holding) prefixView {
	v := prefixView{Prefix: h.Prefix.String(), Pool: h.Pool.String(), Owner: h.Owner, Until: timeText(h.Until), Attributes: h.Attributes}
	if h.Children != (prefixes.Sizes{}) {
		v.Children = (*sizesView)(&h.Children)
	}
	return v
}

// holding returns the holding that a view says.
func (v prefixView) holding() (h prefixes.Holding, err error) {
	h = prefixes.Holding{Owner: v.Owner, Attributes: v.Attributes}
	if v.Children != nil {
		h.Children = prefixes.Sizes(*v.Children)
	}
	if h.Prefix, err = parsePrefix(v.Prefix); err == nil {
		h.Pool, err = parsePrefix(v.Pool)
	}
	if err == nil {
		h.Until, err = parseTime("until", v.Until)
	}
	return h, err
}

func (a *app) prefixCommand() *cobra.Command {
	var owner, in string
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the prefixes that are held",
		RunE: func(cmd *cobra.Command, _ []string) error {
			within, err := flagPrefix(in)
			if err != nil {
				return err
			}
			return a.readPrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator) error {
				return a.printPrefixes(of.All(ctx, within), func(h prefixes.Holding) bool { return owner == "" || h.Owner == owner })
			})
		},
	}
	list.Flags().StringVar(&owner, "owner", "", "only those of this `OWNER`")
	list.Flags().StringVar(&in, "in", "", "only what lies in this `PREFIX`")
	c := &cobra.Command{Use: "prefix", Short: "Show and change what package prefixes keeps"}
	c.AddCommand(list, a.prefixShowCommand(), a.prefixPoolsCommand(), a.prefixAssignCommand(), a.prefixReleaseCommand(), a.prefixRemoveCommand(), a.prefixImportCommand())
	return c
}

// printPrefixes prints the holdings that are wanted.
func (a *app) printPrefixes(all iter.Seq2[prefixes.Holding, error], want func(prefixes.Holding) bool) error {
	l := &listing{columns: []string{"PREFIX", "POOL", "OWNER", "UNTIL", "ATTRIBUTES"}, empty: "no prefix is held"}
	for h, err := range all {
		if err != nil {
			return err
		}
		if want(h) {
			l.addPrefix(h)
		}
	}
	return a.print(l)
}

func (l *listing) addPrefix(h prefixes.Holding) {
	v := viewPrefix(h)
	l.add(v.Prefix, v, v.Prefix, v.Pool, v.Owner, v.Until, v.Attributes)
}

// readPrefixes runs f on the prefixes of a store.
func (a *app) readPrefixes(ctx context.Context, f func(ctx context.Context, of *prefixes.Allocator) error) error {
	return a.readStore(ctx, func(ctx context.Context, _ *ipset.Engine, db *source) error {
		of, err := a.prefixes(store.NewOverlay(db)) // a call that answers about a pool verifies what it read by a commit
		if err != nil {
			return err
		}
		return f(ctx, of)
	})
}

func (a *app) prefixShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show PREFIX|ADDRESS|OWNER", Args: cobra.ExactArgs(1),
		Short: "Show the holdings around a prefix or an address, or those of an owner",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readPrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator) (err error) {
				var all []prefixes.Holding
				if p, perr := parsePrefix(args[0]); perr == nil {
					all, err = of.Path(ctx, p)
				} else {
					all, err = of.Owned(ctx, args[0])
				}
				if err == nil && len(all) == 0 {
					err = fail(exitNotFound, "no holding is around %q, and no owner of that name has one", args[0])
				}
				if err != nil {
					return err
				}
				return a.printPrefixes(func(yield func(prefixes.Holding, error) bool) {
					for _, h := range all {
						if !yield(h, nil) {
							return
						}
					}
				}, func(prefixes.Holding) bool { return true })
			})
		},
	}
}

func (a *app) prefixPoolsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Args: cobra.NoArgs, Short: "List the pools of prefixes, with what is held and free",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readPrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator) error {
				l := &listing{columns: []string{"POOL", "SIZES", "HELD", "LARGEST FREE"}, empty: "there is no pool of prefixes"}
				pools, err := of.Pools(ctx)
				for _, p := range pools {
					u, err := of.Utilization(ctx, p.Prefix)
					if err != nil {
						return err
					}
					held := 0
					for _, n := range u.Held {
						held += n
					}
					sizes, largest := fmt.Sprintf("/%d to /%d", p.Sizes.Shortest, p.Sizes.Longest), ""
					if n := u.LargestFree(); n >= 0 {
						largest = fmt.Sprintf("/%d", n)
					}
					l.add(p.Prefix.String(), map[string]any{"pool": p.Prefix.String(), "shortest": p.Sizes.Shortest, "longest": p.Sizes.Longest, "held": held, "largestFree": u.LargestFree()},
						p.Prefix.String(), sizes, fmt.Sprint(held), largest)
				}
				if err != nil {
					return err
				}
				return a.print(l)
			})
		},
	}
}

func (a *app) prefixAssignCommand() *cobra.Command {
	var owner, pool string
	var bits int
	var ttl time.Duration
	c := &cobra.Command{
		Use: "assign [PREFIX]", Args: cobra.MaximumNArgs(1),
		Short: "Give an owner a prefix: the one that is named, or one of a length",
		Long:  "assign gives the prefix that is named, or with --bits the one of that length that the owner holds in the pool, or else a free one.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := need(cmd, "owner", "pool"); err != nil {
				return err
			}
			in, err := flagPrefix(pool)
			if err != nil {
				return err
			}
			if (len(args) == 0) != cmd.Flags().Changed("bits") {
				return fail(exitUsage, "assign needs a prefix or --bits")
			}
			return a.changePrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator, l *listing) error {
				r := prefixes.Request{Owner: owner, Pool: in, Bits: bits, TTL: ttl}
				var h prefixes.Holding
				if len(args) == 0 {
					h, err = of.Assign(ctx, r)
				} else if at, perr := parsePrefix(args[0]); perr != nil {
					err = perr
				} else {
					h, err = of.Occupy(ctx, at, r)
				}
				if err == nil {
					l.addPrefix(h)
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&owner, "owner", "", "the `OWNER` that gets it")
	c.Flags().StringVar(&pool, "pool", "", "the `PREFIX` of the pool, or of a holding that has children")
	c.Flags().IntVar(&bits, "bits", 0, "the `LENGTH` of the prefix")
	c.Flags().DurationVar(&ttl, "ttl", 0, "release it after this time; 0 does not")
	return a.dryRunFlag(c)
}

// changePrefixes runs f on the prefixes of a store, and prints the holdings that f adds to a list.
func (a *app) changePrefixes(ctx context.Context, f func(ctx context.Context, of *prefixes.Allocator, l *listing) error) error {
	return a.changeRecords(ctx, writing, func(ctx context.Context, db store.Store) error {
		of, err := a.prefixes(db)
		if err != nil {
			return err
		}
		l := &listing{columns: []string{"PREFIX", "POOL", "OWNER", "UNTIL", "ATTRIBUTES"}, empty: "nothing was held"}
		return a.printThen(l, f(ctx, of, l))
	})
}

func (a *app) prefixReleaseCommand() *cobra.Command {
	var owner string
	var tree bool
	c := &cobra.Command{
		Use: "release [PREFIX]", Args: cobra.MaximumNArgs(1),
		Short: "Release a prefix of an owner, or all of its prefixes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := need(cmd, "owner"); err != nil {
				return err
			}
			if tree && len(args) == 0 {
				return fail(exitUsage, "--tree goes with a prefix")
			}
			what := strings.Join(append(args, owner), " of ")
			if err := a.confirm(cmd.Context(), "release "+what, owner); err != nil {
				return err
			}
			return a.changePrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator, l *listing) error {
				all, err := release(ctx, of, owner, args, tree)
				for _, h := range all {
					l.addPrefix(h)
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&owner, "owner", "", "the `OWNER` that holds it")
	c.Flags().BoolVar(&tree, "tree", false, "with everything that is held from the prefix, of any owner")
	return a.destructiveFlags(c)
}

// release releases one prefix of an owner, with what is held from it if tree is true, or all of them.
func release(ctx context.Context, of *prefixes.Allocator, owner string, args []string, tree bool) ([]prefixes.Holding, error) {
	if len(args) == 0 {
		return of.ReleaseByOwner(ctx, owner)
	}
	at, err := parsePrefix(args[0])
	if err != nil {
		return nil, err
	}
	if tree {
		return of.ReleaseTree(ctx, at, owner)
	}
	h, err := of.Get(ctx, at)
	if err == nil {
		err = of.Release(ctx, at, owner)
	}
	if err != nil {
		return nil, err
	}
	return []prefixes.Holding{h}, nil
}

func (a *app) prefixRemoveCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "remove POOL", Aliases: []string{"rm"}, Args: cobra.ExactArgs(1),
		Short: "Remove a pool of prefixes in which nothing is held",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parsePrefix(args[0])
			if err != nil {
				return err
			}
			return a.changePrefixes(cmd.Context(), func(ctx context.Context, of *prefixes.Allocator, l *listing) error {
				l.empty = "pool " + args[0] + " is removed"
				return of.RemovePool(ctx, at)
			})
		},
	})
}

// prefixes returns the allocator of prefixes on a store.
func (a *app) prefixes(db store.Store) (*prefixes.Allocator, error) {
	return prefixes.New(db, prefixes.Options{Now: a.now})
}

// checkPrefixes adds what is wrong with the prefixes of a space to its report.
func (a *app) checkPrefixes(ctx context.Context, db store.Store, r *spaceReport) error {
	of, err := a.prefixes(db)
	if err != nil {
		return err
	}
	found, err := of.Check(ctx)
	if err == nil {
		r.prefixes = found.Holdings
		r.Problems = append(r.Problems, found.Problems...)
	}
	return err
}
