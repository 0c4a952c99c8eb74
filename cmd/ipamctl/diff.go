package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
)

func (a *app) diffCommand() *cobra.Command {
	var format, in string
	c := &cobra.Command{
		Use: "diff OTHER", Args: cobra.ExactArgs(1),
		Short: "Compare the store with another store, or with a file to import",
		Long: "diff compares settings, pools, owners of blocks, holders of addresses, prefixes, attachments and limits, of every space unless --space\n" +
			"names one. OTHER is the name of a store, or a file or directory in the --format of import. Added is what only OTHER has, removed is\n" +
			"what only the store has. It compares what both have a place for, and ends with status 1 if something differs. What import leaves out\n" +
			"of a file on purpose is listed as dropped and does not count. The addresses of a file are read a second time without the reader of\n" +
			"its format, and an address that import did not read differs.\n\n" + formatsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(importFormats, format) {
				return fail(exitUsage, "--format %s: the formats are %s", format, strings.Join(importFormats, ", "))
			}
			within, err := flagPrefix(in)
			if err != nil {
				return err
			}
			return a.readStore(cmd.Context(), func(ctx context.Context, e *ipset.Engine, db *source) error {
				stop := a.progress("comparing")
				mine, err := a.takeAll(ctx, e, db)
				if err != nil {
					return err
				}
				other, err := a.other(ctx, format, args[0])
				stop()
				if err != nil {
					return err
				}
				mine.keep(within)
				other.keep(within)
				return a.printDiff(mine, other)
			})
		},
	}
	c.Flags().StringVar(&in, "in", "", "compare only what lies in this `PREFIX`")
	c.Flags().StringVar(&format, "format", "json", "the `FORMAT` of a file: "+strings.Join(importFormats, ", "))
	return c
}

// other reads what the store is compared with.
func (a *app) other(ctx context.Context, format, name string) (*inventory, error) {
	if strings.Contains(name, "://") {
		db, err := a.openStore(ctx, "diff", name, reading)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		e, err := a.engine(db)
		if err != nil {
			return nil, err
		}
		return a.takeAll(ctx, e, db)
	}
	inv, err := a.readInventory(format, name)
	if err != nil {
		return nil, err
	}
	if inv.file = true; len(inv.calico) == 0 {
		return inv, readAgain(format, name, inv)
	}
	inv.columns = []string{"address", "handle", "host", "attributes", "alternate"}
	for _, raw := range inv.calico {
		b, err := calico.Import(raw, 0)
		if err != nil {
			return nil, err
		}
		inv.Blocks = append(inv.Blocks, blockEntry{b.Prefix().String(), b.Owner().String()})
		for al := range b.All() {
			if al.Cooling { // the columns of this format have no end
				inv.cooling = append(inv.cooling, al.Address.String())
				continue
			}
			inv.Addresses = append(inv.Addresses, addressEntryOf(al))
		}
	}
	return inv, readAgain(format, name, inv)
}

// difference is a row of diff.
type difference struct {
	Space  string `json:"space,omitempty"`
	Kind   string `json:"kind"`
	What   string `json:"what"`
	Change string `json:"change"`
	Mine   string `json:"store,omitempty"`
	Other  string `json:"other,omitempty"`
}

func (a *app) printDiff(mine, other *inventory) error {
	l := &listing{columns: []string{"KIND", "WHAT", "CHANGE", "STORE", "OTHER"}, empty: "nothing differs"}
	all := allDifferences(mine, other)
	several := slices.ContainsFunc(all, func(d difference) bool { return d.Space != "" })
	if several {
		l.columns = append([]string{"SPACE"}, l.columns...)
	}
	for _, d := range all {
		cells := []string{spaceText(d.Space), d.Kind, d.What, d.Change, d.Mine, d.Other}
		if !several {
			cells = cells[1:]
		}
		l.add(d.What, d, cells...)
	}
	if err := a.print(l); err != nil || !slices.ContainsFunc(all, func(d difference) bool { return d.Change != onPurpose }) {
		return err
	}
	return errFindings
}

