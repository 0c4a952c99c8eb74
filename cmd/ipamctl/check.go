package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// problemView is a finding in JSON.
type problemView struct {
	Space   string `json:"space,omitempty"`
	Kind    string `json:"kind"`
	Where   string `json:"where,omitempty"`
	Finding string `json:"finding"`
}

func viewProblem(p audit.Problem) problemView {
	v := problemView{Kind: string(p.Kind), Finding: sentence(p)}
	switch {
	case p.Addr.IsValid():
		v.Where = p.Addr.String()
	case p.Prefix.IsValid():
		v.Where = p.Prefix.String()
	}
	return v
}

// sentences say what a finding means; what is about one record, block or address, and the detail, come
// with it.
var sentences = map[audit.Kind]string{
	audit.Damaged:       "a record cannot be read",
	audit.Overlapping:   "the block shares addresses with another one",
	audit.WrongSize:     "the block is of a size that no block of its pool has",
	audit.NoPool:        "the block is outside of every pool",
	audit.StrayAddress:  "the address has a record and its block does not hold it",
	audit.LostAddress:   "the block holds the address and its record is missing",
	audit.LostBlock:     "addresses have records and their block is missing",
	audit.StaleIndex:    "an index record does not agree with the blocks and addresses",
	audit.MissingIndex:  "an index record is missing",
	audit.WrongOwner:    "the number of blocks of an owner is not what the blocks say",
	audit.WrongPage:     "the page that finds free blocks is not what the blocks say",
	audit.OldGeneration: "sequence numbers could repeat",
	audit.Unused:        "the address is held and not in use",
	audit.NotHeld:       "the address is in use and not held",
	audit.OtherHandle:   "the address is in use by another handle than the one that holds it",
	audit.UsedTwice:     "the address is in use twice",
	audit.OutsideOfPool: "the address is in use and in no pool",
}

// sentence says what was found: where, what, and the detail.
func sentence(p audit.Problem) string {
	text := sentences[p.Kind]
	if text == "" {
		return p.String()
	}
	switch {
	case p.Addr.IsValid() && p.Prefix.IsValid():
		text = fmt.Sprintf("%v in block %v: %s", p.Addr, p.Prefix, text)
	case p.Addr.IsValid():
		text = fmt.Sprintf("%v: %s", p.Addr, text)
	case p.Prefix.IsValid():
		text = fmt.Sprintf("%v: %s", p.Prefix, text)
	case p.Key != "":
		text = fmt.Sprintf("record %q: %s", p.Key, text)
	}
	if p.Detail != "" {
		text += " (" + p.Detail + ")"
	}
	return text
}

func (a *app) checkCommand() *cobra.Command {
	var v coverage
	c := &cobra.Command{
		Use: "check", Args: cobra.NoArgs,
		Short: "Read every record and say what is wrong",
		Long: "check reads everything and compares it with itself: blocks that overlap or are in no pool, indexes that do not agree with\n" +
			"the blocks, records that cannot be read. With --in-use it compares what is held with a list of what is in use,\n" +
			"in the pools that the list covers.\n" +
			"Without --space it checks every space; the list of --in-use is compared with the space without a name.\n" +
			"It prints a sentence for each finding and ends with status 1 if there is one.\n\n" + inUseHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readAll(cmd.Context(), func(ctx context.Context, e *ipset.Engine, db store.Store) error {
				var all []spaceReport
				err := a.eachSpace(ctx, e, func(in *ipset.Engine) error {
					var list *coverage
					if in == e && v.file != "" {
						list = &v
					}
					r, err := a.examine(ctx, in, list)
					if err != nil {
						return err
					}
					all = append(all, spaceReport{space: in.Space(), Report: r})
					return a.checkOthers(ctx, db, &all[len(all)-1])
				})
				if err != nil {
					return err
				}
				return a.printProblems(all...)
			})
		},
	}
	v.flags(c)
	return c
}

// readAll is read for a command that reads every record: those of a store on the network are brought here at once, in one view, which
// costs an etcd a fraction of many small ranges.
func (a *app) readAll(ctx context.Context, f func(ctx context.Context, e *ipset.Engine, db store.Store) error) (err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	db, err := a.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var at store.Store = db
	if db.location.Kind == "etcd" || db.location.Kind == "kube" {
		if at, err = bringHere(ctx, db); err != nil {
			return err
		}
	}
	e, err := a.engine(at)
	if err != nil {
		return err
	}
	return f(ctx, e, at)
}

