package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

func (a *app) hostRenameCommand() *cobra.Command {
	var merge bool
	c := a.destructiveFlags(&cobra.Command{
		Use: "rename HOST NEW-NAME", Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeHosts,
		Short: "Move the blocks and addresses of a host to a new name",
		Long: "rename is for a host that has another name and still uses its addresses. Stop its programs first. Each address has a new\n" +
			"sequence number, so late calls for the former name fail. A new name that has blocks or addresses is refused without --merge.\n" +
			"It may be repeated, and then continues.",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := ownerOf(args[0])
			if err != nil {
				return err
			}
			to, err := ownerOf(args[1])
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "rename host "+args[0]+" to "+args[1], args[0]); err != nil {
				return err
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error {
				moved, blocks, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: from, To: to, Merge: merge})
				l := &listing{columns: []string{"WHAT", "MOVED", "HANDLE"}, empty: fmt.Sprintf("%v has no block and no address", from)}
				for _, al := range moved {
					l.add(al.Address.String(), map[string]string{"address": al.Address.String(), "handle": al.Handle}, "address", al.Address.String(), al.Handle)
				}
				for _, b := range blocks {
					l.add(b.String(), map[string]string{"block": b.String()}, "block", b.String(), "")
				}
				return a.printThen(l, err)
			})
		},
	})
	c.Flags().BoolVar(&merge, "merge", false, "also if the new name has blocks or addresses")
	return c
}

func (a *app) addressTransferCommand() *cobra.Command {
	return a.destructiveFlags(&cobra.Command{
		Use: "transfer FROM TO [ADDRESS...]", Args: cobra.MinimumNArgs(2),
		Short: "Give the addresses of a handle to another handle",
		Long: "transfer gives the named addresses of the handle FROM, or all that it holds, to the handle TO. They keep their host, attributes\n" +
			"and lease. A named address may also be cooling after FROM released it. Nothing changes if one of the named addresses cannot be\n" +
			"given. It may be repeated.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t := alloc.TransferArgs{From: args[0], To: args[1]}
			named := make([]netip.Addr, len(args)-2)
			for i := range named {
				ip, err := parseAddr(args[i+2])
				if err != nil {
					return err
				}
				named[i] = ip
			}
			if len(named) == 0 {
				if err := a.confirm(cmd.Context(), fmt.Sprintf("transfer every address of %s to %s", t.From, t.To), t.From); err != nil {
					return err
				}
			}
			return a.change(cmd.Context(), writing, func(ctx context.Context, e *ipset.Engine) error { return a.transfer(ctx, e, t, named) })
		},
	})
}

// transfer makes the calls, after a dry run of all of them.
func (a *app) transfer(ctx context.Context, e *ipset.Engine, t alloc.TransferArgs, named []netip.Addr) error {
	all := func(e *ipset.Engine) (moved []alloc.Allocation, err error) {
		if len(named) == 0 {
			return e.Transfer(ctx, t)
		}
		for _, t.Address = range named {
			als, err := e.Transfer(ctx, t)
			if err != nil {
				return moved, err
			}
			moved = append(moved, als...)
		}
		return moved, nil
	}
	if len(named) > 1 {
		if _, err := all(e.DryRun()); err != nil {
			return err
		}
	}
	moved, err := all(e)
	if err == nil && len(moved) == 0 {
		a.note("%s holds no address", t.From)
	}
	return a.after(ctx, e, &listing{columns: allocationColumns}, moved, err)
}