// onPurpose is the change of what a file has and import leaves out, which counts it. It is no difference for the status.
const onPurpose = "dropped"

// allDifferences compares all spaces.
func allDifferences(mine, other *inventory) []difference {
	all := differences(mine, other)
	if mine.noOthers || other.noOthers {
		return all
	}
	names := map[string]bool{}
	for _, spaces := range []map[string]*inventory{mine.Spaces, other.Spaces} {
		for name := range spaces {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y := cmp.Or(mine.Spaces[name], &inventory{}), cmp.Or(other.Spaces[name], &inventory{})
		y.file = other.file
		for _, d := range differences(x, y) {
			d.Space = name
			all = append(all, d)
		}
	}
	return all
}

// ofNumbers reports whether an inventory is of a range of numbers, each of which is an address.
func (inv *inventory) ofNumbers() bool {
	return len(inv.Pools) == 1 && inv.Pools[0].Name == "numbers" && inv.Pools[0].Prefix == "fd00::/80"
}

// differences compares what both inventories of a space have a place for.
func differences(mine, other *inventory) (all []difference) {
	l := lacks{mine.noHosts || other.noHosts, mine.noBlocks || other.noBlocks, mine.noDetails || other.noDetails, mine.noPools || other.noPools, mine.noOthers || other.noOthers}
	if !l.noPools && (!l.noDetails || len(other.Pools) > 0) {
		all = append(all, comparePools(mine, other, l)...)
	}
	if !l.noDetails && !l.noPools {
		notes := other.poolFields == nil // the format has a place for them
		x, y := settingsOf(mine, notes), settingsOf(other, notes)
		if other.poolFields != nil && other.Config == nil { // the file has none
			delete(x, "configuration")
		}
		if other.poolFields != nil && len(other.Reservations) == 0 {
			delete(x, "reservations")
			delete(y, "reservations")
		}
		all = append(all, compareMaps("setting", x, y, equal)...)
	}
	for _, at := range other.over {
		all = append(all, difference{Kind: "item", What: at, Change: onPurpose, Other: "its time is over"})
	}
	for field, n := range other.dropped {
		all = append(all, difference{Kind: "field", What: field, Change: onPurpose, Other: fmt.Sprint(n)})
	}
	for _, r := range other.refused {
		all = append(all, difference{Kind: "item", What: r.what, Change: "not read", Other: r.why.Error()})
	}
	if !l.noBlocks {
		blocks := func(inv *inventory) map[string]string {
			m := map[string]string{}
			for _, b := range inv.Blocks {
				m[b.Block] = b.Owner
			}
			return m
		}
		all = append(all, compareMaps("block", blocks(mine), blocks(other), equal)...)
	}
	if !l.noDetails || len(other.Addresses) > 0 || len(other.Blocks) == 0 {
		x, y := holdersOf(mine, l, other.columns), holdersOf(other, l, other.columns)
		all = append(all, compareMaps("address", l.said(x), l.said(y), func(string, string) bool { return true })...)
		for at := range x {
			if _, there := y[at]; there && !l.sameAll(other.columns, x[at], y[at]) {
				all = append(all, difference{"", "address", at, "changed", l.text(x[at]), l.text(y[at])})
			}
		}
	}
	if !l.noOthers {
		x, y := mine.others.texts(), other.others.texts()
		for _, kind := range otherKinds {
			all = append(all, compareMaps(kind, x[kind], y[kind], equal)...)
		}
	}
	for k := range all {
		at, err := netip.ParseAddr(all[k].What)
		if err == nil && all[k].Kind == "address" && (mine.ofNumbers() || other.ofNumbers()) {
			b := at.As16()
			all[k].Kind, all[k].What = "number", fmt.Sprint(binary.BigEndian.Uint64(b[8:]))
		}
	}
	slices.SortStableFunc(all, func(x, y difference) int {
		if c := slices.Index(kinds, x.Kind) - slices.Index(kinds, y.Kind); c != 0 {
			return c
		}
		return compareWhere(x.What, y.What)
	})
	return all
}

// kinds are the kinds of differences, in the order in which they are shown.
var kinds = append([]string{"field", "item", "setting", "pool", "block", "address"}, otherKinds...)

func equal(x, y string) bool { return x == y }

// comparePools compares the pools by prefix, with all settings if both sides have them.
func comparePools(mine, other *inventory, l lacks) (all []difference) {
	byPrefix := func(inv *inventory) (names map[string]string, entries map[string]poolEntry) {
		names, entries = map[string]string{}, map[string]poolEntry{}
		for _, p := range inv.Pools {
			names[p.Prefix], entries[p.Prefix] = p.Name, p.withDefaults()
		}
		return names, entries
	}
	x, xs := byPrefix(mine)
	y, ys := byPrefix(other)
	all = compareMaps("pool", x, y, func(string, string) bool { return true })
	if l.noDetails {
		return all
	}
	for at, p := range xs {
		q, there := ys[at]
		if other.file {
			p.Closed, q.Closed = false, false // until it is opened
		}
		names := slices.DeleteFunc(differing(p, q), func(name string) bool { return other.poolFields != nil && !slices.Contains(other.poolFields, name) })
		if there && len(names) > 0 {
			all = append(all, difference{"", "pool", at, "changed", p.settings(names), q.settings(names)})
		}
	}
	return all
}

// settings says some settings of a pool.
func (e poolEntry) settings(names []string) string {
	text := e.Name
	for _, n := range names {
		if n != "Name" {
			text += fmt.Sprintf(" %s=%v", strings.ToLower(n), reflect.ValueOf(e).FieldByName(n))
		}
	}
	return text
}

// settingsOf returns the reservations and the configuration.
func settingsOf(inv *inventory, notes bool) map[string]string {
	m := map[string]string{}
	var all []alloc.Reservation
	for _, entry := range inv.Reservations {
		if r, err := entry.reservation(); err == nil {
			if all = append(all, r); notes {
				m[strings.TrimSpace("reservation "+rangeText(r.Range)+" "+r.By)] = strings.TrimSpace(timeText(r.Since) + " " + r.Note)
			}
		}
	}
	if set, err := alloc.ReservedSet(all); err == nil && !notes {
		var parts []string
		for _, r := range set.Ranges() {
			parts = append(parts, rangeText(r))
		}
		m["reservations"] = strings.Join(parts, " ")
	}
	if inv.Config != nil {
		m["configuration"] = fmt.Sprintf("strict %v, no-auto-blocks %v, max-blocks-per-host %d", inv.Config.Strict, inv.Config.NoAutoBlocks, inv.Config.MaxBlocksPerHost)
	}
	return m
}

// holdersOf returns the holders of each address, in the order of their handles.
func holdersOf(inv *inventory, l lacks, columns []string) map[string][]addressEntry {
	m := map[string][]addressEntry{}
	for _, e := range inv.Addresses {
		if e.Cooling && (l.noDetails || columns != nil && !slices.Contains(columns, "cooling")) {
			continue
		}
		m[e.Address] = append(m[e.Address], e)
	}
	for _, all := range m {
		slices.SortFunc(all, func(x, y addressEntry) int { return strings.Compare(x.Handle, y.Handle) })
	}
	return m
}

// said says who holds each address.
func (l lacks) said(m map[string][]addressEntry) map[string]string {
	t := map[string]string{}
	for at, all := range m {
		t[at] = l.text(all)
	}
	return t
}

// sameAll compares the holders of an address. A side that does not say which of several holders it means, such as a list of
// addresses, is compared with the first.
func (l lacks) sameAll(columns []string, xs, ys []addressEntry) bool {
	if len(xs) != len(ys) && !(l.noDetails && (xs[0].Handle == "" || ys[0].Handle == "")) {
		return false
	}
	for i := range min(len(xs), len(ys)) {
		if !l.same(columns, xs[i], ys[i]) {
			return false
		}
	}
	return true
}

// same compares what both sides say of a holder; columns are those of the file, nil for all.
func (l lacks) same(columns []string, x, y addressEntry) bool {
	x, y = x.only(columns), y.only(columns)
	if l.noDetails {
		return (x.Handle == y.Handle || x.Handle == "" || y.Handle == "") && (l.noHosts || x.Host == y.Host || x.Host == "" || y.Host == "")
	}
	if x.Since == "" || y.Since == "" { // a source that does not say
		x.Since, y.Since = "", ""
	}
	return reflect.DeepEqual(x.plain(), y.plain())
}

// only returns an entry with what some columns of CSV have of it, nil for all.
func (e addressEntry) only(columns []string) addressEntry {
	if columns == nil {
		return e
	}
	for column, field := range map[string]any{"handle": &e.Handle, "host": &e.Host, "attributes": &e.Attributes, "until": &e.Until,
		"alternate": &e.Alternate, "reason": &e.Reason, "since": &e.Since} {
		if !slices.Contains(columns, column) {
			reflect.ValueOf(field).Elem().SetZero()
		}
	}
	if !slices.Contains(columns, "share") {
		e.Share = nil
	}
	return e
}

// plain returns an entry in which what is empty is nil. An import keeps an address that was cooling out of use without its
// handle's right to take it back, so cooling addresses are compared by their end.
func (e addressEntry) plain() addressEntry {
	if len(e.Attributes) == 0 {
		e.Attributes = nil
	}
	if len(e.Alternate) == 0 {
		e.Alternate = nil
	}
	if e.Cooling {
		return addressEntry{Address: e.Address, Until: e.Until, Cooling: true}
	}
	return e
}

// text says who holds an address.
func (l lacks) text(all []addressEntry) string {
	var parts []string
	for _, e := range all {
		part := e.Handle
		if !l.noHosts && e.Host != "" {
			part += " on " + e.Host
		}
		if !l.noDetails {
			for _, d := range []struct{ name, value string }{{"since", e.Since}, {"until", e.Until}, {"with", attributesText(e.Attributes)}, {"alternate", attributesText(e.Alternate)}} {
				if d.value != "" {
					part += " " + d.name + " " + d.value
				}
			}
			if e.Cooling {
				part += " cooling"
			}
			if e.Share != nil {
				part += fmt.Sprintf(" shared by %d %q", e.Share.Max, e.Share.Key)
			}
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func compareMaps(kind string, mine, other map[string]string, same func(x, y string) bool) (all []difference) {
	keys := map[string]bool{}
	for _, m := range []map[string]string{mine, other} {
		for k := range m {
			keys[k] = true
		}
	}
	for k := range keys {
		x, here := mine[k]
		y, there := other[k]
		switch {
		case !here:
			all = append(all, difference{"", kind, k, "added", "", y})
		case !there:
			all = append(all, difference{"", kind, k, "removed", x, ""})
		case !same(x, y):
			all = append(all, difference{"", kind, k, "changed", x, y})
		}
	}
	slices.SortFunc(all, func(x, y difference) int { return compareWhere(x.What, y.What) })
	return all
}

// compareWhere orders prefixes and addresses as numbers.
func compareWhere(x, y string) int {
	p, perr := parsePrefix(x)
	q, qerr := parsePrefix(y)
	if perr != nil || qerr != nil {
		return strings.Compare(x, y)
	}
	if c := p.Addr().Compare(q.Addr()); c != 0 {
		return c
	}
	return p.Bits() - q.Bits()
}
