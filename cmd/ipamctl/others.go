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
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// others are the records of a space that do not have the form of addresses, in JSON. Numbers and kept addresses have that form: each
// range of numbers is a space, and a kept address has its keeper as a holder. The cursors of networks are left out.
type others struct {
	PrefixPools []prefixPoolView `json:"prefixPools,omitempty"`
	Prefixes    []prefixView     `json:"prefixes,omitempty"`
	Attachments []attachmentView `json:"attachments,omitempty"`
	Limits      []limitView      `json:"limits,omitempty"`
}

// sizesView are the lengths of the prefixes that a pool assigns.
type sizesView struct {
	Shortest int `json:"shortest"`
	Longest  int `json:"longest"`
}

func (s sizesView) String() string { return fmt.Sprintf("/%d to /%d", s.Shortest, s.Longest) }

// prefixPoolView is a pool of prefixes.
type prefixPoolView struct {
	Pool string `json:"pool"`
	sizesView
}

// limitView is a limit. An export leaves out what counts under it.
type limitView struct {
	Limit string `json:"limit"`
	Most  int    `json:"most"`
	Used  *int   `json:"used,omitempty"`
}

// takeOthers reads the records that do not have the form of addresses.
func (a *app) takeOthers(ctx context.Context, db store.Store) (o others, err error) {
	of, err := a.prefixes(db)
	if err != nil {
		return o, err
	}
	pools, err := of.Pools(ctx)
	for _, p := range pools {
		o.PrefixPools = append(o.PrefixPools, prefixPoolView{p.Prefix.String(), sizesView(p.Sizes)})
	}
	for h, herr := range of.All(ctx, netip.Prefix{}) {
		if err = errors.Join(err, herr); err == nil {
			o.Prefixes = append(o.Prefixes, viewPrefix(h))
		}
	}
	for is, lerr := range limits.New(db, a.numberOptions()).All(ctx) {
		if err = errors.Join(err, lerr); err == nil {
			o.Limits = append(o.Limits, limitView{Limit: is.Name, Most: is.Most})
		}
	}
	if err != nil {
		return o, err
	}
	return o, eachNetwork(ctx, db, nil, func(name string, in *hostlocal.Engine) error {
		state, err := in.Export(ctx)
		for _, h := range state.Holdings {
			o.Attachments = append(o.Attachments, viewAttachment(name, h))
		}
		return err
	})
}

// otherKinds are the kinds of these records.
var otherKinds = []string{"prefix pool", "prefix", "attachment", "limit", "number"}

// otherRow says a record: its kind, what it is about, and the rest. A word finds it by what it is about or by a field of the rest.
type otherRow struct {
	Kind string `json:"kind"`
	What string `json:"what"`
	Is   string `json:"is"`
}

// about reports whether a record is about what a word names: a field of the row, or an address in the prefix of the row.
func (r otherRow) about(word string) bool {
	p, err := netip.ParsePrefix(r.What)
	at, aerr := netip.ParseAddr(word)
	return r.What == word || err == nil && aerr == nil && p.Contains(at) || slices.Contains(strings.Fields(r.What+" "+r.Is), word)
}

// rows yields a row for each record.
func (o *others) rows() iter.Seq[otherRow] {
	return func(yield func(otherRow) bool) {
		for _, p := range o.PrefixPools {
			if !yield(otherRow{"prefix pool", p.Pool, p.sizesView.String()}) {
				return
			}
		}
		for _, p := range o.Prefixes {
			is := p.Owner + " of " + p.Pool
			if p.Until != "" {
				is += " until " + p.Until
			}
			if p.Children != nil {
				is += " children " + p.Children.String()
			}
			if p.Attributes != "" {
				is += fmt.Sprintf(" with %q", p.Attributes)
			}
			if !yield(otherRow{"prefix", p.Prefix, is}) {
				return
			}
		}
		for _, v := range o.Attachments {
			who := v.Attachment
			if v.Key != "" {
				who = "key/" + v.Key + "/" + v.Interface
			}
			if !yield(otherRow{"attachment", v.Network + " " + who, strings.Join(append(slices.Clone(v.Addresses), v.Attachment, v.Scope, v.Added), " ")}) {
				return
			}
		}
		for _, l := range o.Limits {
			if !yield(otherRow{"limit", l.Limit, fmt.Sprint(l.Most)}) {
				return
			}
		}
	}
}

// texts returns by kind what the records say.
func (o *others) texts() map[string]map[string]string {
	of := map[string]map[string]string{}
	for r := range o.rows() {
		r.addTo(of)
	}
	return of
}

func (r otherRow) addTo(of map[string]map[string]string) {
	if of[r.Kind] == nil {
		of[r.Kind] = map[string]string{}
	}
	of[r.Kind][r.What] = r.Is
}

