package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
)

// The pools, settings and blocks of an import.

// addPools adds the pools of the file that are not there yet, closed, and begins anew with those that are closed.
func (i *importing) addPools(ctx context.Context) error {
	for _, entry := range i.inv.Pools {
		p, err := entry.pool()
		at := slices.IndexFunc(i.pools, func(q alloc.Pool) bool { return q.Name == p.Name && q.Prefix == p.Prefix })
		begun := at >= 0 && i.pools[at].Closed
		switch {
		case err != nil:
		case at >= 0 && !begun && len(i.inv.differing(entryOf(i.pools[at]), entry.withDefaults())) == 0:
			i.done.There++
			continue
		case at >= 0 && !begun:
			err = fail(exitConflict, "it is there with another %s", i.inv.differing(entryOf(i.pools[at]), entry.withDefaults())[0])
		default:
			p.Closed = true
			open := p
			open.Disabled, open.MaxBlocksPerHost = false, 0
			if begun && i.inv.poolFields != nil { // what the format does not say stays
				p, open = i.pools[at], i.pools[at]
				open.Disabled, open.MaxBlocksPerHost = false, 0
			}
			i.final = append(i.final, p)
			if err = i.add(ctx, open, entry.Draining, begun); err != nil {
				i.final = i.final[:len(i.final)-1]
			} else if begun {
				i.done.There++
			} else {
				i.done.Pools++
				i.pools = append(i.pools, p)
			}
		}
		if err != nil {
			var where []netipx.IPRange
			if p.Prefix.IsValid() {
				where = append(where, netipx.RangeOfPrefix(p.Prefix))
			}
			if err = i.refuse("pool "+entry.Name, where, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a pool, or updates one that an import has begun. Blocks of another size than the pool's, and what is held in them, are imported
// while the pool has that size.
func (i *importing) add(ctx context.Context, p alloc.Pool, draining []int, begun bool) error {
	first := p
	if len(draining) > 0 {
		first.BlockBits = draining[0]
	}
	change := i.e.AddPool
	if begun {
		change = i.e.UpdatePool
	}
	if err := change(ctx, first); err != nil {
		return err
	}
	for _, bits := range draining {
		first.BlockBits = bits
		if err := i.e.UpdatePool(ctx, first); err != nil {
			return err
		}
		part := *i
		rest := *i.inv
		part.inv = &inventory{lacks: i.inv.lacks}
		part.pools = append(slices.Clone(i.pools), p)
		of := func(text string) bool {
			b, err := parsePrefix(text)
			return err == nil && b.Bits() == bits && p.Prefix.Overlaps(b)
		}
		part.inv.Blocks, rest.Blocks = divide(i.inv.Blocks, func(b blockEntry) bool { return of(b.Block) })
		part.inv.Addresses, rest.Addresses = divide(i.inv.Addresses, func(e addressEntry) bool {
			at, err := parseAddr(e.Address)
			return err == nil && slices.ContainsFunc(part.inv.Blocks, func(b blockEntry) bool { return netip.MustParsePrefix(b.Block).Contains(at) })
		})
		err := part.blocks(ctx)
		if err == nil {
			err = part.addresses(ctx)
		}
		rest.early = append(slices.Clone(rest.early), part.inv)
		if i.done, i.refused, i.inv = part.done, part.refused, &rest; err != nil {
			return err
		}
	}
	if len(draining) == 0 {
		return nil
	}
	return i.e.UpdatePool(ctx, p)
}

// divide returns the elements for which in holds, and the others.
func divide[E any](all []E, in func(E) bool) (part, rest []E) {
	for _, e := range all {
		if in(e) {
			part = append(part, e)
		} else {
			rest = append(rest, e)
		}
	}
	return part, rest
}

// withDefaults returns an entry with the settings that a pool has if they are not given.
func (e poolEntry) withDefaults() poolEntry {
	p, err := e.pool()
	if err != nil {
		return e
	}
	if p.BlockBits == 0 {
		p.BlockBits = map[bool]int{true: 26, false: 122}[p.Prefix.Addr().Is4()]
	}
	if p.Uses == 0 {
		p.Uses = alloc.Workload | alloc.Tunnel
	}
	n := entryOf(p)
	n.Draining = e.Draining
	return n
}

// differing returns the names of the settings in which two pools differ, of those that the format of the file has.
func (inv *inventory) differing(x, y poolEntry) (names []string) {
	x.Closed, y.Closed = false, false
	if inv.noDetails {
		return nil
	}
	return slices.DeleteFunc(differing(x, y), func(name string) bool { return inv.poolFields != nil && !slices.Contains(inv.poolFields, name) })
}

// differing returns the names of the settings in which two pools differ.
func differing(x, y poolEntry) (names []string) {
	v, u := reflect.ValueOf(x), reflect.ValueOf(y)
	for f := range v.NumField() {
		if a, b := v.Field(f), u.Field(f); !reflect.DeepEqual(a.Interface(), b.Interface()) && !(a.Kind() == reflect.Slice && a.Len()+b.Len() == 0) {
			names = append(names, v.Type().Field(f).Name)
		}
	}
	return names
}

// calico imports the blocks that are in Calico's own form. One that is there is brought address by address.
func (i *importing) calico(ctx context.Context) error {
	for _, raw := range i.inv.calico {
		marked, err := i.markCalico(raw)
		if err != nil {
			return err
		}
		b, err := calico.Import(marked, 0)
		if err != nil {
			return err // it has been read before
		}
		p, held := b.Prefix(), int(b.Used())
		there, err := i.e.Operator().BlockOf(ctx, p.Addr())
		switch {
		case err != nil:
			return err
		case there != nil && there.Prefix() == p:
			if there.Owner() == b.Owner() && sameHolders(there, b) {
				i.done.There += 1 + held
				i.inv.seen = append(i.inv.seen, b)
				continue
			}
			i.inv.Blocks = append(i.inv.Blocks, blockEntry{p.String(), b.Owner().String()})
			for entry := range entriesOf(b) {
				if !entry.Cooling {
					entry.Since = ""
					i.inv.Addresses = append(i.inv.Addresses, entry)
				}
			}
			continue
		}
		if err := i.e.Operator().ImportBlock(ctx, b); err == nil {
			i.inv.seen = append(i.inv.seen, b)
			i.done.Blocks++
			i.done.Addresses += held
		} else if err = i.refuse("block "+p.String(), i.widened(p), err); err != nil {
			return err
		}
	}
	return nil
}

// markCalico marks the allocations of a block of Calico.
func (i *importing) markCalico(raw json.RawMessage) (json.RawMessage, error) {
	var b map[string]any
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, err
	}
	all, _ := b["attributes"].([]any)
	for _, one := range all {
		if attribute, ok := one.(map[string]any); ok && attribute["handle_id"] != "windows-reserved-ipam-handle" {
			active, _ := attribute["secondary"].(map[string]any)
			if active == nil {
				active = map[string]any{}
			}
			active[attrImport] = i.source
			attribute["secondary"] = active
		}
	}
	return json.Marshal(b)
}

// widened returns the addresses of an owner's prefix with the blocks of their pool that it lies in.
func (i *importing) widened(p netip.Prefix) []netipx.IPRange {
	name := poolAt(i.pools, p.Addr())
	for _, q := range i.pools {
		if q.Name == name && p.Bits() > q.BlockBits && q.BlockBits > 0 {
			p = netip.PrefixFrom(p.Addr(), q.BlockBits).Masked()
		}
	}
	return []netipx.IPRange{netipx.RangeOfPrefix(p)}
}

// blocks claims blocks for their owners. A block without owner appears with its first address.
func (i *importing) blocks(ctx context.Context) error {
	all := i.inv.Blocks
	where := func(n int) []netipx.IPRange {
		p, err := parsePrefix(all[n].Block)
		if err != nil {
			return nil
		}
		return i.widened(p)
	}
	return i.inLanes(ctx, len(all), func(n int) (string, []netipx.IPRange) { return "block " + all[n].Block, where(n) },
		func(ctx context.Context, n int) error { return i.block(ctx, all[n]) })
}

// block claims a block. In a closed pool another owner gives it up: the file wins.
func (i *importing) block(ctx context.Context, entry blockEntry) error {
	o, err := alloc.ParseOwner(entry.Owner)
	if err != nil || o.Kind == alloc.Nobody {
		return err
	}
	p, err := parsePrefix(entry.Block)
	if err != nil {
		return err
	}
	if !i.fresh {
		there, err := i.e.Operator().BlockOf(ctx, p.Addr())
		switch {
		case err != nil:
			return err
		case there != nil && there.Prefix() == p && there.Owner() == o:
			i.count(&i.done.There)
			return nil
		case there != nil && there.Prefix() == p && there.Owner().Kind != alloc.Nobody && i.closedAt(p.Addr()):
			for al := range there.All() {
				if i.markOf(al) != i.source && !al.Cooling {
					return fail(exitConflict, "%v has it, and an address of it that no import from %s has brought", there.Owner(), i.source)
				}
			}
			if _, err := i.e.DisownBlocks(ctx, alloc.DisownArgs{Prefix: p, Owner: there.Owner()}); err != nil {
				return err
			}
			i.count(&i.done.Replaced)
		}
	}
	_, failed, err := i.e.ClaimAffinity(ctx, p, o)
	if err == nil && len(failed) > 0 {
		err = failed[0].Err
	}
	if err == nil {
		i.count(&i.done.Blocks)
	}
	return err
}
