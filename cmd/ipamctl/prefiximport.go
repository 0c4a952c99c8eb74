package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func (a *app) prefixImportCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "import FILE", Args: cobra.ExactArgs(1),
		Short: "Take over prefixes that another program holds",
		Long: "import reads CSV with the columns prefix, pool and owner, and adds the pools that are missing, with children of the lengths that\n" +
			"the file has, and then the prefixes. It may be repeated: what is there stays. A prefix that is refused is named, and the status is\n" +
			"4: what is free of it is held by \"refused by import: OWNER\" with the reason, until an import takes it or prefix release ends that.",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			all, err := readPrefixes(text)
			if err != nil {
				return fail(exitUsage, "%s: %v", args[0], err)
			}
			return a.changeRecords(cmd.Context(), making, func(ctx context.Context, db store.Store) error {
				of, err := a.prefixes(db)
				if err != nil {
					return err
				}
				return a.importPrefixes(ctx, of, all)
			})
		},
	})
}

// readPrefixes reads a file of prefixes.
func readPrefixes(text []byte) (all []prefixes.Holding, err error) {
	err = readRows(text, "prefix,pool,owner", func(rec []string) (string, error) {
		p, perr := netip.ParsePrefix(rec[0])
		in, ierr := netip.ParsePrefix(rec[1])
		if perr != nil || ierr != nil || p != p.Masked() || in != in.Masked() || !in.Contains(p.Addr()) || in.Bits() > p.Bits() || rec[2] == "" {
			return "", errors.New("want a prefix, the prefix of its pool around it, and an owner")
		}
		all = append(all, prefixes.Holding{Prefix: p, Pool: in, Owner: rec[2]})
		return p.String(), nil
	})
	return all, err
}

// importPrefixes brings the prefixes of a file of CSV. A pool that lies in another one is a prefix that has children.
func (a *app) importPrefixes(ctx context.Context, of *prefixes.Allocator, all []prefixes.Holding) error {
	children := map[netip.Prefix]prefixes.Sizes{} // the lengths of what lies in a pool or in a prefix
	for _, e := range all {
		s, there := children[e.Pool]
		if s.Longest = max(s.Longest, e.Prefix.Bits()); !there || e.Prefix.Bits() < s.Shortest {
			s.Shortest = e.Prefix.Bits()
		}
		children[e.Pool] = s
	}
	roots := maps.Clone(children)
	for k := range all {
		all[k].Children = children[all[k].Prefix]
		delete(roots, all[k].Prefix)
	}
	var pools []prefixes.Pool
	for at, sizes := range roots {
		pools = append(pools, prefixes.Pool{Prefix: at, Sizes: sizes})
	}
	i := &prefixImport{app: a, of: of}
	if err := i.bring(ctx, pools, all); err != nil {
		return err
	}
	l := &listing{single: true, columns: []string{"POOLS", "PREFIXES"}}
	l.add("import", map[string]int{"pools": i.pools, "prefixes": i.added + i.there, "refused": len(i.refused)}, fmt.Sprint(i.pools), fmt.Sprint(i.added+i.there))
	if err := a.print(l); err != nil {
		return err
	}
	for _, r := range i.refused {
		a.note("%s: %v", strings.TrimPrefix(r.what, "prefix "), r.why)
	}
	if len(i.refused) > 0 {
		return fail(exitConflict, "%s refused and reserved", plural(len(i.refused), "prefix"))
	}
	return nil
}

// prefixImport is an import of prefixes.
type prefixImport struct {
	*app
	of    *prefixes.Allocator
	exact bool // the source says sizes, children, attributes and leases

	pools, added, there int
	refused             []refusal
}

