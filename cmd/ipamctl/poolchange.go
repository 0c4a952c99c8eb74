package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// poolFlags are the settings of a pool.
type poolFlags struct {
	blockBits, priority, maxBlocks int
	uses, ranges                   []string
	nodes, namespaces              string
	disabled, manual, subnet       bool
	closed                         bool
	cooldown                       time.Duration
	order                          string
	seed                           uint64
	note                           string
}

func (f *poolFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.uses, "use", nil, "what addresses are for: `USES` workload, tunnel, loadbalancer (default workload,tunnel)")
	flags.BoolVar(&f.disabled, "disabled", false, "hand out nothing")
	flags.BoolVar(&f.closed, "closed", false, "serve no call at all until pool open, as for an import; it cannot be undone by =false")
	flags.BoolVar(&f.manual, "manual", false, "serve only calls that name the pool")
	flags.IntVar(&f.priority, "priority", 0, "pools with a higher priority are tried first")
	flags.StringVar(&f.nodes, "nodes", "", "serve hosts whose labels match this `SELECTOR`, such as \"zone=a,!spot; role in (x,y)\"")
	flags.StringVar(&f.namespaces, "namespaces", "", "serve namespaces whose labels match this `SELECTOR`")
	flags.StringArrayVar(&f.ranges, "range", nil, "assign only from this `FIRST-LAST` automatically; may be repeated")
	flags.IntVar(&f.maxBlocks, "max-blocks-per-host", 0, "the blocks of this pool that one host may claim; 0 is no limit")
	flags.BoolVar(&f.subnet, "subnet", false, "the pool is one subnet: spare its network and broadcast addresses")
	flags.StringVar(&f.order, "order", "fifo", "hand out the address released first, the lowest or a random one: `ORDER` fifo, lowest or random")
	flags.Uint64Var(&f.seed, "seed", 0, "the `NUMBER` that decides a random order; 0 draws one when the pool is made")
	flags.StringVar(&f.note, "note", "", "what the pool is for, and whose it is: a `TEXT`")
	flags.DurationVar(&f.cooldown, "cooldown", 0, "keep a released address from others for this long")
}

// apply sets in p what the flags that were given say.
func (f *poolFlags) apply(flags *pflag.FlagSet, p *alloc.Pool) (err error) {
	if flags.Changed("use") {
		if p.Uses, err = parseUses(f.uses); err != nil {
			return err
		}
	}
	if flags.Changed("nodes") {
		if p.Nodes, err = parseSelector(f.nodes); err != nil {
			return err
		}
	}
	if flags.Changed("namespaces") {
		if p.Namespaces, err = parseSelector(f.namespaces); err != nil {
			return err
		}
	}
	if flags.Changed("range") {
		p.Ranges = nil
		for _, text := range f.ranges {
			if text == "" {
				continue // removes all ranges
			}
			r, err := netipx.ParseIPRange(text)
			if err != nil {
				return fail(exitUsage, "--range %s: want the first and the last address, as in 10.0.0.1-10.0.0.9", text)
			}
			p.Ranges = append(p.Ranges, r)
		}
	}
	if flags.Changed("order") {
		if err := p.Order.UnmarshalText([]byte(f.order)); err != nil {
			return fail(exitUsage, "--order %s: fifo, lowest or random is needed", f.order)
		}
	}
	set(flags, "disabled", &p.Disabled, f.disabled)
	set(flags, "closed", &p.Closed, f.closed)
	set(flags, "manual", &p.Manual, f.manual)
	set(flags, "priority", &p.Priority, f.priority)
	set(flags, "max-blocks-per-host", &p.MaxBlocksPerHost, f.maxBlocks)
	set(flags, "seed", &p.Seed, f.seed)
	set(flags, "subnet", &p.Subnet, f.subnet)
	set(flags, "note", &p.Note, f.note)
	set(flags, "cooldown", &p.Cooldown, f.cooldown)
	return nil
}

// set sets a field if its flag was given.
func set[T any](flags *pflag.FlagSet, name string, field *T, value T) {
	if flags.Changed(name) {
		*field = value
	}
}

// printPools prints pools by name, in the order of names, as pool list does.
func (a *app) printPools(ctx context.Context, e *ipset.Engine, names ...string) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	l := &listing{columns: poolColumns}
	for _, name := range names {
		p, err := onePool(all, name)
		if err != nil {
			return err
		}
		l.add(p.Name, p.view(), p.cells()...)
	}
	return a.print(l)
}

