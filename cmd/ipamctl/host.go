package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// hostView is a host, or another owner of blocks, in JSON.
type hostView struct {
	Host      string        `json:"host"`
	Blocks    []string      `json:"blocks"`
	Addresses int           `json:"addresses"`
	Borrowed  int           `json:"borrowed"` // from blocks of others
	Lent      int           `json:"lent"`     // to others, from its own blocks
	Held      []addressView `json:"held,omitempty"`
}

// ownerOf reads an owner: "a" and "host:a" are host a, "virtual:b" is an owner that is no machine.
func ownerOf(s string) (alloc.Owner, error) {
	if !strings.HasPrefix(s, "host:") && !strings.HasPrefix(s, "virtual:") {
		s = "host:" + s
	}
	o, err := alloc.ParseOwner(s)
	if err != nil {
		return o, fail(exitUsage, "%v", err)
	}
	return o, nil
}

func (a *app) hostCommand() *cobra.Command {
	c := &cobra.Command{Use: "host", Aliases: []string{"node"}, Short: "List, rename and remove hosts"}
	c.AddCommand(a.hostListCommand(), a.hostRenameCommand(), a.hostRemoveCommand())
	return c
}

func (a *app) showHost(ctx context.Context, e *ipset.Engine, o alloc.Owner) error {
	blocks, err := e.BlocksOf(ctx, o)
	if err != nil {
		return err
	}
	als, err := e.IPsByHost(ctx, o)
	if err != nil {
		return err
	}
	if len(blocks)+len(als) == 0 {
		return fail(exitNotFound, "%v has no block and no address", o)
	}
	v := hostView{Host: o.String(), Blocks: texts(blocks), Addresses: len(als)}
	for _, p := range blocks {
		b, err := e.Operator().BlockOf(ctx, p.Addr())
		if err != nil {
			return err
		}
		if b == nil || b.Owner() != o {
			continue // changed since
		}
		for al := range b.All() {
			for h := range al.Holders() {
				if borrowed(h, o) {
					v.Lent++
				}
			}
		}
	}
	held := &listing{columns: allocationColumns}
	if err := addHeld(ctx, e, held, als); err != nil {
		return err
	}
	for _, r := range held.rows {
		w := r.item.(addressView)
		v.Held = append(v.Held, w)
		if w.Borrowed {
			v.Borrowed++
		}
	}
	l := &listing{single: true, detail: held, columns: []string{"HOST", "BLOCKS", "ADDRESSES", "BORROWED", "LENT"}}
	l.add(o.Name, v, v.Host, strings.Join(v.Blocks, ", "), fmt.Sprint(v.Addresses), fmt.Sprint(v.Borrowed), fmt.Sprint(v.Lent))
	return a.print(l)
}

// texts writes prefixes.
func texts[T fmt.Stringer](ps []T) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.String()
	}
	return out
}

func (a *app) hostListCommand() *cobra.Command {
	var notIn string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the hosts, and what they borrow and lend",
		Long: "list prints every owner of a block and every host that an address is held for: its blocks, the addresses held for it, how\n" +
			"many of them it has borrowed from blocks of others, and how many of its own blocks' addresses others have borrowed.\n" +
			"--not-in leaves those that a list of the cluster's nodes lacks, in a form that --labels of assign reads, with \"# end\".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.labels.from = notIn; notIn != "" {
				if err := a.loadLabels(cmd); err != nil {
					return err
				}
				if a.labels.cut {
					return fail(exitRefused, "%s: the list has no end; the last line of a list that is complete is \"# end\"", notIn)
				}
			}
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				l := &listing{columns: []string{"HOST", "BLOCKS", "ADDRESSES", "BORROWED", "LENT"}, empty: "no host has a block or an address"}
				return a.listSpaces(ctx, e, l, func(e *ipset.Engine) error {
					hosts, err := hostViews(ctx, e)
					for _, h := range hosts {
						name, host := strings.CutPrefix(h.Host, "host:")
						if _, known := a.labels.of[name]; notIn != "" && (known || !host) {
							continue
						}
						l.add(strings.TrimPrefix(h.Host, "host:"), *h, h.Host, fmt.Sprint(len(h.Blocks)), fmt.Sprint(h.Addresses), fmt.Sprint(h.Borrowed), fmt.Sprint(h.Lent))
					}
					return err
				})
			})
		},
	}
	c.Flags().StringVar(&notIn, "not-in", "", "only hosts that this `FILE` lacks, - for standard input")
	return c
}

// hostViews reads every block once.
func hostViews(ctx context.Context, e *ipset.Engine) ([]*hostView, error) {
	byOwner := map[alloc.Owner]*hostView{}
	var all []*hostView
	of := func(o alloc.Owner) *hostView {
		h := byOwner[o]
		if h == nil {
			h = &hostView{Host: o.String(), Blocks: []string{}}
			byOwner[o] = h
			all = append(all, h)
		}
		return h
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return nil, err
		}
		owner := b.Owner()
		if owner.Kind != alloc.Nobody {
			h := of(owner)
			h.Blocks = append(h.Blocks, b.Prefix().String())
		}
		for al := range b.All() {
			for held := range al.Holders() {
				if held.Cooling || held.Host.Kind == alloc.Nobody {
					continue
				}
				h := of(held.Host)
				h.Addresses++
				if borrowed(held, owner) {
					h.Borrowed++
					of(owner).Lent++
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y *hostView) int { return strings.Compare(x.Host, y.Host) })
	return all, nil
}