// keep leaves what overlaps a prefix.
func (o *others) keep(in netip.Prefix) {
	o.PrefixPools = slices.DeleteFunc(o.PrefixPools, func(p prefixPoolView) bool { return outside(in, p.Pool) })
	o.Prefixes = slices.DeleteFunc(o.Prefixes, func(p prefixView) bool { return outside(in, p.Prefix) })
	o.Attachments = slices.DeleteFunc(o.Attachments, func(v attachmentView) bool {
		return !slices.ContainsFunc(v.Addresses, func(at string) bool { return !outside(in, at) })
	})
	o.Limits = nil
}

// takeAll reads a space and, unless --space names one, every other.
func (a *app) takeAll(ctx context.Context, e *ipset.Engine, db store.Store) (*inventory, error) {
	inv, err := take(ctx, e)
	if err != nil {
		return nil, err
	}
	if inv.others, err = a.takeOthers(ctx, db); err != nil {
		return nil, err
	}
	return inv, a.eachOther(ctx, e, db, func(name string, e *ipset.Engine, db store.Store) error {
		in, err := a.takeAll(ctx, e, db)
		if inv.Spaces == nil {
			inv.Spaces = map[string]*inventory{}
		}
		inv.Spaces[name] = in
		return err
	})
}

// eachOther calls f with each space that has a name, unless --space names one or e is of one.
func (a *app) eachOther(ctx context.Context, e *ipset.Engine, db store.Store, f func(name string, e *ipset.Engine, db store.Store) error) error {
	if e.Space() != "" {
		return nil
	}
	return a.eachSpace(ctx, e, func(in *ipset.Engine) error {
		if in == e {
			return nil
		}
		at, err := store.Space(db, in.Space())
		if err != nil {
			return err
		}
		return f(in.Space(), in, at)
	})
}

// bringAll carries out the import of a file with all of its spaces.
func (i *importing) bringAll(ctx context.Context, db store.Store) error {
	err := i.bring(ctx)
	if err == nil {
		err = i.others(ctx, db)
	}
	if err == nil && i.spaceGiven && len(i.inv.Spaces) > 0 {
		err = fail(exitUsage, "the file has several spaces, and --space names one")
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(i.inv.Spaces)) {
		at, err := store.Space(db, name)
		if err != nil {
			return err
		}
		e, err := i.engine(at)
		if err != nil {
			return err
		}
		in := i.app.newImport(e, i.inv.Spaces[name], i.source, i.host)
		in.source, in.intoOpen, in.prune = i.source, i.intoOpen, i.prune
		if err := in.bringAll(ctx, at); err != nil {
			return fmt.Errorf("space %q: %w", name, err)
		}
		i.done.add(name, &in.done)
		for _, r := range in.refused {
			r.what = fmt.Sprintf("space %q: %s", name, r.what)
			i.refused = append(i.refused, r)
		}
	}
	return nil
}

// add adds what an import did to a space.
func (b *brought) add(space string, in *brought) {
	for _, n := range []struct{ sum, more *int }{{&b.Pools, &in.Pools}, {&b.Blocks, &in.Blocks}, {&b.Addresses, &in.Addresses}, {&b.Prefixes, &in.Prefixes},
		{&b.Attachments, &in.Attachments}, {&b.Limits, &in.Limits}, {&b.There, &in.There}, {&b.Replaced, &in.Replaced}, {&b.NotInFile, &in.NotInFile},
		{&b.Pruned, &in.Pruned}, {&b.Ended, &in.Ended}, {&b.Reserved, &in.Reserved}} {
		*n.sum += *n.more
	}
	for _, name := range in.Closed {
		b.Closed = append(b.Closed, name+" of "+space)
	}
}

// others brings the records that do not have the form of addresses.
func (i *importing) others(ctx context.Context, db store.Store) error {
	var pools []prefixes.Pool
	for _, v := range i.inv.PrefixPools {
		at, err := parsePrefix(v.Pool)
		if err != nil {
			return fmt.Errorf("prefix pool: %w", err)
		}
		pools = append(pools, prefixes.Pool{Prefix: at, Sizes: prefixes.Sizes(v.sizesView)})
	}
	var held []prefixes.Holding
	for _, v := range i.inv.Prefixes {
		h, err := v.holding()
		if err != nil {
			return err
		}
		held = append(held, h)
	}
	of, err := i.prefixes(db)
	if err != nil {
		return err
	}
	p := &prefixImport{app: i.app, of: of, exact: true}
	if err := p.bring(ctx, pools, held); err != nil {
		return err
	}
	i.done.Pools, i.done.Prefixes, i.done.There = i.done.Pools+p.pools, p.added, i.done.There+p.there
	i.refused = append(i.refused, p.refused...)
	if err := i.attachments(ctx, db); err != nil {
		return err
	}
	if err := i.limits(ctx, db); err != nil {
		return err
	}
	i.done.Reserved = len(i.refused)
	return nil
}

