package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
)

// An import works on closed pools, which serve no call until pool open opens them. It adds the pools of its file closed, and closes those
// without a block that the file has addresses of. It can be repeated while they are closed: the file wins over what the last import from
// the same source has brought, which has a mark. What cannot be taken is reserved with its reason.

// importing is an import of an inventory.
type importing struct {
	*app
	e        *ipset.Engine // works in closed pools
	inv      *inventory
	host     alloc.Owner // of addresses whose source does not say it
	source   string      // of the holdings that it marks
	intoOpen bool        // it may add to pools that are open
	prune    bool        // it releases what the file no longer has

	done    brought
	refused []refusal
	// pools are those of the store, with those that the file brings.
	pools []alloc.Pool
	// final are the pools that this import brings, with the settings that they get at the end: a disabled pool, or one with limits,
	// would refuse what was assigned before.
	final []alloc.Pool
	fresh bool        // there was no pool, so no address is there that this import has not brought
	mu    *sync.Mutex // guards done while entries are brought
}

// newImport returns an import of an inventory from a source.
func (a *app) newImport(e *ipset.Engine, inv *inventory, source string, host alloc.Owner) *importing {
	if host.Kind != alloc.Nobody {
		source += " " + host.String()
	}
	return &importing{app: a, e: e.Operator().Importer(), inv: inv, source: source, host: host, mu: new(sync.Mutex), refused: slices.Clone(inv.refused)}
}

