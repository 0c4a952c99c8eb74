package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

func (a *app) poolCommand() *cobra.Command {
	c := &cobra.Command{Use: "pool", Short: "Show and change pools"}
	c.AddCommand(a.poolListCommand(), a.poolShowCommand(), a.poolFreeCommand(),
		a.poolAddCommand(), a.poolSetCommand(), a.poolResizeCommand(), a.poolSplitCommand(), a.poolMergeCommand(), a.poolOpenCommand(),
		a.poolRemoveCommand())
	return c
}

// poolView is a pool in JSON.
type poolView struct {
	Name        string     `json:"name"`
	Prefix      string     `json:"prefix"`
	BlockBits   int        `json:"blockBits"`
	State       string     `json:"state"`
	Uses        []string   `json:"uses"`
	Priority    int        `json:"priority"`
	Nodes       string     `json:"nodes,omitempty"`
	Namespaces  string     `json:"namespaces,omitempty"`
	Ranges      []string   `json:"ranges,omitempty"`
	MaxBlocks   int        `json:"maxBlocksPerHost,omitempty"`
	Subnet      bool       `json:"subnet,omitempty"`
	Cooldown    string     `json:"cooldown,omitempty"`
	Draining    []int      `json:"drainingBlockBits,omitempty"`
	Counts      countsView `json:"addresses"`
	Blocks      int        `json:"blocks"`
	LargestFree string     `json:"largestFree,omitempty"`

	Order alloc.Order `json:"order,omitempty"`
}

// countsView are addresses by state; they add up to the capacity.
type countsView struct {
	Capacity  count `json:"capacity"`
	Used      count `json:"used"`
	Cooling   count `json:"cooling"`
	Reserved  count `json:"reserved"`
	Draining  count `json:"draining,omitzero"`
	Available count `json:"available"`
}

func countsOf(u *alloc.Utilization) countsView {
	return countsView{count{u.Capacity}, count{u.Used}, count{u.Cooling}, count{u.Reserved}, count{u.Draining}, count{u.Available}}
}

// poolUse is a pool with its use.
type poolUse struct {
	alloc.Pool
	alloc.Utilization
	largest netip.Prefix // not valid if every block is taken
}

// pools returns the pools with their use, in the order in which they are tried.
func pools(ctx context.Context, e *ipset.Engine) ([]poolUse, error) {
	all, err := e.Pools(ctx)
	if err != nil {
		return nil, err
	}
	use, err := e.Utilization(ctx)
	if err != nil {
		return nil, err
	}
	s := surveyor{pools: all}
	if s.reserved, err = reserved(ctx, e); err != nil {
		return nil, err
	}
	out := make([]poolUse, 0, len(all))
	for _, p := range all {
		i := slices.IndexFunc(use, func(u alloc.Utilization) bool { return u.Pool == p.Name })
		if i < 0 {
			continue // added after the list was read
		}
		out = append(out, poolUse{p, use[i], largestFree(&use[i], s.reservedIn(p))})
	}
	return out, nil
}

// largestFree returns the largest prefix of a pool outside of every block and of what is kept back, as the map shows it.
func largestFree(u *alloc.Utilization, kept []netipx.IPRange) netip.Prefix {
	var taken []netip.Prefix
	for _, r := range kept {
		taken = r.AppendPrefixes(taken)
	}
	for _, b := range u.Blocks {
		taken = append(taken, b.Prefix)
	}
	space := addrmap.Space{Pool: u.Prefix, Spans: make([]addrmap.Span, 0, len(taken))}
	space.AddPrefixes(addrmap.Idle, "", taken...)
	space.Sort()
	largest, _ := space.LargestFree()
	return largest
}

// stateOf says in a word what a pool does.
func stateOf(p alloc.Pool) string {
	switch {
	case p.Closed:
		return "closed"
	case p.Disabled:
		return "disabled"
	case p.Manual:
		return "manual"
	}
	return "enabled"
}

func (p *poolUse) view() poolView {
	v := poolView{
		Name: p.Name, Prefix: p.Pool.Prefix.String(), BlockBits: p.BlockBits, State: stateOf(p.Pool), Uses: usesOf(p.Uses), Priority: p.Priority,
		Nodes: selectorText(p.Nodes), Namespaces: selectorText(p.Namespaces), MaxBlocks: p.MaxBlocksPerHost, Subnet: p.Subnet, Order: p.Order,
		Draining: p.Pool.Draining, Counts: countsOf(&p.Utilization), Blocks: len(p.Utilization.Blocks),
	}
	for _, r := range p.Ranges {
		v.Ranges = append(v.Ranges, r.String())
	}
	if p.Cooldown > 0 {
		v.Cooldown = p.Cooldown.String()
	}
	if p.largest.IsValid() {
		v.LargestFree = p.largest.String()
	}
	return v
}

var poolColumns = []string{"NAME", "PREFIX", "STATE", "BLOCKS", "USED", "COOLING", "RESERVED", "AVAILABLE", "USE", "LARGEST FREE"}

func (p *poolUse) cells() []string {
	largest := "-"
	if p.largest.IsValid() {
		largest = fmt.Sprintf("/%d", p.largest.Bits())
	}
	u := &p.Utilization
	return []string{p.Name, p.Pool.Prefix.String(), stateOf(p.Pool), fmt.Sprint(len(u.Blocks)), count{u.Used}.String(), count{u.Cooling}.String(),
		count{u.Reserved}.String(), count{u.Available}.String(), percent(u.Capacity.Sub(u.Available), u.Capacity), largest}
}

