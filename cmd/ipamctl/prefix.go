package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

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
}

func (a *app) prefixCommand() *cobra.Command {
	c := &cobra.Command{Use: "prefix", Short: "List and import what package prefixes keeps"}
	c.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the prefixes that are held",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.limit(cmd.Context())
			defer cancel()
			db, err := a.open(ctx, reading)
			if err != nil {
				return err
			}
			defer db.Close()
			of, err := a.prefixes(db)
			if err != nil {
				return err
			}
			l := &listing{columns: []string{"PREFIX", "POOL", "OWNER", "UNTIL", "ATTRIBUTES"}, empty: "no prefix is held"}
			for h, err := range of.All(ctx, netip.Prefix{}) {
				if err != nil {
					return err
				}
				v := prefixView{h.Prefix.String(), h.Pool.String(), h.Owner, timeText(h.Until), h.Attributes}
				l.add(v.Prefix, v, v.Prefix, v.Pool, v.Owner, v.Until, v.Attributes)
			}
			return a.print(l)
		},
	}, a.prefixImportCommand())
	return c
}

// prefixes returns the allocator of prefixes on a store.
func (a *app) prefixes(db store.Store) (*prefixes.Allocator, error) {
	return prefixes.New(db, prefixes.Options{Now: a.now})
}

func (a *app) prefixImportCommand() *cobra.Command {
	return a.dryRunFlag(&cobra.Command{
		Use: "import FILE", Args: cobra.ExactArgs(1),
		Short: "Take over prefixes that another program holds",
		Long: "import reads CSV with the columns prefix, pool and owner, and adds the pools that are missing, with children of the lengths that\n" +
			"the file has, and then the prefixes. It may be repeated: what is there stays. A prefix that is refused is named, and the status is\n" +
			"4: then do not let a program assign from its pool.",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			all, err := readPrefixes(text)
			if err != nil {
				return fail(exitUsage, "%s: %v", args[0], err)
			}
			return a.changeOn(cmd.Context(), making, func(ctx context.Context, _ *ipset.Engine, db store.Store) error {
				if a.dryRun {
					db = store.NewOverlay(db)
				}
				of, err := a.prefixes(db)
				if err != nil {
					return err
				}
				return a.importPrefixes(ctx, of, all)
			})
		},
	})
}

// prefixEntry is a line of a file of prefixes.
type prefixEntry struct {
	prefix, pool netip.Prefix
	owner        string
}

// readPrefixes reads a file of prefixes.
func readPrefixes(text []byte) (all []prefixEntry, err error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	head, err := r.Read()
	if err != nil || strings.ToLower(strings.Join(head, ",")) != "prefix,pool,owner" {
		return nil, errors.Join(err, errors.New("line 1: the columns prefix,pool,owner are needed"))
	}
	of := map[netip.Prefix]int{}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		p, perr := netip.ParsePrefix(rec[0])
		in, ierr := netip.ParsePrefix(rec[1])
		switch {
		case perr != nil || ierr != nil || p != p.Masked() || in != in.Masked() || !in.Contains(p.Addr()) || in.Bits() > p.Bits() || rec[2] == "":
			return nil, fmt.Errorf("line %d: want a prefix, the prefix of its pool around it, and an owner", line)
		case of[p] > 0:
			return nil, fmt.Errorf("lines %d and %d are about %v", of[p], line, p)
		}
		of[p] = line
		all = append(all, prefixEntry{p, in, rec[2]})
	}
}

// importPrefixes adds the pools and prefixes of a file. A pool that lies in another one is a prefix that has children.
func (a *app) importPrefixes(ctx context.Context, of *prefixes.Allocator, all []prefixEntry) error {
	slices.SortFunc(all, func(x, y prefixEntry) int { return x.prefix.Bits() - y.prefix.Bits() })
	children := map[netip.Prefix]prefixes.Sizes{} // the lengths of what lies in a pool or in a prefix
	for _, e := range all {
		s, there := children[e.pool]
		if s.Longest = max(s.Longest, e.prefix.Bits()); !there || e.prefix.Bits() < s.Shortest {
			s.Shortest = e.prefix.Bits()
		}
		children[e.pool] = s
	}
	held := map[netip.Prefix]bool{}
	for _, e := range all {
		held[e.prefix] = true
	}
	is, err := of.Pools(ctx)
	if err != nil {
		return err
	}
	pools, added, refused := 0, 0, 0
	for at, sizes := range children {
		if held[at] || slices.ContainsFunc(is, func(p prefixes.Pool) bool { return p.Prefix == at }) {
			continue
		}
		if err := of.AddPool(ctx, prefixes.Pool{Prefix: at, Sizes: sizes}); err != nil {
			return err
		}
		pools++
	}
	for _, e := range all {
		_, err := of.Occupy(ctx, e.prefix, prefixes.Request{Owner: e.owner, Pool: e.pool, Children: children[e.prefix]})
		switch {
		case err != nil && final(err):
			return err
		case err != nil:
			refused++
			a.note("%v: %v", e.prefix, err)
		default:
			added++
		}
	}
	l := &listing{single: true, columns: []string{"POOLS", "PREFIXES"}}
	l.add("import", map[string]int{"pools": pools, "prefixes": added, "refused": refused}, fmt.Sprint(pools), fmt.Sprint(added))
	if err := a.print(l); err != nil {
		return err
	}
	if refused > 0 {
		return fail(exitConflict, "%s refused", plural(refused, "prefix"))
	}
	return nil
}

// checkPrefixes adds what is wrong with the prefixes of a space to its report, and returns how many are held.
func (a *app) checkPrefixes(ctx context.Context, db store.Store, r *spaceReport) error {
	in := db
	if r.space != "" {
		var err error
		if in, err = store.Space(db, r.space); err != nil {
			return err
		}
	}
	of, err := a.prefixes(in)
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