// bring carries out an import.
func (i *importing) bring(ctx context.Context) error {
	i.done.Dropped, i.done.Ended = i.inv.dropped, i.inv.ended
	for _, step := range []func(context.Context) error{i.look, i.close, i.addPools, i.calico, i.blocks, i.addresses, i.stale, i.settings} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// refuse notes an entry that cannot be taken and is to be reserved, and returns an error that ends the import.
func (i *importing) refuse(what string, where []netipx.IPRange, err error) error {
	if final(err) {
		return err
	}
	i.refused = append(i.refused, refusal{what, where, err})
	return nil
}

// final reports whether an error ends an import.
func final(err error) bool {
	status := statusOf(err)
	return status == exitUnavailable || status == exitAborted || status == exitDamaged
}

// look reads the pools, and refuses an import that would change a pool that is open.
func (i *importing) look(ctx context.Context) (err error) {
	if i.pools, err = i.e.Pools(ctx); err != nil {
		return err
	}
	if i.fresh = len(i.pools) == 0; i.fresh || i.intoOpen {
		return nil
	}
	used := map[string]bool{} // pools that are open and have a block
	for _, p := range i.pools {
		if i.isClosed(p) {
			continue
		}
		for b, err := range i.e.Operator().Blocks(ctx, p.Prefix) {
			if err != nil {
				return err
			}
			if poolAt(i.pools, b.Prefix().Addr()) == p.Name {
				used[p.Name] = true
				break
			}
		}
	}
	if len(used) == 0 {
		return nil
	}
	for at, known := range i.targets() {
		name := poolAt(i.pools, at.Addr())
		if !used[name] {
			continue
		}
		there, err := known(ctx)
		if err != nil {
			return err
		}
		if !there {
			return fail(exitConflict, "pool %s is open and in use, and the file has %v, which is not there so: nothing was changed; --into-open adds to its free addresses", name, at)
		}
	}
	return nil
}

// targets yields the blocks and addresses of the file, each with a function that reports whether it is there as the file says.
func (i *importing) targets() func(yield func(netip.Prefix, func(context.Context) (bool, error)) bool) {
	return func(yield func(netip.Prefix, func(context.Context) (bool, error)) bool) {
		for _, entry := range i.inv.Blocks {
			p, err := parsePrefix(entry.Block)
			if err == nil && !yield(p, func(ctx context.Context) (bool, error) {
				b, err := i.e.Operator().BlockOf(ctx, p.Addr())
				return b != nil && b.Prefix() == p && b.Owner().String() == entry.Owner, err
			}) {
				return
			}
		}
		for _, raw := range i.inv.calico {
			b, err := calico.Import(raw, 0)
			if err == nil && !yield(b.Prefix(), func(ctx context.Context) (bool, error) {
				is, err := i.e.Operator().BlockOf(ctx, b.Prefix().Addr())
				return is != nil && is.Prefix() == b.Prefix() && is.Owner() == b.Owner() && sameHolders(is, b), err
			}) {
				return
			}
		}
		for _, g := range i.groups() {
			if !yield(netip.PrefixFrom(g.at, g.at.BitLen()), func(ctx context.Context) (bool, error) {
				has, err := i.holders(ctx, g.at)
				missing, _ := i.compare(has, g.entries)
				return len(missing) == 0, err
			}) {
				return
			}
		}
	}
}

// isClosed reports whether a pool, or one around it, is closed.
func (i *importing) isClosed(p alloc.Pool) bool {
	return slices.ContainsFunc(i.pools, func(q alloc.Pool) bool {
		return q.Closed && q.Prefix.Bits() <= p.Prefix.Bits() && q.Prefix.Overlaps(p.Prefix)
	})
}

// closedAt reports whether the pool of an address is closed.
func (i *importing) closedAt(ip netip.Addr) bool {
	name := poolAt(i.pools, ip)
	at := slices.IndexFunc(i.pools, func(p alloc.Pool) bool { return p.Name == name })
	return at >= 0 && i.isClosed(i.pools[at])
}

// close closes the pools that the file has addresses of and that have no block yet.
func (i *importing) close(ctx context.Context) error {
	if i.intoOpen {
		return nil
	}
	var set []alloc.Pool
	for at := range i.targets() {
		name := poolAt(i.pools, at.Addr())
		n := slices.IndexFunc(i.pools, func(p alloc.Pool) bool { return p.Name == name })
		if n < 0 || i.isClosed(i.pools[n]) || slices.ContainsFunc(set, func(p alloc.Pool) bool { return p.Name == name }) {
			continue
		}
		there := false
		for b, err := range i.e.Operator().Blocks(ctx, i.pools[n].Prefix) {
			if err != nil {
				return err
			}
			there = there || poolAt(i.pools, b.Prefix().Addr()) == name
		}
		if !there {
			i.pools[n].Closed = true
			set = append(set, i.pools[n])
		}
	}
	if len(set) == 0 {
		return nil
	}
	return i.e.Operator().ChangePools(ctx, alloc.PoolChanges{Set: set})
}

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

// markOf returns the source of the import that has brought a holding.
func (i *importing) markOf(al alloc.Allocation) string { return al.Attributes.Map()[attrImport] }

// group is what a file says of one address.
type group struct {
	at      netip.Addr
	entries []addressEntry
}

// groups returns what the file says of each address, in its order. Every address of a file has been read.
func (i *importing) groups() (all []group) {
	of := map[netip.Addr]int{}
	for _, e := range i.inv.Addresses {
		at, err := parseAddr(e.Address)
		if err != nil {
			continue
		}
		n, there := of[at]
		if !there {
			n = len(all)
			of[at], all = n, append(all, group{at: at})
		}
		all[n].entries = append(all[n].entries, e)
	}
	return all
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
		if b == nil || i.closedAt(p.Addr()) {
			orphans = append(orphans, p)
		}
	}
	all := i.groups()
	err := i.inLanes(ctx, len(all), func(n int) (string, []netipx.IPRange) {
		return all[n].at.String(), []netipx.IPRange{netipx.IPRangeFrom(all[n].at, all[n].at)}
	}, func(ctx context.Context, n int) error { return i.group(ctx, all[n]) })
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

// inLanes brings n entries, those of one name one after the other, and notes what is refused in the order of the list.
func (i *importing) inLanes(ctx context.Context, n int, name func(n int) (string, []netipx.IPRange), bring func(ctx context.Context, n int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	refused := make([]error, n)
	var of [lanes][]int
	for k := range n {
		what, _ := name(k)
		h := fnv.New32a()
		h.Write([]byte(what))
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
			what, where := name(k)
			_ = i.refuse(what, where, err) // which is not final
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

// holders returns who has an address, or what cools there.
func (i *importing) holders(ctx context.Context, at netip.Addr) ([]alloc.Allocation, error) {
	al, err := i.e.Lookup(ctx, at)
	switch {
	case err != nil && final(err):
		return nil, err
	case al.Cooling:
		return []alloc.Allocation{al}, nil
	case err != nil:
		return nil, nil // it is free, or the assignment says what is wrong
	}
	return slices.Collect(al.Holders()), nil
}

// compare returns the entries that are not there, and the holders that no entry has.
func (i *importing) compare(has []alloc.Allocation, want []addressEntry) (missing []addressEntry, extra []alloc.Allocation) {
	extra = slices.Clone(has)
	for _, entry := range want {
		k := slices.IndexFunc(extra, func(al alloc.Allocation) bool {
			is := addressEntryOf(al)
			is.Since = entry.Since // what is there stays
			l := i.inv.lacks
			l.noHosts = l.noHosts || entry.Host == ""
			return is.Cooling == entry.Cooling && l.same(i.inv.columns, is, entry)
		})
		if k < 0 {
			missing = append(missing, entry)
		} else {
			extra = slices.Delete(extra, k, k+1)
		}
	}
	return missing, extra
}

// group brings what the file says of an address. In a closed pool it releases what the last import from the same source has brought and
// the file says otherwise.
func (i *importing) group(ctx context.Context, g group) error {
	missing := g.entries
	if !i.fresh || len(g.entries) > 1 || g.entries[0].Cooling {
		has, err := i.holders(ctx, g.at)
		if err != nil {
			return err
		}
		var extra []alloc.Allocation
		missing, extra = i.compare(has, g.entries)
		for range len(g.entries) - len(missing) {
			i.count(&i.done.There)
		}
		for _, al := range extra {
			switch {
			case al.Cooling && len(missing) == 1 && missing[0].Cooling && missing[0].Until <= timeText(al.Until):
				i.count(&i.done.There)
				return nil
			case al.Cooling:
			case i.closedAt(g.at) && i.markOf(al) == i.source:
				if _, err := i.e.ReleaseIPs(ctx, alloc.Release{Address: g.at, Guard: alloc.Guard{Handle: al.Handle, Seq: al.Seq}}); err != nil {
					return err
				}
				i.count(&i.done.Replaced)
			case len(missing) > 0 && missing[0].Share == nil:
				return fail(exitConflict, "%q has it on %v, and no import from %s has brought that", al.Handle, al.Host, i.source)
			}
		}
	}
	for _, entry := range missing {
		if err := i.address(ctx, g.at, entry); err != nil {
			return err
		}
	}
	return nil
}

// address brings one holder of an address, or one that is cooling.
func (i *importing) address(ctx context.Context, ip netip.Addr, entry addressEntry) error {
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
			i.count(&i.done.Ended)
			return nil
		}
	}
	args := alloc.AssignIPArgs{Address: ip, Owner: owner, Handle: entry.Handle, TTL: ttl}
	if entry.Since != "" {
		if args.Since, err = time.Parse(time.RFC3339Nano, entry.Since); err != nil {
			return fail(exitUsage, "since %q: %v", entry.Since, err)
		}
	}
	marked := map[string]string{attrImport: i.source}
	for k, v := range entry.Attributes {
		marked[k] = v
	}
	if args.Attributes, err = alloc.NewAttributes(marked); err != nil {
		return err
	}
	if entry.Share != nil {
		args.Share = alloc.Share{Max: entry.Share.Max, Key: entry.Share.Key}
	}
	if _, err = i.e.AssignIP(ctx, args); err != nil {
		return err
	}
	if i.count(&i.done.Addresses); entry.Cooling {
		reason := cmp.Or(entry.Reason, "imported while it was cooling")
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

// stale lists the holdings and empty blocks of earlier imports from the same source that the file no longer has, and releases them if
// that was asked for.
func (i *importing) stale(ctx context.Context) error {
	if i.fresh {
		return nil
	}
	known, blocks := map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	for _, inv := range append(slices.Clone(i.inv.early), i.inv) {
		for _, e := range inv.Addresses {
			if at, err := parseAddr(e.Address); err == nil {
				known[at] = true
			}
		}
		for _, b := range inv.Blocks {
			if p, err := parsePrefix(b.Block); err == nil {
				blocks[p] = true
			}
		}
	}
	for _, b := range i.inv.seen {
		blocks[b.Prefix()] = true
		for al := range b.All() {
			known[al.Address] = true
		}
	}
	for _, p := range i.pools {
		if !i.isClosed(p) {
			continue
		}
		for b, err := range i.e.Operator().Blocks(ctx, p.Prefix) {
			if err != nil {
				return err
			}
			if poolAt(i.pools, b.Prefix().Addr()) != p.Name {
				continue
			}
			left := 0
			for al := range b.All() {
				for h := range al.Holders() {
					if h.Cooling || known[h.Address] || i.markOf(h) != i.source {
						left++
					} else if err := i.left(h.Address.String(), func() error {
						_, err := i.e.ReleaseIPs(ctx, alloc.Release{Address: h.Address, Guard: alloc.Guard{Handle: h.Handle, Seq: h.Seq}})
						return err
					}); err != nil {
						return err
					}
				}
			}
			if left > 0 || i.inv.noBlocks || blocks[b.Prefix()] || b.Owner().Kind == alloc.Nobody || !i.inv.reaches(p) {
				continue
			}
			if err := i.left("block "+b.Prefix().String(), func() error {
				_, err := i.e.DisownBlocks(ctx, alloc.DisownArgs{Prefix: b.Prefix(), Owner: b.Owner()})
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// reaches reports whether the file has a block or a pool in a pool.
func (inv *inventory) reaches(p alloc.Pool) bool {
	return slices.ContainsFunc(inv.Pools, func(e poolEntry) bool { return e.Name == p.Name }) ||
		slices.ContainsFunc(inv.Blocks, func(b blockEntry) bool { return !outside(p.Prefix, b.Block) })
}

// left notes what the file no longer has, and gives it up if that was asked for.
func (i *importing) left(what string, release func() error) error {
	if i.done.NotInFile++; !i.prune {
		i.note("%s is of an earlier import and not in the file", what)
		return nil
	}
	err := release()
	if err == nil {
		i.done.Pruned++
	}
	return err
}

// settings gives the store its reservations and configuration, unless it has others, reserves what was refused, and gives the pools their own
// settings.
func (i *importing) settings(ctx context.Context) error {
	if err := i.reservations(ctx); err != nil {
		return err
	}
	if err := i.config(ctx); err != nil {
		return err
	}
	change := alloc.PoolChanges{Set: i.final}
	for _, r := range i.refused {
		change.Reserve = append(change.Reserve, r.ranges...)
	}
	i.done.Reserved = len(i.refused)
	for _, p := range i.pools {
		if p.Closed {
			i.done.Closed = append(i.done.Closed, p.Name)
		}
	}
	return i.e.Operator().ChangePools(ctx, change)
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
		return i.refuse("configuration", nil, fail(exitConflict, "it is %+v, not %+v", is, want))
	}
	err = i.e.Operator().SetConfig(ctx, want)
	if errors.Is(err, ipalloc.ErrInvalid) {
		return i.refuse("configuration", nil, err)
	}
	return err
}

// reservations adds those of the file.
func (i *importing) reservations(ctx context.Context) error {
	var add []netipx.IPRange
	for _, text := range i.inv.Reservations {
		r, err := parseRange(text)
		if err != nil {
			return fmt.Errorf("reservation: %w", err)
		}
		add = append(add, r)
	}
	if len(add) == 0 {
		return nil
	}
	return i.e.Operator().ChangePools(ctx, alloc.PoolChanges{Reserve: add})
}