func (a *app) poolListCommand() *cobra.Command {
	var in string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the pools and how full they are",
		Long:  "list prints the pools in the order in which they are tried, or with --sort use the fullest one first.\nUSE is the share of the addresses that cannot be assigned now.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := flagPrefix(in)
			if err != nil {
				return err
			}
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				l := &listing{columns: poolColumns, empty: "there are no pools"}
				if in != "" {
					l.empty = "no pool overlaps " + in
				}
				return a.listSpaces(ctx, e, l, func(e *ipset.Engine) error {
					all, err := pools(ctx, e)
					for i := range all {
						if p.IsValid() && !p.Overlaps(all[i].Pool.Prefix) {
							continue
						}
						l.add(all[i].Name, all[i].view(), all[i].cells()...)
					}
					return err
				})
			})
		},
	}
	c.Flags().StringVar(&in, "in", "", "only pools that overlap this `PREFIX`")
	return c
}

// onePool returns the pool of a name, and an error that suggests those with a similar one.
func onePool(all []poolUse, name string) (*poolUse, error) {
	pools := make([]alloc.Pool, len(all))
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
		pools[i] = all[i].Pool
	}
	return nil, noPool(pools, name)
}

// noPool is the error of a name that no pool has.
func noPool(all []alloc.Pool, name string) error {
	if len(all) == 0 {
		return fail(exitNotFound, "there is no pool %q: the store has no pools", name)
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return fail(exitNotFound, "there is no pool %q; the pools are %s", name, strings.Join(names, ", "))
}

// completePools completes the name of a pool.
func (a *app) completePools(cmd *cobra.Command, _ []string, _ string) (names []string, d cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, e *ipset.Engine) error {
		all, err := e.Pools(ctx)
		for _, p := range all {
			names = append(names, p.Name+"\t"+p.Prefix.String())
		}
		return err
	}, &names)
}

// completeHosts completes the name of a host.
func (a *app) completeHosts(cmd *cobra.Command, _ []string, _ string) (names []string, d cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, e *ipset.Engine) error {
		all, err := hostViews(ctx, e)
		for _, h := range all {
			names = append(names, strings.TrimPrefix(h.Host, "host:"))
		}
		return err
	}, &names)
}

// completeSpaces completes the name of a space.
func (a *app) completeSpaces(cmd *cobra.Command, _ []string, _ string) (names []string, d cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, e *ipset.Engine) error {
		for name, err := range e.Operator().Spaces(ctx) {
			if err != nil {
				return err
			}
			names = append(names, name)
		}
		return nil
	}, &names)
}

// complete runs f, which fills in names. A store that cannot be read has none.
func (a *app) complete(cmd *cobra.Command, f func(ctx context.Context, e *ipset.Engine) error, names *[]string) ([]string, cobra.ShellCompDirective) {
	_ = a.read(cmd.Context(), f)
	return *names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) poolShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Short: "Show the settings and the use of one pool",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				all, err := pools(ctx, e)
				if err != nil {
					return err
				}
				p, err := onePool(all, args[0])
				if err != nil {
					return err
				}
				return a.print(p.listing())
			})
		},
	}
}

// listing returns what show prints of a pool.
func (p *poolUse) listing() *listing {
	v, u := p.view(), &p.Utilization
	draining := ""
	for _, n := range p.Pool.Draining {
		draining += fmt.Sprintf("/%d ", n)
	}
	if n := (count{u.Draining}); !u.Draining.IsZero() {
		draining += "with " + n.String() + " free addresses"
	}
	limit := ""
	if p.MaxBlocksPerHost > 0 {
		limit = fmt.Sprint(p.MaxBlocksPerHost)
	}
	subnet := ""
	if p.Subnet {
		subnet = "yes"
	}
	order := ""
	if p.Order != alloc.FIFO {
		order = p.Order.String()
	}
	l := &listing{single: true, columns: []string{"NAME", "PREFIX", "NOTE", "STATE", "BLOCK SIZE", "DRAINING", "ORDER", "USES", "PRIORITY", "NODES", "NAMESPACES",
		"RANGES", "BLOCKS PER HOST", "SUBNET", "COOLDOWN", "CAPACITY", "USED", "COOLING", "RESERVED", "AVAILABLE", "USE", "BLOCKS", "LARGEST FREE"}}
	l.add(p.Name, v, p.Name, v.Prefix, p.Note, v.State, fmt.Sprintf("/%d", p.BlockBits), strings.TrimSpace(draining), order, strings.Join(v.Uses, ", "),
		fmt.Sprint(p.Priority), v.Nodes, v.Namespaces, strings.Join(v.Ranges, ", "), limit, subnet, v.Cooldown, count{u.Capacity}.String(),
		count{u.Used}.String(), count{u.Cooling}.String(), count{u.Reserved}.String(), count{u.Available}.String(),
		percent(u.Capacity.Sub(u.Available), u.Capacity), fmt.Sprint(len(u.Blocks)), cmp.Or(v.LargestFree, "none"))
	return l
}

// blocksText names blocks, the first three of many.
func blocksText(blocks []string) string {
	const most = 3
	if len(blocks) <= most+1 {
		return strings.Join(blocks, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(blocks[:most], ", "), len(blocks)-most)
}
