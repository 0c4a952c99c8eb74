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

// showCommand shows what a word names, as the search of the page does.
func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ADDRESS...|BLOCK|HANDLE|HOST", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeHosts,
		Short: "Show what a word names: addresses, a block, a handle or a host",
		Long: "show ADDRESS... prints the holder, the host, the block and the pool of each address. show BLOCK, a prefix, prints a block and who\n" +
			"has its addresses. show WORD prints the addresses of the handle, or the blocks and addresses of the host or virtual owner, of that\n" +
			"name. If several have it, write handle:NAME, host:NAME or virtual:NAME. What only another space has is shown from there. The\n" +
			"status is 3 if there is nothing of that name.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.show(ctx, e, args) })
		},
	}
}

func (a *app) show(ctx context.Context, e *ipset.Engine, args []string) error {
	word := args[0]
	if _, err := netip.ParseAddr(word); err == nil || len(args) > 1 {
		in, err := a.spaceOf(ctx, e, word, func(in *ipset.Engine) (bool, error) { return knows(ctx, in, word) })
		if err != nil {
			return err
		}
		return a.showAddresses(ctx, in, args)
	}
	if strings.Contains(word, "/") {
		if p, err := parsePrefix(word); err == nil {
			in, err := a.spaceOf(ctx, e, word, func(in *ipset.Engine) (bool, error) {
				b, err := in.Operator().BlockOf(ctx, p.Addr())
				return b != nil, err
			})
			if err != nil {
				return err
			}
			return a.showBlock(ctx, in, p)
		}
	}
	return a.showName(ctx, e, word)
}

// knows reports whether an address is in a pool or in a block.
func knows(ctx context.Context, e *ipset.Engine, word string) (bool, error) {
	ip, err := parseAddr(word)
	if err != nil {
		return false, nil // showAddresses says what is wrong with it
	}
	all, err := e.Pools(ctx)
	if err != nil || poolAt(all, ip) != "" {
		return err == nil, err
	}
	b, err := e.Operator().BlockOf(ctx, ip)
	return b != nil, err
}

// meaning is what a word may name.
type meaning struct {
	text  string // the word that names it alone
	owner alloc.Owner
	held  []alloc.Allocation
}

// showName shows a handle, a host or a virtual owner.
func (a *app) showName(ctx context.Context, e *ipset.Engine, word string) error {
	var found []meaning
	in, err := a.spaceOf(ctx, e, word, func(in *ipset.Engine) (bool, error) {
		all, err := meanings(ctx, in, word)
		if len(found) == 0 {
			found = all
		}
		return len(all) > 0, err
	})
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return fail(exitNotFound, "%q is no handle that holds an address, and no host that has a block or an address", word)
	case len(found) > 1:
		names := make([]string, len(found))
		for i, m := range found {
			names[i] = m.text
		}
		return fail(exitUsage, "%q has several meanings: write %s", word, strings.Join(names, " or "))
	case found[0].owner.Kind != alloc.Nobody:
		return a.showHost(ctx, in, found[0].owner)
	}
	l := &listing{columns: allocationColumns}
	if err := addHeld(ctx, in, l, found[0].held); err != nil {
		return err
	}
	return a.print(l)
}

// meanings returns what a word names in a space.
func meanings(ctx context.Context, e *ipset.Engine, word string) (all []meaning, err error) {
	handle, only := strings.CutPrefix(word, "handle:")
	if held, err := e.IPsByHandle(ctx, handle); err != nil {
		return nil, err
	} else if len(held) > 0 {
		all = append(all, meaning{text: "handle:" + handle, held: held})
	}
	owners := []string{word}
	if !strings.HasPrefix(word, "host:") && !strings.HasPrefix(word, "virtual:") {
		owners = []string{"host:" + word, "virtual:" + word}
	}
	for _, name := range owners {
		o, err := alloc.ParseOwner(name)
		if err != nil || only {
			continue
		}
		blocks, err := e.BlocksOf(ctx, o)
		if err != nil {
			return nil, err
		}
		held, err := e.IPsByHost(ctx, o)
		if err != nil {
			return nil, err
		}
		if len(blocks)+len(held) > 0 {
			all = append(all, meaning{text: name, owner: o})
		}
	}
	return all, nil
}

// spaceOf returns the engine of the space that has something: the space that --space names, or else the one without a name if that
// has it or no space has, or else the only other one that does.
func (a *app) spaceOf(ctx context.Context, e *ipset.Engine, what string, has func(in *ipset.Engine) (bool, error)) (*ipset.Engine, error) {
	if a.spaceGiven {
		_, err := has(e)
		return e, err
	}
	var in []*ipset.Engine
	err := a.eachSpace(ctx, e, func(s *ipset.Engine) error {
		there, err := has(s)
		if there {
			in = append(in, s)
		}
		return err
	})
	if err != nil || len(in) == 0 {
		return e, err
	}
	names := make([]string, len(in))
	for i, s := range in {
		names[i] = fmt.Sprintf("%q", spaceText(s.Space()))
	}
	switch {
	case len(in) > 1 && in[0] != e:
		return nil, fail(exitUsage, "%s is in the spaces %s: name one with --space", what, strings.Join(names, " and "))
	case len(in) > 1:
		a.note("%s is also in %s: name one with --space", what, strings.Join(slices.Delete(names, 0, 1), " and "))
	case in[0] != e:
		a.note("in the space %s", names[0])
	}
	return in[0], nil
}