func (a *app) poolAddCommand() *cobra.Command {
	var f poolFlags
	c := &cobra.Command{
		Use: "add NAME PREFIX", Args: cobra.ExactArgs(2),
		Short: "Add a pool; a store that does not exist is made",
		Long:  "add adds a pool. Host bits of PREFIX are cleared. A store that does not exist is made.",
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix, err := parsePrefix(args[1])
			if err != nil {
				return err
			}
			p := alloc.Pool{Name: args[0], Prefix: prefix, BlockBits: f.blockBits}
			if err := f.apply(cmd.Flags(), &p); err != nil {
				return err
			}
			return a.change(cmd.Context(), making, func(ctx context.Context, e *ipset.Engine) error {
				// The question ends with a signal, as the change itself does not.
				if err := a.confirmTaking(cmd.Context(), e, p); err != nil {
					return err
				}
				if err := e.AddPool(ctx, p); err != nil {
					return err
				}
				return a.printPools(ctx, e, p.Name)
			})
		},
	}
	f.register(c.Flags())
	c.Flags().IntVar(&f.blockBits, "block-bits", 0, "the prefix length of a block (default 26, or 122 for IPv6)")
	return a.destructiveFlags(c)
}

// confirmTaking asks before a pool takes over blocks of the pool around it: removing it does not give them back.
func (a *app) confirmTaking(ctx context.Context, e *ipset.Engine, p alloc.Pool) error {
	if err := e.DryRun().AddPool(ctx, p); err != nil {
		return err
	}
	all, err := e.Pools(ctx)
	if err != nil || slices.ContainsFunc(all, func(q alloc.Pool) bool { return q.Name == p.Name }) {
		return err // the same pool is there
	}
	from := poolAt(slices.DeleteFunc(slices.Clone(all), func(q alloc.Pool) bool { return q.Prefix.Bits() > p.Prefix.Bits() }), p.Prefix.Addr())
	if from == "" {
		return nil
	}
	blocks, held := 0, 0
	for b, err := range e.Operator().Blocks(ctx, p.Prefix) {
		if err != nil {
			return err
		}
		if poolAt(all, b.Prefix().Addr()) == from {
			blocks, held = blocks+1, held+int(b.Used())
		}
	}
	if blocks == 0 {
		return nil
	}
	what := fmt.Sprintf("pool %s takes %s with %s from pool %s, and pool remove does not give them back", p.Name, plural(blocks, "block"), plural(held, "address"), from)
	if a.dryRun {
		a.note("%s", what)
	}
	return a.confirm(ctx, what, p.Name)
}

// updatePool changes a pool with edit.
func (a *app) updatePool(ctx context.Context, name string, edit func(p *alloc.Pool) error, show func(ctx context.Context, e *ipset.Engine) error) error {
	return a.edit(ctx, writing, func(ctx context.Context, e *ipset.Engine) error {
		all, err := e.Pools(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(p alloc.Pool) bool { return p.Name == name })
		if i < 0 {
			return noPool(all, name)
		}
		if err := edit(&all[i]); err != nil {
			return err
		}
		return e.UpdatePool(ctx, all[i])
	}, show)
}

// printHeld lists what is held of a pool.
func (a *app) printHeld(ctx context.Context, e *ipset.Engine, name string) error {
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p alloc.Pool) bool { return p.Name == name })
	if i < 0 {
		return noPool(all, name)
	}
	l := &listing{columns: allocationColumns, empty: fmt.Sprintf("pool %s is disabled and empty: it can be removed", name)}
	var held []alloc.Allocation
	for al, err := range e.Allocations(ctx, all[i].Prefix) {
		if err != nil {
			return err
		}
		if !al.Cooling && poolAt(all, al.Address) == name {
			held = slices.AppendSeq(held, al.Holders())
		}
	}
	if err := addHeld(ctx, e, l, held); err != nil {
		return err
	}
	return a.print(l)
}

func (a *app) poolSetCommand() *cobra.Command {
	var f poolFlags
	c := &cobra.Command{
		Use: "set NAME", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Change settings of a pool; those without a flag stay as they are",
		Long:  "set changes the settings that have a flag. With --disabled it lists the addresses of the pool that are still held.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.updatePool(cmd.Context(), args[0], func(p *alloc.Pool) error { return f.apply(cmd.Flags(), p) }, func(ctx context.Context, e *ipset.Engine) error {
				if f.disabled {
					return a.printHeld(ctx, e, args[0])
				}
				return a.printPools(ctx, e, args[0])
			})
		},
	}
	f.register(c.Flags())
	return a.dryRunFlag(c)
}

