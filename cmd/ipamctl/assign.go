package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// assignFlags are those of assign.
type assignFlags struct {
	host, handle, request, use string
	num4, num6                 int
	pools                      []string
	attributes                 map[string]string
	ttl                        time.Duration
	partial, existing, sticky  bool
}

func (a *app) assignCommand() *cobra.Command {
	var f assignFlags
	c := &cobra.Command{
		Use: "assign [ADDRESS...]", Args: cobra.ArbitraryArgs,
		Short: "Assign addresses to a handle on a host",
		Long: "assign gives a handle the addresses that are named, or as many as -4 and -6 say, one IPv4 address by default. What it\n" +
			"prints is held from then on. With --request, repeating the command gives the same answer.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := need(cmd, "host", "handle"); err != nil {
				return err
			}
			if err := a.loadLabels(cmd); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error { return a.assign(ctx, e, &f, args) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.host, "host", "", "the `HOST` that the addresses are for; virtual:NAME for an owner that is no machine")
	flags.StringVar(&f.handle, "handle", "", "the `HANDLE` that gets them")
	flags.IntVarP(&f.num4, "ipv4", "4", 0, "how many IPv4 addresses")
	flags.IntVarP(&f.num6, "ipv6", "6", 0, "how many IPv6 addresses")
	flags.StringSliceVar(&f.pools, "pool", nil, "only from these `POOLS`")
	flags.StringVar(&f.use, "for", "workload", "the `USE`: workload, tunnel or loadbalancer")
	flags.StringToStringVar(&f.attributes, "attribute", nil, "attributes `KEY=VALUE` kept with the addresses")
	flags.DurationVar(&f.ttl, "ttl", 0, "release them after this time; 0 does not")
	flags.StringVar(&f.request, "request", "", "a `KEY` that makes a repetition return the same addresses")
	flags.BoolVar(&f.partial, "partial", false, "accept fewer addresses than asked")
	flags.BoolVar(&f.existing, "existing", false, "return what the handle holds, if it holds any")
	flags.BoolVar(&f.sticky, "sticky", false, "give the handle the addresses back that it had last, if they are free")
	return a.namespaceFlag(a.labelsFlag(a.dryRunFlag(c)))
}

func (a *app) assign(ctx context.Context, e *ipset.Engine, f *assignFlags, args []string) error {
	owner, err := ownerOf(f.host)
	if err != nil {
		return err
	}
	attributes, err := alloc.NewAttributes(f.attributes)
	if err != nil {
		return err
	}
	use, err := parseUses([]string{f.use})
	if err != nil {
		return err
	}
	l := &listing{columns: allocationColumns}
	if len(args) > 0 {
		if f.num4+f.num6 > 0 || len(f.pools) > 0 || f.existing || f.sticky || f.partial || f.request != "" && len(args) > 1 {
			return fail(exitUsage, "with an address, the flags are --host, --handle, --for, --attribute, --ttl, and --request for a single one")
		}
		var als []alloc.Allocation
		for _, arg := range args {
			ip, err := parseAddr(arg)
			if err != nil {
				return err
			}
			al, err := e.AssignIP(ctx, alloc.AssignIPArgs{Address: ip, Owner: owner, Handle: f.handle, Attributes: attributes, TTL: f.ttl, Use: use, Request: f.request})
			if err != nil {
				return a.after(ctx, e, l, als, err)
			}
			als = append(als, al)
		}
		return a.after(ctx, e, l, als, nil)
	}
	if f.num4+f.num6 == 0 {
		f.num4 = 1
	}
	if owner.Kind == alloc.Host && len(f.pools) == 0 { // a named pool serves whatever it selects
		if err := a.needLabels(ctx, e, use); err != nil {
			return err
		}
	}
	got, err := e.AutoAssign(ctx, alloc.AssignArgs{
		Owner: owner, Num4: f.num4, Num6: f.num6, Handle: f.handle, Attributes: attributes, TTL: f.ttl, Use: use, Pools: f.pools,
		Namespace: a.labels.namespace, Partial: f.partial, Existing: f.existing, Sticky: f.sticky, Request: f.request,
	})
	if err != nil {
		return err
	}
	if len(got.V4)+len(got.V6) == 0 && len(got.Short) > 0 {
		return fail(exitFull, "pool %s: %v", got.Short[0].Pool, got.Short[0].Reason)
	}
	for _, s := range got.Short {
		a.note("pool %s gave fewer IPv%d addresses than asked: %v", s.Pool, s.Family, s.Reason)
	}
	return a.after(ctx, e, l, slices.Concat(got.V4, got.V6), nil)
}