// attachments brings the attachments. A key is out of use until its next user comes.
func (i *importing) attachments(ctx context.Context, db store.Store) error {
	type part struct{ network, scope string }
	of := map[part]hostlocal.State{}
	for _, v := range i.inv.Attachments {
		h, err := v.holding()
		if err != nil {
			return err
		}
		if v.Key != "" && v.Attachment != "" {
			i.inv.drop("users of keys")
			i.done.Dropped = i.inv.dropped
		}
		s := of[part{v.Network, v.Scope}]
		s.Holdings = append(s.Holdings, h)
		of[part{v.Network, v.Scope}] = s
	}
	for at, s := range of {
		e, err := network(db, at.network, at.scope)
		if err != nil {
			return err
		}
		left, err := e.Import(ctx, s)
		if err != nil {
			return err
		}
		i.done.Attachments += len(s.Holdings) - len(left)
		for _, why := range left {
			i.refused = append(i.refused, refusal{what: "attachment " + at.network + " " + why.Owner, why: why})
		}
	}
	return nil
}

// limits brings the limits. A limit that is there with another number stays.
func (i *importing) limits(ctx context.Context, db store.Store) error {
	all := limits.New(db, i.numberOptions())
	is := map[string]int{}
	for l, err := range all.All(ctx) {
		if err != nil {
			return err
		}
		is[l.Name] = l.Most
	}
	for _, v := range i.inv.Limits {
		most, there := is[v.Limit]
		if there && most == v.Most {
			i.done.There++
			continue
		}
		var err error
		if key, value, pair := strings.Cut(v.Limit, "="); there {
			err = fail(exitConflict, "it is %d, not %d", most, v.Most)
		} else if owner, of := strings.CutPrefix(v.Limit, "prefixes/"); of {
			err = all.Set(ctx, limits.Prefixes(owner, v.Most, prefixes.Options{Now: i.now}))
		} else if pair {
			err = all.Set(ctx, limits.Attribute(key, value, v.Most))
		} else {
			err = fail(exitUsage, "it is neither KEY=VALUE nor prefixes/OWNER")
		}
		if err == nil {
			i.done.Limits++
		} else if err = i.refuse("limit "+v.Limit, nil, err); err != nil {
			return err
		}
	}
	return nil
}

// eachOtherRow calls f with a row for each record of a space that does not have the form of addresses, and for each number of each range.
func (a *app) eachOtherRow(ctx context.Context, db store.Store, f func(otherRow)) error {
	o, err := a.takeOthers(ctx, db)
	if err != nil {
		return err
	}
	for r := range o.rows() {
		f(r)
	}
	if a.space != "" {
		return nil
	}
	for name, err := range numbers.Names(ctx, db, a.numberOptions()) {
		if err != nil {
			return err
		}
		of, err := numbers.Open(ctx, db, name, a.numberOptions())
		if err != nil {
			return err
		}
		for h, err := range of.All(ctx) {
			if err != nil {
				return err
			}
			f(otherRow{"number", fmt.Sprintf("%s %d", name, h.Number), h.Owner})
		}
	}
	return nil
}

// follower tells what changes of these records. It reads them all at each commit that may have changed one, and compares them with the
// last time, so it does not see what comes and goes in between.
type follower struct {
	*app
	db  store.Store
	was map[string]map[string]string // by kind
	rev uint64
	f   func(...changeView) error
}

// look tells the changes since the last time.
func (w *follower) look(ctx context.Context) (err error) {
	if _, w.rev, err = w.db.List(ctx, store.Range{Limit: 1}); err != nil {
		return err
	}
	now := map[string]map[string]string{}
	if err := w.eachOtherRow(ctx, w.db, func(r otherRow) { r.addTo(now) }); err != nil {
		return err
	}
	var lines []changeView
	for _, kind := range otherKinds {
		for _, d := range compareMaps(kind, w.was[kind], now[kind], equal) {
			lines = append(lines, changeView{Time: timeText(w.now()), Change: kind + " " + d.Change, What: d.What, Before: d.Mine, After: d.Other})
		}
	}
	w.was = now
	return w.f(lines...)
}

// follow tells the changes until ctx ends.
func (w *follower) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, err := range w.db.Watch(ctx, w.rev, "L", "Q", "X", "x") {
			if err != nil && !errors.Is(err, ipalloc.ErrOutOfRange) {
				return err
			}
			break
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// parseTime reads the time of a field of a file, which may be empty.
func parseTime(field, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
		err = fail(exitUsage, "%s %q: %v", field, text, err)
	}
	return t, err
}