// bringHere reads a store into memory.
func bringHere(ctx context.Context, db store.Store) (*store.Memory, error) {
	recs, _, err := db.List(ctx, store.Range{})
	if err != nil {
		return nil, err
	}
	here := store.NewMemory()
	for part := range slices.Chunk(recs, 10_000) {
		ops := make([]store.Op, len(part))
		for i, r := range part {
			ops[i] = store.Op{Kind: store.Put, Key: r.Key, Value: r.Value}
		}
		if _, err := here.Commit(ctx, ops); err != nil {
			return nil, err
		}
	}
	return here, nil
}

// checkOthers checks what a space holds beside addresses.
func (a *app) checkOthers(ctx context.Context, db store.Store, r *spaceReport) (err error) {
	if r.space != "" {
		if db, err = store.Space(db, r.space); err != nil {
			return err
		}
	}
	if err := a.checkPrefixes(ctx, db, r); err != nil {
		return err
	}
	return checkAttachments(ctx, db, r)
}

// spaceReport is what was found in a space.
type spaceReport struct {
	space       string
	prefixes    int
	attachments int
	*audit.Report
}

// examine runs Check, with a list of what is in use if there is one.
func (a *app) examine(ctx context.Context, e *ipset.Engine, v *coverage) (*audit.Report, error) {
	var uses iter.Seq[audit.InUse]
	if v != nil {
		if err := v.load(ctx, a, e); err != nil {
			return nil, err
		}
		uses = slices.Values(v.list)
	}
	defer a.progress("checking")()
	r, err := e.Operator().Check(ctx, uses)
	if v != nil && err == nil {
		err = v.narrow(ctx, e, r)
	}
	return r, err
}

// ofList are the findings that compare with a list of what is in use.
var ofList = []audit.Kind{audit.Unused, audit.NotHeld, audit.OtherHandle, audit.UsedTwice, audit.OutsideOfPool}

// narrow drops the findings about addresses that the list is not complete for, and about those assigned after it.
func (v *coverage) narrow(ctx context.Context, e *ipset.Engine, r *audit.Report) error {
	young := map[netip.Addr]bool{}
	if slices.ContainsFunc(r.Problems, func(p audit.Problem) bool { return p.Kind == audit.Unused }) {
		for al, err := range e.Allocations(ctx, netip.Prefix{}) {
			if err != nil {
				return err
			}
			if v.young(al) {
				young[al.Address] = true
			}
		}
	}
	r.Problems = slices.DeleteFunc(r.Problems, func(p audit.Problem) bool {
		return slices.Contains(ofList, p.Kind) && !v.covers(p.Addr) || p.Kind == audit.Unused && (young[p.Addr] || !v.frees(p.Addr))
	})
	return nil
}

func (a *app) printProblems(reports ...spaceReport) error {
	l := &listing{columns: []string{"KIND", "WHERE", "FINDING"}}
	blocks, allocations, held, attached, kinds := 0, 0, 0, 0, map[audit.Kind]int{}
	for _, r := range reports {
		blocks, allocations, held, attached = blocks+r.Blocks, allocations+r.Allocations, held+r.prefixes, attached+r.attachments
		for _, p := range r.Problems {
			kinds[p.Kind]++
			v := viewProblem(p)
			text := v.Finding
			if v.Space = r.space; r.space != "" {
				text = fmt.Sprintf("space %q: %s", r.space, text)
			}
			l.add(v.Where, v, v.Kind, v.Where, text)
		}
	}
	sums := ""
	for i, k := range slices.Sorted(maps.Keys(kinds)) {
		sums += map[bool]string{true: ": ", false: ", "}[i == 0] + fmt.Sprint(kinds[k], " ", k)
	}
	what := []string{plural(blocks, "block"), plural(allocations, "address")}
	if held > 0 {
		what = append(what, plural(held, "prefix"))
	}
	if attached > 0 {
		what = append(what, plural(attached, "attachment"))
	}
	last := len(what) - 1
	a.note("%s and %s checked, %s%s", strings.Join(what[:last], ", "), what[last], plural(len(l.rows), "finding"), sums)
	if a.format == "table" {
		for _, r := range l.rows {
			fmt.Fprintln(a.stdout, printable(r.cells[2]))
		}
	} else if err := a.print(l); err != nil {
		return err
	}
	if len(l.rows) > 0 {
		return errFindings
	}
	return nil
}

// plural counts things.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case noun == "address" || noun == "prefix":
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