func (a *app) poolResizeCommand() *cobra.Command {
	var prefix string
	var bits int
	c := &cobra.Command{
		Use: "resize NAME", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Grow a pool, or change the size of its blocks",
		Long: "resize gives a pool a prefix that contains the present one, or another size of blocks. Blocks of the old size keep their\n" +
			"addresses, give out no more, and go when they are empty.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if prefix == "" && bits == 0 {
				return fail(exitUsage, "resize needs --prefix or --block-bits")
			}
			return a.updatePool(cmd.Context(), args[0], func(p *alloc.Pool) (err error) {
				if prefix != "" {
					p.Prefix, err = parsePrefix(prefix)
				}
				if bits != 0 {
					p.BlockBits = bits
				}
				return err
			}, func(ctx context.Context, e *ipset.Engine) error { return a.printPools(ctx, e, args[0]) })
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "the new `PREFIX`, which contains the present one")
	c.Flags().IntVar(&bits, "block-bits", 0, "the prefix length of new blocks")
	return a.dryRunFlag(c)
}

func (a *app) poolSplitCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "split NAME BITS", Args: cobra.ExactArgs(2), ValidArgsFunction: a.completePools,
		Short: "Replace a pool by 2^BITS pools of equal size, NAME-0, NAME-1 and so on",
		Long:  "split replaces a pool by equal parts with its settings. Blocks and addresses stay where they are.",
		RunE: func(cmd *cobra.Command, args []string) error {
			bits, err := strconv.Atoi(args[1])
			if err != nil {
				return fail(exitUsage, "%q is not a number of bits", args[1])
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				if err := e.Operator().SplitPool(ctx, args[0], bits); err != nil {
					return err
				}
				var names []string
				for i := range 1 << bits {
					names = append(names, fmt.Sprintf("%s-%d", args[0], i))
				}
				return a.printPools(ctx, e, names...)
			})
		},
	})
}

func (a *app) poolMergeCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "merge NAME PART...", Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completePools,
		Short: "Replace pools that together are one prefix by one pool",
		Long:  "merge replaces pools by one with the settings of the first part. Blocks and addresses stay where they are.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				if err := e.Operator().MergePools(ctx, args[0], args[1:]...); err != nil {
					return err
				}
				return a.printPools(ctx, e, args[0])
			})
		},
	})
}

func (a *app) poolRemoveCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Remove a pool of which no address is held",
		Long: "remove removes a pool and its empty blocks. It refuses a pool of which addresses are held, unless --force: then blocks in\n" +
			"use stay, in no pool, until their addresses are released.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), fmt.Sprintf("remove pool %s", args[0]), args[0]); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error { return a.removePool(ctx, e, args[0], force) })
		},
	}
	c.Flags().BoolVar(&force, "force", false, "remove it although addresses are held")
	return a.destructiveFlags(c)
}

// removePool looks before it touches anything, and again when the pool is drained, because addresses may
// be assigned in between.
func (a *app) removePool(ctx context.Context, e *ipset.Engine, name string, force bool) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	p, err := onePool(all, name)
	if err != nil {
		return err
	}
	refused := func(held string) error {
		return fail(exitRefused, "pool %s: %s held; see address list --in, or add --force", name, held)
	}
	if used := p.Used; !used.IsZero() && !force {
		return refused(count{used}.String() + " addresses are")
	}
	held, err := e.Operator().Drain(ctx, name)
	if err != nil {
		return err
	}
	if len(held) > 0 && !force {
		return refused(plural(len(held), "address") + " of the pool, which is disabled now, are")
	}
	if !force { // also if another caller enables the pool meanwhile
		err = e.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{name}, IfEmpty: true})
	} else if _, err = e.DisownBlocks(ctx, alloc.DisownArgs{Pool: name}); err == nil {
		err = e.RemovePool(ctx, name)
	}
	if err != nil {
		return err
	}
	l := &listing{columns: []string{"REMOVED", "PREFIX"}}
	l.add(name, map[string]string{"removed": name, "prefix": p.Pool.Prefix.String()}, name, p.Pool.Prefix.String())
	return a.print(l)
}
