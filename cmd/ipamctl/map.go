package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// mapFlags are those of map.
type mapFlags struct {
	by, host, order, view, in, svg, diff, candidates string
	fit, cells                                       int
	ascii                                            bool
}

func (a *app) mapCommand() *cobra.Command {
	var f mapFlags
	c := &cobra.Command{
		Use: "map [POOL...]", Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completePools,
		Short: "Draw pools: what is free, used, reserved, cooling, borrowed, without owner, leaked",
		Long: "map draws pools in Hilbert order, in which each aligned prefix is a square or two, with --order rows in rows, or with --view\n" +
			"sizes a row for each prefix length with where such a prefix is free. On a terminal it draws with colours; with --svg it writes\n" +
			"a picture whose cells tell prefix, state, holder and count under the pointer; -o json prints the cells. Of a pool with more\n" +
			"blocks than can be drawn, such as one of IPv6, it draws those in which something is, in rows.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.look(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.drawMap(ctx, e, &f, args) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.by, "by", "state", "colour by `WHAT`: state, host or pool")
	flags.StringVar(&f.host, "host", "", "colour only what this `HOST` has")
	flags.StringVar(&f.order, "order", "hilbert", "the `ORDER` of the cells: hilbert or rows")
	flags.StringVar(&f.view, "view", "hilbert", "the `VIEW`: hilbert or sizes")
	flags.IntVar(&f.fit, "fit", 0, "show where a prefix of this `LENGTH` is free")
	flags.StringVar(&f.in, "in", "", "draw only this `PREFIX`")
	flags.IntVar(&f.cells, "cells", 4096, "the most cells of a picture in -o json, yaml and csv")
	flags.StringVar(&f.svg, "svg", "", "write a picture to this `FILE`, - for standard output")
	flags.StringVar(&f.diff, "diff", "", "show what changed since the state of this other `STORE`, such as a backup")
	flags.StringVar(&f.candidates, "candidates", "", "mark the leak candidates in this `FILE` of gc")
	flags.BoolVar(&f.ascii, "ascii", false, "draw in plain ASCII")
	return c
}

func (f *mapFlags) check() error {
	if !slices.Contains([]string{"state", "host", "pool"}, f.by) {
		return fail(exitUsage, "--by %s: state, host or pool is needed", f.by)
	}
	if !slices.Contains([]string{"hilbert", "sizes"}, f.view) {
		return fail(exitUsage, "--view %s: hilbert or sizes is needed", f.view)
	}
	if f.order != "hilbert" && f.order != "rows" {
		return fail(exitUsage, "--order %s: hilbert or rows is needed", f.order)
	}
	if f.host != "" && f.by != "state" && f.by != "host" {
		return fail(exitUsage, "--host colours a host; --by %s does not go with it", f.by)
	}
	if f.host != "" {
		f.by = "host"
	}
	if f.diff != "" && f.by != "state" {
		return fail(exitUsage, "--diff shows states; --by %s does not go with it", f.by)
	}
	if f.cells == 0 || f.fit > 128 {
		return fail(exitUsage, "--cells %d, --fit %d: a picture has a cell, and no prefix is longer than /128", f.cells, f.fit)
	}
	if f.fit != 0 {
		f.view = "sizes"
	}
	if f.svg != "-" && f.svg != "" && exists(f.svg) {
		return fail(exitConflict, "%s exists", f.svg)
	}
	return nil
}

func (a *app) drawMap(ctx context.Context, e *ipset.Engine, f *mapFlags, names []string) error {
	done := a.progress("reading the pools")
	pictures, err := a.pictures(ctx, e, f, names)
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
		return a.print(cellListing(pictures, f))
	}
	return a.writeText(f, pictures)
}

