package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
	"github.com/ipalloc/ipalloc/selector"
)

// importing is an import of an inventory. It goes on after an entry that the store refuses, and may be repeated.
type importing struct {
	*app
	e    *ipset.Engine
	inv  *inventory
	host alloc.Owner // of addresses whose source does not say it
	done brought
	// refused says what the store, or a setting that is there already, stood in the way of.
	refused []string
	// final are the pools that this import brings, with the settings that they get at the end: a disabled pool, or one with limits,
	// would refuse what was assigned before.
	final []alloc.Pool
	fresh bool        // there was no pool, so no address is there that this import has not brought
	mu    *sync.Mutex // guards done while entries are brought
}

// unfinished is the node selector of a pool until its import has ended. It keeps hosts from the pool, and tells a
// repeated import which pools, blocks and addresses an interrupted one has left half done.
var unfinished = selector.Selector{{Labels: []selector.Requirement{{Key: "ipamctl/import", Op: selector.In, Values: []string{"unfinished"}}}}}

// isUnfinished reports whether an import of a pool has begun and not ended.
func isUnfinished(p alloc.Pool) bool { return selectorText(p.Nodes) == selectorText(unfinished) }

// mine reports whether this import brings the pool of an address.
func (i *importing) mine(ip netip.Addr) bool {
	return slices.ContainsFunc(i.final, func(p alloc.Pool) bool { return p.Prefix.Contains(ip) })
}

// bring imports an inventory and returns what it did and what was refused.
func (a *app) bring(ctx context.Context, e *ipset.Engine, inv *inventory, host alloc.Owner) (brought, []string, error) {
	i := &importing{app: a, e: e, inv: inv, host: host, mu: new(sync.Mutex)}
	for _, step := range []func(context.Context) error{i.pools, i.calico, i.blocks, i.addresses, i.settings} {
		if err := step(ctx); err != nil {
			return i.done, i.refused, err
		}
	}
	return i.done, i.refused, nil
}

// refuse notes an entry that was refused, and returns an error that ends the import.
func (i *importing) refuse(what string, err error) error {
	if final(err) {
		return err
	}
	i.refused = append(i.refused, fmt.Sprintf("%s: %v", what, err))
	return nil
}

// final reports whether an error ends an import.
func final(err error) bool {
	status := statusOf(err)
	return status == exitUnavailable || status == exitAborted || status == exitDamaged
}

