package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// mapFlags are those of map.
type mapFlags struct {
	by, host, order, in, svg, diff, candidates string
}

func (a *app) mapCommand() *cobra.Command {
	var f mapFlags
	c := &cobra.Command{
		Use: "map [POOL...]", Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completePools,
		Short: "Draw pools: what is free, used, reserved, cooling, borrowed, without owner, leaked",
		Long: "map draws pools in Hilbert order, in which each aligned prefix is a square or two, or with --order rows in rows. With --svg it\n" +
			"writes a picture that shows prefix, state, holder and count of the cell under the pointer. Of a pool with more blocks than can be\n" +
			"drawn, such as one of IPv6, it draws only those that are not empty, in rows. pool free, block list and address list print the same\n" +
			"as rows. A pool of prefixes, whose name is its prefix, is drawn with the owners of its prefixes; what is free in a prefix\n" +
			"that is a pool itself is idle.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.lookStore(cmd.Context(), func(ctx context.Context, e *ipset.Engine, db *source) error { return a.drawMap(ctx, e, db, &f, args) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.by, "by", "state", "draw by `WHAT`: state or host")
	flags.StringVar(&f.host, "host", "", "draw only what this `HOST` has")
	flags.StringVar(&f.order, "order", "hilbert", "the `ORDER` of the cells: hilbert or rows")
	flags.StringVar(&f.in, "in", "", "draw only this `PREFIX`")
	flags.StringVar(&f.svg, "svg", "", "write a picture to this `FILE`, - for standard output")
	flags.StringVar(&f.diff, "diff", "", "show what changed since the state of this other `STORE`, such as a backup")
	flags.StringVar(&f.candidates, "candidates", "", "mark the leak candidates in this `FILE` of gc")
	return c
}

func (f *mapFlags) check() error {
	if f.by != "state" && f.by != "host" {
		return fail(exitUsage, "--by %s: state or host is needed", f.by)
	}
	if f.order != "hilbert" && f.order != "rows" {
		return fail(exitUsage, "--order %s: hilbert or rows is needed", f.order)
	}
	if f.host != "" {
		f.by = "host"
	}
	if f.diff != "" && f.by != "state" {
		return fail(exitUsage, "--diff shows states; --by %s does not go with it", f.by)
	}
	if f.svg != "-" && f.svg != "" && exists(f.svg) {
		return fail(exitConflict, "%s exists", f.svg)
	}
	return nil
}

func (a *app) drawMap(ctx context.Context, e *ipset.Engine, db store.Store, f *mapFlags, names []string) error {
	done := a.progress("reading the pools")
	pictures, err := a.pictures(ctx, e, db, f, names)
	done()
	if err != nil {
		return err
	}
	if len(pictures) == 0 {
		a.note("there are no pools")
		return nil
	}
	switch {
	case f.svg != "":
		return a.writeSVG(f, pictures)
	case a.format != "table":
		return fail(exitUsage, "-o %s: a map is a picture; pool free, block list and address list print rows", a.format)
	}
	return a.writeText(pictures)
}

// pictures reads what is drawn.
func (a *app) pictures(ctx context.Context, e *ipset.Engine, db store.Store, f *mapFlags, names []string) ([]addrmap.Picture, error) {
	s := surveyor{by: f.by, handles: f.diff != "", leaked: map[netip.Addr]uint64{}}
	if f.diff == "" && f.host == "" {
		var err error
		if s.prefixes, err = a.prefixes(db); err != nil {
			return nil, err
		}
	}
	if f.host != "" {
		var err error
		if s.host, err = ownerOf(f.host); err != nil {
			return nil, err
		}
	}
	if f.candidates != "" {
		all, err := readCandidates(f.candidates)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = new(candidates)
		}
		for _, c := range all.All {
			s.leaked[c.Address] = c.Sequence
		}
	}
	in, err := flagPrefix(f.in)
	if err != nil {
		return nil, err
	}
	spaces, err := s.spaces(ctx, e, names)
	if err != nil {
		return nil, err
	}
	if f.diff != "" {
		if err := a.compareWith(ctx, f.diff, &s, spaces); err != nil {
			return nil, err
		}
	}
	var out []addrmap.Picture
	for _, space := range spaces {
		if in.IsValid() && !in.Overlaps(space.Pool) {
			continue
		}
		p := addrmap.Picture{Space: space, ByLabel: f.by != "state", Rows: f.order == "rows"}
		if in.IsValid() && in.Bits() > space.Pool.Bits() {
			p.Prefix = in
		}
		out = append(out, p)
	}
	if in.IsValid() && len(out) == 0 {
		return nil, fail(exitNotFound, "%v is in no pool", in)
	}
	return out, nil
}

