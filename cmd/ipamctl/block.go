package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// blockView is a block in JSON.
type blockView struct {
	Block     string        `json:"block"`
	Pool      string        `json:"pool,omitempty"`
	Owner     string        `json:"owner,omitempty"`
	Since     string        `json:"since,omitempty"`
	Empty     string        `json:"emptySince,omitempty"`
	Counts    countsView    `json:"addresses"`
	Borrowed  int           `json:"borrowed"`
	Addresses []addressView `json:"held,omitempty"`
}

var blockColumns = []string{"BLOCK", "POOL", "OWNER", "USED", "COOLING", "RESERVED", "AVAILABLE"}

func (a *app) blockCommand() *cobra.Command {
	c := &cobra.Command{Use: "block", Short: "List blocks"}
	c.AddCommand(a.blockListCommand())
	return c
}

// ownerText names the owner of a block.
func ownerText(o alloc.Owner) string {
	if o.Kind == alloc.Nobody {
		return "(no owner)"
	}
	return o.String()
}

func (a *app) showBlock(ctx context.Context, e *ipset.Engine, p netip.Prefix) error {
	b, err := e.Operator().BlockOf(ctx, p.Addr())
	if err != nil {
		return err
	}
	if b == nil || !b.Prefix().Contains(p.Addr()) || b.Prefix().Bits() > p.Bits() {
		if p.IsSingleIP() {
			return fail(exitNotFound, "%v is in no block", p.Addr())
		}
		return fail(exitNotFound, "there is no block %v", p)
	}
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	use, err := blockUse(ctx, e, b.Prefix())
	if err != nil {
		return err
	}
	v := blockView{Block: b.Prefix().String(), Pool: poolAt(all, b.Prefix().Addr()), Owner: b.Owner().String(), Since: timeText(b.Claimed())}
	if since, empty := b.Empty(); empty {
		v.Empty = timeText(since)
	}
	v.Counts = countsOf(&use)
	held := &listing{columns: []string{"ADDRESS", "STATE", "HANDLE", "HOST", "UNTIL", "ATTRIBUTES"}}
	for al := range b.All() {
		for h := range al.Holders() {
			w := viewOf(h, b.Owner(), v.Pool)
			v.Addresses = append(v.Addresses, w)
			if w.Borrowed {
				v.Borrowed++
			}
			c := w.cells()
			held.add(w.Address, w, c[0], c[1], c[2], c[3], c[7], c[8])
		}
	}
	l := &listing{single: true, detail: held, columns: append(append([]string{}, blockColumns...), "BORROWED", "SINCE", "EMPTY SINCE")}
	l.add(v.Block, v, v.Block, v.Pool, ownerText(b.Owner()), v.Counts.Used.String(), v.Counts.Cooling.String(), v.Counts.Reserved.String(),
		v.Counts.Available.String(), fmt.Sprint(v.Borrowed), v.Since, v.Empty)
	return a.print(l)
}

// blockUse returns the use of one block.
func blockUse(ctx context.Context, e *ipset.Engine, p netip.Prefix) (alloc.Utilization, error) {
	use, err := e.Utilization(ctx)
	for _, pool := range use {
		for _, b := range pool.Blocks {
			if b.Prefix == p {
				return b, nil
			}
		}
	}
	return alloc.Utilization{}, errors.Join(err, fail(exitNotFound, "block %v has gone", p))
}

// blockFilter says which blocks are listed.
type blockFilter struct {
	pool, host            string
	orphans, empty, inUse bool
}

// of reports whether a block is of the host that was asked for.
func (f *blockFilter) of(b *alloc.Utilization) bool {
	return b.Owner.Name == strings.TrimPrefix(f.host, "host:") || b.Owner.String() == f.host
}

// addBlock adds a block to a list.
func addBlock(l *listing, b *alloc.Utilization) {
	v := blockView{Block: b.Prefix.String(), Pool: b.Pool, Owner: b.Owner.String(), Counts: countsOf(b)}
	l.add(v.Block, v, v.Block, v.Pool, ownerText(b.Owner), v.Counts.Used.String(), v.Counts.Cooling.String(),
		v.Counts.Reserved.String(), v.Counts.Available.String())
}

func (f *blockFilter) accepts(pool string, b *alloc.Utilization) bool {
	return (f.pool == "" || f.pool == pool) &&
		(f.host == "" || f.of(b)) &&
		(!f.orphans || b.Owner.Kind == alloc.Nobody) &&
		(!f.empty || b.Used.IsZero() && b.Cooling.IsZero()) &&
		(!f.inUse || !b.Used.IsZero())
}

func (a *app) blockListCommand() *cobra.Command {
	var f blockFilter
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the blocks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				l := &listing{columns: blockColumns}
				known := f.pool == "" && f.host == ""
				err := a.listSpaces(ctx, e, l, func(e *ipset.Engine) error {
					use, err := e.Utilization(ctx)
					for _, pool := range use {
						known = known || f.pool == pool.Pool && f.host == ""
						for i := range pool.Blocks {
							known = known || f.host != "" && f.of(&pool.Blocks[i])
							if f.accepts(pool.Pool, &pool.Blocks[i]) {
								addBlock(l, &pool.Blocks[i])
							}
						}
					}
					if known {
						l.empty = "there is no such block"
					}
					return err
				})
				switch {
				case err != nil || known:
					return err
				case f.host != "":
					return fail(exitNotFound, "host %q has no block", f.host)
				}
				return fail(exitNotFound, "there is no pool %q", f.pool)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.pool, "pool", "", "only those of this `POOL`")
	flags.StringVar(&f.host, "host", "", "only those of this `HOST`")
	flags.BoolVar(&f.orphans, "orphans", false, "only those without owner")
	flags.BoolVar(&f.empty, "empty", false, "only those with no address held or cooling")
	flags.BoolVar(&f.inUse, "in-use", false, "only those with an address held")
	return c
}