// bring adds pools and then prefixes. What is there stays.
func (i *prefixImport) bring(ctx context.Context, pools []prefixes.Pool, all []prefixes.Holding) error {
	slices.SortFunc(all, func(x, y prefixes.Holding) int { return x.Prefix.Bits() - y.Prefix.Bits() })
	is, err := i.of.Pools(ctx)
	if err != nil {
		return err
	}
	for _, p := range pools {
		at := slices.IndexFunc(is, func(q prefixes.Pool) bool { return q.Prefix == p.Prefix })
		switch {
		case at < 0:
			if err = i.of.AddPool(ctx, p); err == nil {
				i.pools++
			}
		case i.exact && is[at] != p:
			err = fail(exitConflict, "it assigns %v", sizesView(is[at].Sizes))
		default:
			i.there++
		}
		if err = i.refuse("prefix pool", p.Prefix, err); err != nil {
			return err
		}
	}
	for _, e := range all {
		if _, err := i.of.ReleaseByOwner(ctx, refusedBy(e.Owner)); err != nil { // of an earlier import
			return err
		}
	}
	for _, e := range all {
		err := i.prefix(ctx, e)
		if err != nil && !final(err) {
			if rerr := reservePrefix(ctx, i.of, e, err.Error()); rerr != nil {
				return rerr
			}
		}
		if err = i.refuse("prefix", e.Prefix, err); err != nil {
			return err
		}
	}
	return nil
}

// refuse notes what cannot be taken, and returns an error that ends the import.
func (i *prefixImport) refuse(kind string, at netip.Prefix, err error) error {
	if err == nil || final(err) {
		return err
	}
	i.refused = append(i.refused, refusal{what: kind + " " + at.String(), why: err})
	return nil
}

// prefix brings one prefix.
func (i *prefixImport) prefix(ctx context.Context, e prefixes.Holding) error {
	is, err := i.of.Get(ctx, e.Prefix)
	r := prefixes.Request{Owner: e.Owner, Pool: e.Pool, Children: e.Children, Attributes: e.Attributes}
	if !e.Until.IsZero() {
		r.TTL = e.Until.Sub(i.now())
	}
	switch e.Level = is.Level; {
	case err != nil && !errors.Is(err, ipalloc.ErrNotFound) && !errors.Is(err, ipalloc.ErrNotHeld):
		return err
	case err != nil || is.Prefix != e.Prefix || is.Owner != e.Owner || is.Pool != e.Pool:
		if _, err = i.of.Occupy(ctx, e.Prefix, r); err == nil {
			i.added++
		}
		return err
	case i.exact && is != e:
		return fail(exitConflict, "%q has it with other children, attributes or another end", e.Owner)
	}
	i.there++
	return nil
}

// refusedBy is the owner of what is reserved in place of a prefix that an import refused.
func refusedBy(owner string) string { return "refused by import: " + owner }

// reservePrefix has what is free of a refused prefix held with the reason, in pieces of the sizes that its pool hands out.
func reservePrefix(ctx context.Context, of *prefixes.Allocator, e prefixes.Holding, why string) error {
	var sizes prefixes.Sizes
	pools, err := of.Pools(ctx)
	for _, p := range pools {
		if p.Prefix == e.Pool {
			sizes = p.Sizes
		}
	}
	if err == nil && sizes == (prefixes.Sizes{}) {
		var h prefixes.Holding
		h, err = of.Get(ctx, e.Pool)
		if sizes = h.Children; errors.Is(err, ipalloc.ErrNotFound) { // the pool is refused itself
			err = nil
		}
	}
	if err != nil || sizes == (prefixes.Sizes{}) {
		return err
	}
	r := prefixes.Request{Owner: refusedBy(e.Owner), Pool: e.Pool, Attributes: why[:min(len(why), 1024)]}
	return reservePieces(ctx, of, r, sizes, netip.PrefixFrom(e.Prefix.Addr(), min(e.Prefix.Bits(), sizes.Longest)).Masked())
}

func reservePieces(ctx context.Context, of *prefixes.Allocator, r prefixes.Request, sizes prefixes.Sizes, at netip.Prefix) error {
	if at.Bits() >= sizes.Shortest {
		_, err := of.Occupy(ctx, at, r)
		var in *ipalloc.Error
		switch {
		case !errors.Is(err, ipalloc.ErrOccupied) || !errors.As(err, &in):
			return err
		case in.InTheWay.Bits() <= at.Bits() || at.Bits() == sizes.Longest: // all of it is held
			return nil
		}
	}
	half := netip.PrefixFrom(at.Addr(), at.Bits()+1)
	other := netip.PrefixFrom(netipx.PrefixLastIP(at), at.Bits()+1).Masked()
	return errors.Join(reservePieces(ctx, of, r, sizes, half), reservePieces(ctx, of, r, sizes, other))
}
