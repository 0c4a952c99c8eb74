package world

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Picture is the decoded whole of a store. A key names one thing by space, kind and name, such as "blue/address
// 10.0.0.7 pod-1". The value is the full answer of the packages' calls about it.
type Picture map[string]string

// Look returns the picture of a store, or of some of its spaces, as engines without a cache show it. It changes nothing.
func (w *World) Look(tb testing.TB, db store.Store, spaces ...string) Picture {
	tb.Helper()
	p := Picture{}
	if len(spaces) == 0 {
		spaces = append(slices.Clone(Spaces), Numbers)
	}
	for _, space := range spaces {
		in, err := In(db, space)
		if err != nil {
			tb.Fatal(err)
		}
		v := view{TB: tb, ctx: context.Background(), p: p, now: w.Clock.Now, space: space, db: in, e: w.Engine(tb, db, space, 0)}
		v.settings()
		v.blocks()
		v.records()
		v.prefixes()
		v.networks()
	}
	return p
}

// view adds one space to a picture.
type view struct {
	testing.TB
	ctx   context.Context
	p     Picture
	now   func() time.Time
	space string
	db    store.Store
	e     *ipset.Engine
}

func (v *view) add(what string, value any) {
	key := v.space + "/" + what
	if _, twice := v.p[key]; twice {
		v.Errorf("%s is shown twice", key)
	}
	v.p[key] = fmt.Sprintf("%+v", value)
}

func (v *view) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatalf("space %q: %v", v.space, err)
	}
}

func (v *view) settings() {
	pools, err := v.e.Pools(v.ctx)
	v.must(err)
	for _, p := range pools {
		v.add("pool "+p.Name, p)
	}
	cfg, err := v.e.Operator().Config(v.ctx)
	v.must(err)
	v.add("config", cfg)
	reserved, err := v.e.Operator().Reservations(v.ctx)
	v.must(err)
	v.add("reservations", reserved)
	use, err := v.e.Utilization(v.ctx)
	v.must(err)
	for _, u := range use {
		u.Blocks = nil
		v.add("utilization "+u.Pool, u)
	}
}

// blocks adds each block, each holder of an address, and each address that is cooling.
func (v *view) blocks() {
	for b, err := range v.e.Operator().Blocks(v.ctx, netip.Prefix{}) {
		v.must(err)
		head, tail := b.Reserved()
		since, empty := b.Empty()
		free, _ := b.Free()
		order := []netip.Addr{}
		for a := range b.FreeAddresses() {
			if order = append(order, a); len(order) == 300 {
				break
			}
		}
		v.add("block "+b.Prefix().String(), fmt.Sprint(b.Owner(), b.Claimed(), since, empty, head, tail, b.Seq(), b.Used(), b.Cooling(), free, order))
	}
	for al, err := range v.e.Allocations(v.ctx, netip.Prefix{}) {
		v.must(err)
		if al.Cooling {
			handle, reason, declined := al.Declined()
			v.add("cooling "+al.Address.String(), fmt.Sprintf("%+v %s %s %v", fields(al), handle, reason, declined))
			continue
		}
		for h := range al.Holders() {
			v.add(fmt.Sprintf("address %v %s", al.Address, h.Handle), fields(h))
		}
	}
}

// fields returns what an allocation says, as text.
func fields(a alloc.Allocation) string {
	return fmt.Sprintf("%v %v %q %v %v %d %v %v %v %+v", a.Block, a.Host, a.Handle, slices.Sorted(text(a.Attributes)), slices.Sorted(text(a.Alternate)), a.Seq, a.Since.UTC(), a.Until.UTC(), a.Cooling, a.Share())
}

func text(a alloc.Attributes) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k, val := range a.All() {
			if !yield(k + "=" + val) {
				return
			}
		}
	}
}

// records adds what no call shows: memos, and the records of other programs.
func (v *view) records() {
	recs, _, err := v.db.List(v.ctx, store.Range{})
	v.must(err)
	for _, r := range recs {
		switch c := r.Key[0]; {
		case c == 'm':
			v.add("memo "+r.Key[1:], fmt.Sprintf("%x", r.Value))
		case c >= 'A' && c <= 'Z' && c != 'L' && c != 'X':
			v.add("own "+r.Key, r.Value)
		}
	}
}

func (v *view) prefixes() {
	a, err := prefixes.New(v.db, prefixes.Options{Now: v.now})
	v.must(err)
	pools, err := a.Pools(v.ctx)
	v.must(err)
	for _, p := range pools {
		v.add("root "+p.Prefix.String(), p)
		use, err := a.Utilization(v.ctx, p.Prefix)
		v.must(err)
		v.add("use of root "+p.Prefix.String(), *use)
	}
	for h, err := range a.All(v.ctx, netip.Prefix{}) {
		v.must(err)
		v.add("prefix "+h.Prefix.String(), h)
	}
}

func (v *view) networks() {
	for network, scopes := range map[string][]string{"plain": {""}, "keyed": {""}, "shared": {"node-1", "node-2"}} {
		for _, scope := range scopes {
			e, err := hostlocal.New(v.db, hostlocal.Config{Network: network, Scope: scope, Keys: network == "keyed"})
			v.must(err)
			s, err := e.Export(v.ctx)
			v.must(err)
			for _, h := range s.Holdings {
				v.p[fmt.Sprintf("%s/attachment %s %v", v.space, network, h.Attachment)] = fmt.Sprintf("%+v", h)
			}
			v.add("cursors "+network+scope, s.Cursors)
		}
	}
}

// Diff returns the keys with different values in two pictures, in order, with both values.
func Diff(before, after Picture) (lines []string) {
	keys := slices.Collect(maps.Keys(before))
	keys = slices.AppendSeq(keys, maps.Keys(after))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		b, in := before[k]
		a, is := after[k]
		if b != a || in != is {
			lines = append(lines, fmt.Sprintf("%s:\n  was %s\n  is  %s", k, b, a))
		}
	}
	return lines
}

// Key returns the key that a line of Diff begins with, and its space.
func Key(line string) (space, what string) {
	key, _, _ := strings.Cut(line, ":\n")
	space, what, _ = strings.Cut(key, "/")
	return space, what
}
