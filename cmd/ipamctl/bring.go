package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

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
	i.done.Dropped, i.done.Ended = i.inv.dropped, len(i.inv.over)
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
	if err := i.reserve(ctx, &change); err != nil {
		return err
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
	var add []alloc.Reservation
	for _, entry := range i.inv.Reservations {
		r, err := entry.reservation()
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