// compareWith replaces spaces by what changed since another store. A pool that the other one has not was
// empty there.
func (a *app) compareWith(ctx context.Context, other string, s *surveyor, spaces []*addrmap.Space) error {
	db, err := a.openStore(ctx, "--diff", other, reading)
	if err != nil {
		return err
	}
	defer db.Close()
	e, err := a.engine(db)
	if err != nil {
		return err
	}
	for i, after := range spaces {
		p := alloc.Pool{Name: after.Name, Prefix: after.Pool, BlockBits: after.Pool.Addr().BitLen()}
		if s.reserved, err = reserved(ctx, e); err != nil {
			return err
		}
		before, err := s.space(ctx, e, p)
		if err != nil {
			return err
		}
		before.Finest = after.Finest
		spaces[i] = compareSpaces(before, after)
	}
	return nil
}

func (a *app) writeSVG(f *mapFlags, pictures []addrmap.Picture) error {
	write := func(w io.Writer) error { return addrmap.SVG(w, addrmap.SVGStyle{}, pictures...) }
	if f.svg == "-" {
		return write(a.stdout)
	}
	return create(f.svg, write)
}

func (a *app) writeText(pictures []addrmap.Picture) error {
	for i, p := range pictures {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := addrmap.Text(a.stdout, p, a.columns()); err != nil {
			return err
		}
	}
	return nil
}

// columns returns the width of the terminal, 0 if there is none.
func (a *app) columns() int {
	if f, ok := a.stdout.(*output).Writer.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}

// freeView is a free prefix in JSON.
type freeView struct {
	Pool      string `json:"pool"`
	Prefix    string `json:"prefix"`
	State     string `json:"state"`
	Owner     string `json:"owner,omitempty"`
	Addresses count  `json:"addresses"`
}

func (a *app) poolFreeCommand() *cobra.Command {
	var fit int
	c := &cobra.Command{
		Use: "free [POOL...]", Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completePools,
		Short: "List the free prefixes of pools",
		Long: "free prints the largest aligned prefixes in which nothing is held, cooling or reserved: those outside of every block are free, those\n" +
			"in a block are idle, and available only to its owner. With --fit it prints those in which a prefix of that length has room.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				l := &listing{columns: []string{"POOL", "PREFIX", "STATE", "OWNER", "ADDRESSES"}}
				known := map[string]bool{}
				err := a.listSpaces(ctx, e, l, func(e *ipset.Engine) error {
					all, err := e.Pools(ctx)
					var names []string // of this space
					for _, p := range all {
						if known[p.Name] = true; slices.Contains(args, p.Name) {
							names = append(names, p.Name)
						}
					}
					if err != nil || len(args) > 0 && len(names) == 0 {
						return err
					}
					l.empty = "no such prefix is free"
					s := surveyor{by: "state"}
					spaces, err := s.spaces(ctx, e, names)
					for _, space := range spaces {
						for p, sp := range space.Gaps() {
							if fit > 0 && p.Bits() > fit {
								continue
							}
							v := freeView{space.Name, p.String(), sp.State.String(), sp.Label, count{alloc.Count(addrmap.SizeOf(p))}}
							l.add(v.Prefix, v, v.Pool, v.Prefix, v.State, v.Owner, v.Addresses.String())
						}
					}
					return err
				})
				for _, name := range args {
					if err == nil && !known[name] {
						err = fail(exitNotFound, "there is no pool %q in any space", name)
					}
				}
				return err
			})
		},
	}
	c.Flags().IntVar(&fit, "fit", 0, "only those with room for a prefix of this `LENGTH`")
	return c
}
