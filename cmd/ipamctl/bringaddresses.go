package main

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The addresses of an import.

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