// pictures reads what is drawn.
func (a *app) pictures(ctx context.Context, e *ipset.Engine, f *mapFlags, names []string) ([]addrmap.Picture, error) {
	s := surveyor{by: f.by, handles: f.diff != "", leaked: map[netip.Addr]uint64{}}
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
		if f.fit > space.Pool.Addr().BitLen() {
			return nil, fail(exitUsage, "--fit %d: pool %s is of IPv4, whose longest prefix is /32", f.fit, space.Name)
		}
		p := addrmap.Picture{Space: space, ByLabel: f.by != "state", Rows: f.order == "rows", Bits: f.fit}
		if in.IsValid() && in.Bits() > space.Pool.Bits() {
			p.Prefix = in
		}
		if f.by == "pool" {
			for i := range space.Spans {
				space.Spans[i].Label = space.Name
			}
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
		if s.reserved, err = e.Operator().Reservations(ctx); err != nil {
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
	var out bytes.Buffer
	if err := addrmap.SVG(&out, addrmap.SVGStyle{Sizes: f.view != "hilbert"}, pictures...); err != nil {
		return err
	}
	if f.svg == "-" {
		_, err := a.stdout.Write(out.Bytes())
		return err
	}
	return create(f.svg, out.Bytes())
}

func (a *app) writeText(f *mapFlags, pictures []addrmap.Picture) error {
	views := map[string]addrmap.View{"hilbert": addrmap.Hilbert, "sizes": addrmap.Sizes}
	style := addrmap.TextStyle{View: views[f.view], Color: a.colored(), ASCII: f.ascii, Columns: a.columns()}
	for i, p := range pictures {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := addrmap.Text(a.stdout, p, style); err != nil {
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

// cellView is a cell in JSON.
type cellView struct {
	Pool   string           `json:"pool"`
	Prefix string           `json:"prefix"`
	State  string           `json:"state"`
	Level  int              `json:"eighths"`
	Label  string           `json:"label,omitempty"`
	Labels int              `json:"labels,omitempty"`
	Counts map[string]count `json:"addresses"`
	X      int              `json:"x"`
	Y      int              `json:"y"`
	W      int              `json:"w"`
	H      int              `json:"h"`
}

// fitView is a row of the view by size in JSON.
type fitView struct {
	Pool    string `json:"pool"`
	Bits    int    `json:"bits"`
	Count   count  `json:"count"`
	First   string `json:"first,omitempty"`
	InBlock bool   `json:"inBlock,omitempty"`
}

// cellListing lists the squares of pictures, or the rows of the view by size.
func cellListing(pictures []addrmap.Picture, f *mapFlags) *listing {
	if f.view == "sizes" {
		return fitListing(pictures, f)
	}
	order := 0
	for 1<<(order+1) <= f.cells && order < 20 {
		order++
	}
	l := &listing{columns: []string{"POOL", "PREFIX", "STATE", "EIGHTHS", "LABEL", "LABELS"}}
	for _, p := range pictures {
		in := p.Prefix
		if !in.IsValid() {
			in = p.Space.Pool
		}
		panel := p.Space.Panel(in, order, p.Rows)
		for _, q := range panel.Squares(p.ByLabel) {
			v := cellView{Pool: p.Space.Name, Prefix: q.Prefix.String(), State: q.State.String(), Level: q.Level, Label: q.Label, Labels: max(q.Labels, 0),
				Counts: map[string]count{}, X: q.X, Y: q.Y, W: q.W, H: q.H}
			for st, k := range q.Counts {
				if !k.IsZero() {
					v.Counts[addrmap.State(st).String()] = count{alloc.Count(k)}
				}
			}
			l.add(v.Prefix, v, v.Pool, v.Prefix, v.State, fmt.Sprint(v.Level), v.Label, fmt.Sprint(v.Labels))
		}
	}
	return l
}

func fitListing(pictures []addrmap.Picture, f *mapFlags) *listing {
	l := &listing{columns: []string{"POOL", "BITS", "COUNT", "FIRST", "IN BLOCK"}}
	for _, p := range pictures {
		for _, fit := range p.Space.Sizes(0) {
			if f.fit != 0 && fit.Bits != f.fit {
				continue
			}
			v := fitView{Pool: p.Space.Name, Bits: fit.Bits, Count: count{alloc.Count(fit.Count)}, InBlock: fit.InBlock}
			if fit.First.IsValid() {
				v.First = fit.First.String()
			}
			l.add(v.First, v, v.Pool, fmt.Sprint(v.Bits), v.Count.String(), v.First, fmt.Sprint(v.InBlock))
		}
	}
	return l
}