// pools adds the pools that are not there yet, and those that an interrupted import has left, open to this import alone.
func (i *importing) pools(ctx context.Context) error {
	there, err := i.e.Pools(ctx)
	if err != nil {
		return err
	}
	i.fresh = len(there) == 0
	for _, entry := range i.inv.Pools {
		p, err := entry.pool()
		at := slices.IndexFunc(there, func(q alloc.Pool) bool { return q.Name == p.Name && q.Prefix == p.Prefix })
		begun := at >= 0 && isUnfinished(there[at])
		switch {
		case err != nil:
		case at >= 0 && !begun && (i.inv.noDetails || len(differing(entryOf(there[at]), entry.withDefaults())) == 0):
			i.done.There++
			continue
		case at >= 0 && !begun:
			err = fail(exitConflict, "it is there with another %s", differing(entryOf(there[at]), entry.withDefaults())[0])
		default:
			open := p
			open.Disabled, open.MaxBlocksPerHost, open.Nodes = false, 0, unfinished
			i.final = append(i.final, p)
			if err = i.add(ctx, open, entry.Draining, begun); err == nil {
				i.done.Pools++
			} else {
				i.final = i.final[:len(i.final)-1]
			}
		}
		if err != nil {
			if err = i.refuse("pool "+entry.Name, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a pool unless it has begun. Blocks of another size than the pool's, and what is held in them, are imported while the pool
// has that size.
func (i *importing) add(ctx context.Context, p alloc.Pool, draining []int, begun bool) error {
	first := p
	if len(draining) > 0 {
		first.BlockBits = draining[0]
	}
	if !begun {
		if err := i.e.AddPool(ctx, first); err != nil {
			return err
		}
	}
	for _, bits := range draining {
		first.BlockBits = bits
		if err := i.e.UpdatePool(ctx, first); err != nil {
			return err
		}
		part := *i
		rest := *i.inv
		part.inv = &inventory{lacks: i.inv.lacks}
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

// calico imports the blocks that are in Calico's own form.
func (i *importing) calico(ctx context.Context) error {
	for _, raw := range i.inv.calico {
		b, err := calico.Import(raw, 0)
		if err != nil {
			if err = i.refuse("block", err); err != nil {
				return err
			}
			continue
		}
		p, held := b.Prefix(), int(b.Used())
		if there, err := i.e.Operator().BlockOf(ctx, p.Addr()); err != nil {
			return err
		} else if there != nil && there.Prefix() == p && there.Owner() == b.Owner() && sameHolders(there, b) {
			i.done.There += 1 + held
			continue
		}
		if err := i.e.Operator().ImportBlock(ctx, b); err == nil {
			i.done.Blocks++
			i.done.Addresses += held
		} else if err = i.refuse("block "+p.String(), err); err != nil {
			return err
		}
	}
	return nil
}

// blocks claims blocks for their owners. A block without owner appears with its first address.
func (i *importing) blocks(ctx context.Context) error {
	all := i.inv.Blocks
	return i.inLanes(ctx, len(all), func(n int) (string, string) { return all[n].Block, "block " + all[n].Block },
		func(ctx context.Context, n int) error { return i.block(ctx, all[n]) })
}

// block claims a block.
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

// addresses brings the addresses. A block without owner that is not there yet is made by the host of its first address, which
// gives it up at the end.
func (i *importing) addresses(ctx context.Context) error {
	var orphans []netip.Prefix
	for _, entry := range i.inv.Blocks {
		p, err := parsePrefix(entry.Block)
		if err != nil || entry.Owner != "" {
			continue
		}
		b, err := i.e.Operator().BlockOf(ctx, p.Addr())
		if err != nil {
			return err
		}
		if b == nil || i.mine(p.Addr()) {
			orphans = append(orphans, p)
		}
	}
	all := i.inv.Addresses
	err := i.inLanes(ctx, len(all), func(n int) (string, string) { return all[n].Address, all[n].Address },
		func(ctx context.Context, n int) error { return i.address(ctx, all[n]) })
	if err != nil {
		return err
	}
	for _, p := range orphans {
		b, err := i.e.Operator().BlockOf(ctx, p.Addr())
		if err == nil && b != nil && b.Owner().Kind != alloc.Nobody {
			_, err = i.e.DisownBlocks(ctx, alloc.DisownArgs{Prefix: p, Owner: b.Owner()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lanes is how many entries are brought at once: the engine puts them into one commit, as many as its store allows.
const lanes = 1024

// inLanes brings n entries, those with one key one after the other, and notes what is refused in the order of the list.
func (i *importing) inLanes(ctx context.Context, n int, name func(n int) (key, what string), bring func(ctx context.Context, n int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	refused := make([]error, n)
	var of [lanes][]int
	for k := range n {
		key, _ := name(k)
		h := fnv.New32a()
		h.Write([]byte(key))
		of[h.Sum32()%lanes] = append(of[h.Sum32()%lanes], k)
	}
	var wg sync.WaitGroup
	for _, lane := range of {
		wg.Go(func() {
			for _, k := range lane {
				if refused[k] = bring(ctx, k); final(refused[k]) {
					cancel(refused[k])
				}
				if ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for k, err := range refused {
		if err != nil {
			_, what := name(k)
			_ = i.refuse(what, err) // which is not final
		}
	}
	return nil
}

// count counts what was brought, or was there.
func (i *importing) count(n *int) {
	i.mu.Lock()
	*n++
	i.mu.Unlock()
}

// address brings one holder of an address, or one that is cooling.
func (i *importing) address(ctx context.Context, entry addressEntry) error {
	ip, err := parseAddr(entry.Address)
	if err != nil {
		return err
	}
	owner, err := alloc.ParseOwner(entry.Host)
	if err != nil {
		return err
	}
	if owner.Kind == alloc.Nobody {
		if owner = i.host; owner.Kind == alloc.Nobody {
			return fail(exitUsage, "the source does not say which host it is for; name one with --host")
		}
	}
	var ttl time.Duration
	if entry.Until != "" {
		until, err := time.Parse(time.RFC3339Nano, entry.Until)
		if err != nil {
			return fail(exitUsage, "until %q: %v", entry.Until, err)
		}
		if ttl = until.Sub(i.now()); ttl <= 0 {
			return nil // the lease or the cooldown has ended
		}
	}
	if !i.fresh || entry.Share != nil || entry.Cooling {
		if there, err := i.there(ctx, ip, entry); there || err != nil {
			return err
		}
	}
	args := alloc.AssignIPArgs{Address: ip, Owner: owner, Handle: entry.Handle, TTL: ttl}
	if entry.Since != "" {
		if args.Since, err = time.Parse(time.RFC3339Nano, entry.Since); err != nil {
			return fail(exitUsage, "since %q: %v", entry.Since, err)
		}
	}
	if args.Attributes, err = alloc.NewAttributes(entry.Attributes); err != nil {
		return err
	}
	if entry.Share != nil {
		args.Share = alloc.Share{Max: entry.Share.Max, Key: entry.Share.Key}
	}
	// A handle that has the address already gets it again, so an interrupted import goes on here.
	if _, err = i.e.AssignIP(ctx, args); err != nil && !i.half(ctx, ip, entry) {
		return err
	}
	if i.count(&i.done.Addresses); entry.Cooling {
		reason := entry.Reason
		if reason == "" {
			reason = "imported while it was cooling"
		}
		_, err = i.e.Decline(ctx, alloc.DeclineArgs{Address: ip, Guard: alloc.Guard{Handle: entry.Handle}, For: ttl, Reason: reason})
		return err
	}
	if len(entry.Alternate) > 0 {
		alternate, err := alloc.NewAttributes(entry.Alternate)
		if err != nil {
			return err
		}
		return i.e.Update(ctx, alloc.UpdateArgs{Address: ip, Guard: alloc.Guard{Handle: entry.Handle}, Alternate: &alternate})
	}
	return nil
}

// half reports whether an address that is to cool is held without a handle, as an interrupted import left it.
func (i *importing) half(ctx context.Context, ip netip.Addr, entry addressEntry) bool {
	if !entry.Cooling || entry.Handle != "" || !i.mine(ip) {
		return false
	}
	al, err := i.e.Lookup(ctx, ip)
	return err == nil && al.Handle == ""
}

// there reports whether an entry is in the store already. It returns an error for one that says otherwise of the same holder.
func (i *importing) there(ctx context.Context, ip netip.Addr, entry addressEntry) (bool, error) {
	al, err := i.e.Lookup(ctx, ip)
	switch {
	case err != nil && final(err):
		return false, err
	case err != nil && !al.Cooling:
		return false, nil // it is free, or the assignment says what is wrong
	}
	holders := []alloc.Allocation{al}
	if !al.Cooling {
		holders = slices.Collect(al.Holders())
	}
	for _, h := range holders {
		is := addressEntryOf(h)
		is.Since = entry.Since // what is there stays
		switch {
		case is.Cooling != entry.Cooling || is.Handle != entry.Handle && entry.Handle != "":
			continue
		case i.mine(ip) && is.Alternate == nil && len(entry.Alternate) > 0:
			return false, nil // an interrupted import left it so
		}
		if (lacksOf(i.inv, entry)).same(is, entry) {
			i.count(&i.done.There)
			return true, nil
		}
		return true, fail(exitConflict, "%q has it already, on %s", entry.Handle, is.Host)
	}
	return false, nil
}

// lacksOf returns what an inventory does not say of an entry.
func lacksOf(inv *inventory, entry addressEntry) lacks {
	l := inv.lacks
	l.noHosts = l.noHosts || entry.Host == ""
	return l
}

// settings gives the store its reservations and configuration, unless it has others, and then the pools their own settings, which
// opens them to engines.
func (i *importing) settings(ctx context.Context) error {
	if err := i.reservations(ctx); err != nil {
		return err
	}
	if err := i.config(ctx); err != nil || len(i.final) == 0 {
		return err
	}
	return i.e.Operator().ChangePools(ctx, alloc.PoolChanges{Set: i.final})
}

func (i *importing) config(ctx context.Context) error {
	if i.inv.Config == nil {
		return nil
	}
	is, err := i.e.Operator().Config(ctx)
	want := alloc.Config(*i.inv.Config)
	switch {
	case err != nil || is == want:
		return err
	case is != alloc.Config{}:
		return i.refuse("configuration", fail(exitConflict, "it is %+v, not %+v", is, want))
	}
	return i.e.Operator().SetConfig(ctx, want)
}

func (i *importing) reservations(ctx context.Context) error {
	if len(i.inv.Reservations) == 0 {
		return nil
	}
	is, err := i.e.Operator().Reservations(ctx)
	if err != nil {
		return err
	}
	var b netipx.IPSetBuilder
	for _, text := range i.inv.Reservations {
		r, err := parseRange(text)
		if err != nil {
			return err
		}
		b.AddRange(r)
	}
	want, err := b.IPSet()
	switch {
	case err != nil || is.Equal(want):
		return err
	case len(is.Ranges()) > 0:
		return i.refuse("reservations", fail(exitConflict, "there are others"))
	}
	_, err = i.e.Operator().SetReservations(ctx, want)
	return err
}