// after prints what was assigned, also before an error.
func (a *app) after(ctx context.Context, e *ipset.Engine, l *listing, als []alloc.Allocation, err error) error {
	if len(als) > 0 {
		if err := addHeld(ctx, e, l, als); err != nil {
			return err
		}
		if err := a.print(l); err != nil {
			return err
		}
	}
	return err
}

// releaseFlags are those of release.
type releaseFlags struct {
	handle, host, ifHandle string
	seq                    uint64
}

func (a *app) releaseCommand() *cobra.Command {
	var f releaseFlags
	c := &cobra.Command{
		Use: "release [ADDRESS...]", Args: cobra.ArbitraryArgs,
		Short: "Release addresses: those named, those of a handle, or those of a host",
		Long: "release gives addresses back and prints the outcome of each. It asks for confirmation, unless --if-handle or --sequence\n" +
			"names the holder: then only addresses of that holder are released. A release may be repeated.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ways := 0
			for _, given := range []bool{len(args) > 0, f.handle != "", f.host != ""} {
				if given {
					ways++
				}
			}
			if ways != 1 || len(args) != 1 && f.seq != 0 || len(args) == 0 && f.ifHandle != "" {
				return fail(exitUsage, "release needs addresses, --handle or --host; --sequence goes with one address, --if-handle with addresses")
			}
			name := f.handle + f.host + strings.Join(args, " ")
			if f.ifHandle == "" && f.seq == 0 {
				if err := a.confirm(cmd.Context(), "release "+name, name); err != nil {
					return err
				}
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error { return a.release(ctx, e, &f, args) })
		},
	}
	c.Flags().StringVar(&f.handle, "handle", "", "release every address of this `HANDLE`")
	c.Flags().StringVar(&f.host, "host", "", "release every address held for this `HOST`, borrowed ones included")
	c.Flags().StringVar(&f.ifHandle, "if-handle", "", "only if this `HANDLE` holds the address")
	c.Flags().Uint64Var(&f.seq, "sequence", 0, "only if the allocation has this sequence `NUMBER`")
	return a.destructiveFlags(c)
}

func (a *app) release(ctx context.Context, e *ipset.Engine, f *releaseFlags, args []string) (err error) {
	l := &listing{columns: []string{"ADDRESS", "OUTCOME"}, empty: "nothing was held"}
	add := func(address, outcome string) {
		l.add(address, map[string]string{"address": address, "outcome": outcome}, address, outcome)
	}
	switch {
	case f.handle != "":
		ips, err := e.ReleaseByHandle(ctx, f.handle)
		for _, ip := range ips {
			add(ip.String(), alloc.Released.String())
		}
		return a.printThen(l, err)
	case f.host != "":
		o, err := ownerOf(f.host)
		if err != nil {
			return err
		}
		ips, err := e.ReleaseByHost(ctx, o)
		for _, ip := range ips {
			add(ip.String(), alloc.Released.String())
		}
		return a.printThen(l, err)
	}
	releases := make([]alloc.Release, len(args))
	for i, arg := range args {
		ip, err := parseAddr(arg)
		if err != nil {
			return err
		}
		releases[i] = alloc.Release{Address: ip, Guard: alloc.Guard{Handle: f.ifHandle, Seq: f.seq}}
	}
	results, err := e.ReleaseIPs(ctx, releases...)
	changed := 0
	for _, r := range results {
		add(r.Address.String(), r.Outcome.String())
		if r.Outcome == alloc.OwnerChanged {
			changed++
		}
	}
	if err == nil && changed > 0 {
		err = fail(exitConflict, "%s not released: another holder has it", plural(changed, "address"))
	}
	return a.printThen(l, err)
}

// printThen prints what was done, and returns the error that ended it.
func (a *app) printThen(l *listing, err error) error {
	if len(l.rows) > 0 || err == nil {
		if perr := a.print(l); perr != nil {
			return perr
		}
	}
	return err
}

func (a *app) hostRemoveCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "remove HOST", Aliases: []string{"rm"}, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeHosts,
		Short: "Release every address of a host and give back its blocks",
		Long:  "remove is for a host that is gone. Blocks from which others have borrowed are left without owner. It may be repeated.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := ownerOf(args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "remove host "+args[0]+" and release its addresses", args[0]); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				ips, blocks, err := e.RemoveHost(ctx, o)
				l := &listing{columns: []string{"WHAT", "RELEASED"}, empty: fmt.Sprintf("%v has no block and no address", o)}
				for _, ip := range ips {
					l.add(ip.String(), map[string]string{"address": ip.String()}, "address", ip.String())
				}
				for _, b := range blocks {
					l.add(b.String(), map[string]string{"block": b.String()}, "block", b.String())
				}
				return a.printThen(l, err)
			})
		},
	})
}
