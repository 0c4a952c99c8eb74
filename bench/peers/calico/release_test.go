package main

import (
	"errors"
	"net/netip"
	"slices"

	calicomodel "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// calicoBlockRecord is a block as Calico stores it.
type calicoBlockRecord = calicomodel.AllocationBlock

// releases returns what a step releases, in both forms: addresses of one block, because Calico's goroutines for several
// blocks race for the records of their handles.
func (w *world) releases(tr *model.Trace) (ours []alloc.Release, theirs []ipam.ReleaseOptions) {
	seen := map[netip.Addr]bool{}
	var block netip.Prefix
	for range 1 + tr.Below(4) {
		al, ok := w.held(tr)
		switch n := tr.Below(8); {
		case n == 0 || !ok:
			al = alloc.Allocation{Address: w.address(tr)}
		case n == 1 && len(w.past) > 0:
			al = w.past[tr.Below(uint64(len(w.past)))]
		case n == 2 && w.windows:
			al = alloc.Allocation{Address: al.Block.Addr()} // the host keeps it
		}
		if seen[al.Address] || block.IsValid() && !block.Contains(al.Address) {
			continue
		}
		block, seen[al.Address] = w.blockAt(al.Address), true
		o, c := alloc.Release{Address: al.Address}, ipam.ReleaseOptions{Address: al.Address.String()}
		switch tr.Below(8) {
		case 0, 1:
			o.Handle, c.Handle = al.Handle, al.Handle
		case 2, 3:
			if seq, ok := w.seqs[al]; ok {
				o.Seq, c.SequenceNumber = al.Seq, &seq
			}
		case 4:
			o.Handle, c.Handle = "handle-0", "handle-0"
		}
		ours, theirs = append(ours, o), append(theirs, c)
	}
	return ours, theirs
}

// blockAt returns the block that an address is in or would be in.
func (w *world) blockAt(a netip.Addr) netip.Prefix {
	if b := must(w.engine.Operator().BlockOf(bg, a)); b != nil {
		return b.Prefix()
	}
	for i := range plans {
		if plans[i].netip().Contains(a) {
			return netip.PrefixFrom(a, plans[i].blockBits).Masked()
		}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// releaseIPs compares a release of some addresses of a block.
func (w *world) releaseIPs(tr *model.Trace) {
	or, cr := w.releases(tr)
	w.step("ReleaseIPs %+v", or)
	before, blocks := w.moment(), w.blocks()
	free, terr := w.calico.ReleaseIPs(bg, cr...)
	got, oerr := w.engine.ReleaseIPs(bg, or...)
	if oerr != nil {
		w.fail("%v", oerr)
	}
	var wasFree, released []netip.Addr
	changed, stale := false, false
	for i, r := range got {
		switch r.Outcome {
		case alloc.Released:
			released = append(released, r.Address)
		case alloc.WasFree:
			wasFree = append(wasFree, r.Address)
			stale = stale || cr[i].SequenceNumber != nil
		case alloc.OwnerChanged:
			changed = true
		}
	}
	switch class := w.calicoClass(terr); {
	case class == "conflict" && (changed || stale) && len(released) == 0:
		w.note(failsWhole)
		if !changed {
			w.note(staleSequence)
		}
		return
	case class == "conflict" && (changed || stale):
		w.diverged(failsWhole, before)
		return
	case class == "conflict" && w.frees(blocks, wasFree): // it has the handle of reserved addresses
		w.diverged(freesReserved, before)
		return
	case class != "" || changed:
		w.fail("Calico %v, ours %v", terr, got)
	}
	theirs := addrsOf(free)
	slices.SortFunc(theirs, netip.Addr.Compare)
	slices.SortFunc(wasFree, netip.Addr.Compare)
	if !slices.Equal(theirs, wasFree) {
		if len(theirs) < len(wasFree) && w.frees(blocks, except(wasFree, theirs)) {
			w.diverged(freesReserved, before)
			return
		}
		w.fail("were free: %v with Calico, %v here", theirs, wasFree)
	}
	w.order(released)
	w.housekeeping(blocks)
}

// except returns the addresses of a that are not in b.
func except(a, b []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(a), func(x netip.Addr) bool { return slices.Contains(b, x) })
}

// frees reports whether one of the addresses is reserved for a host, which to Calico is an address like any other.
func (w *world) frees(blocks map[netip.Prefix]*calicoBlockRecord, list []netip.Addr) bool {
	return slices.ContainsFunc(list, func(a netip.Addr) bool {
		b := blocks[w.blockAt(a)]
		if b == nil {
			return false
		}
		i := b.Allocations[must(b.IPToOrdinal(ipOf(a)))]
		return i != nil && b.Attributes[*i].AttrPrimary != nil && *b.Attributes[*i].AttrPrimary == ipam.WindowsReservedHandle
	})
}

// order puts addresses that Calico has released together into the order of their numbers: it queues them in that of a walk
// through a map, another one each time.
func (w *world) order(released []netip.Addr) {
	w.Helper()
	if len(released) < 2 {
		return
	}
	key := calicomodel.BlockKey{CIDR: netOf(w.blockAt(released[0]))}
	kvp, err := w.backend.Get(bg, key, "")
	if err != nil {
		return // it was nobody's and is gone
	}
	b := kvp.Value.(*calicoBlockRecord)
	tail := b.Unallocated[len(b.Unallocated)-len(released):]
	sorted := slices.Sorted(slices.Values(tail))
	for _, a := range released {
		if !slices.Contains(sorted, must(b.IPToOrdinal(ipOf(a)))) {
			w.fail("Calico released %v and queues %v", released, tail)
		}
	}
	if !slices.Equal(tail, sorted) {
		w.note(queuesAnyhow)
		copy(tail, sorted)
		must(w.backend.Update(bg, kvp))
	}
}

// releaseByHandle compares the release of all that a handle has.
func (w *world) releaseByHandle(tr *model.Trace) {
	h := w.handle(tr)
	if h == "" {
		return
	}
	w.step("ReleaseByHandle %s", h)
	blocks := w.blocks()
	terr := w.calico.ReleaseByHandle(bg, h)
	got, oerr := w.engine.ReleaseByHandle(bg, h)
	switch class := w.calicoClass(terr); {
	case oerr != nil || class != "" && class != "not found" || class != "" && len(got) > 0:
		w.fail("Calico %v; ours %v, %v", terr, got, oerr)
	case class == "not found":
		w.note(unknownHandle)
	}
	w.housekeeping(blocks)
}

// claim compares a claim of blocks.
func (w *world) claim(tr *model.Trace) {
	p, host := w.prefix(tr), hostNames[tr.Below(4)]
	w.step("ClaimAffinity %v %s", p, host)
	before, blocks := w.moment(), w.blocks()
	claimed, failed, terr := w.calico.ClaimAffinity(bg, netOf(p), host)
	got, failures, oerr := w.engine.ClaimAffinity(bg, p, w.ours(host))
	pool := w.poolAt(p.Addr())
	var theirs, theirFailed, ourFailed []netip.Prefix
	for _, n := range claimed {
		theirs = append(theirs, prefixOf(n))
	}
	for _, n := range failed {
		theirFailed = append(theirFailed, prefixOf(n))
	}
	limit, orphan := false, false
	for _, f := range failures {
		ourFailed = append(ourFailed, f.Block)
		limit = limit || w.ourFailure(f) == "limit"
	}
	for _, b := range theirFailed {
		orphan = orphan || blocks[b] != nil && blocks[b].Affinity == nil
	}
	switch {
	case terr == nil && oerr == nil && slices.Equal(theirs, got) && slices.Equal(theirFailed, ourFailed):
	case pool != nil && p.Bits() > pool.BlockBits && terr != nil && len(got) == 0 && len(failures) == 1 && failures[0].Block == p:
		w.note(claimsPart)
	case terr != nil && oerr != nil && len(claimed) == 0 && len(got) == 0:
	case pool != nil && pool.Disabled && terr != nil && oerr == nil && len(got) == 0 && len(failures) > 0:
		w.note(claimsDisabled)
	case w.beyondPool(p):
		w.diverged(claimsBeyond, before)
	case terr == nil && limit:
		w.diverged(limitNamed, before)
	case terr == nil && oerr == nil && orphan:
		w.diverged(adoptsOrphans, before)
	default:
		w.fail("Calico %v, %v, %v\nours   %v, %v, %v", theirs, theirFailed, terr, got, failures, oerr)
	}
}

// ourFailure classifies why a block was not claimed.
func (w *world) ourFailure(f alloc.ClaimFailure) string {
	if p := w.poolAt(f.Block.Addr()); p != nil && f.Block.Bits() > p.BlockBits {
		return "part"
	}
	return w.claimClass(f.Err)
}

// beyondPool reports whether a prefix is more than a pool: the one it begins in, or one behind that.
func (w *world) beyondPool(p netip.Prefix) bool {
	for _, pool := range w.pools {
		if p.Bits() < pool.Prefix.Bits() && p.Contains(pool.Prefix.Addr()) {
			return true
		}
	}
	return false
}

// releaseAffinity compares the release of the blocks in a prefix.
func (w *world) releaseAffinity(tr *model.Trace) {
	p, host, mustBeEmpty := w.prefix(tr), hostNames[tr.Below(4)], tr.Below(2) == 0
	if al, ok := w.held(tr); ok && tr.Below(2) == 0 {
		// All blocks of the pool of somebody who has one in use.
		if pool, b := w.poolAt(al.Address), w.blocks()[al.Block]; pool != nil && b.Affinity != nil {
			p, host = pool.Prefix, b.Host()
		}
	}
	w.step("ReleaseAffinity %v %s %v", p, host, mustBeEmpty)
	before := w.moment()
	terr := w.calico.ReleaseAffinity(bg, netOf(p), host, mustBeEmpty)
	got, oerr := w.engine.DisownBlocks(bg, alloc.DisownArgs{Prefix: p, Owner: w.ours(host), OnlyEmpty: mustBeEmpty})
	pool := w.poolAt(p.Addr())
	switch {
	case terr == nil && oerr == nil:
	case pool == nil || pool.Disabled:
		if terr == nil {
			w.fail("Calico releases %v, which is in no pool", p)
		}
		if len(got) > 0 || oerr != nil {
			w.diverged(releasesGone, before)
		} else {
			w.note(releasesGone)
		}
	case p.Bits() > pool.BlockBits && terr != nil && oerr == nil && len(got) == 0:
		w.note(releasesPart)
	case w.calicoClass(terr) == "not empty" && w.ourClass(oerr) == "not empty":
		if !w.sameBlocks() {
			w.diverged(stopsAtFirst, before)
		}
	default:
		w.fail("Calico %v; ours %v, %v", terr, got, oerr)
	}
}

// sameBlocks reports whether both have the same blocks.
func (w *world) sameBlocks() bool {
	theirs, n := w.blocks(), 0
	for b, err := range w.engine.Operator().Blocks(bg, netip.Prefix{}) {
		if err != nil || theirs[b.Prefix()] == nil || w.owner(theirs[b.Prefix()].Affinity) != b.Owner() {
			return false
		}
		n++
	}
	return n == len(theirs)
}

// releaseHost compares the release of all blocks of a host.
func (w *world) releaseHost(tr *model.Trace) {
	host, how := hostNames[tr.Below(4)], tr.Below(3)
	w.step("ReleaseHostAffinities %s %v", host, how)
	var terr error
	if how < 2 {
		terr = w.calico.ReleaseHostAffinities(bg, host, how == 0)
	} else {
		terr = w.calico.RemoveIPAMHost(bg, host)
	}
	_, oerr := w.engine.DisownBlocks(bg, alloc.DisownArgs{Owner: w.ours(host), OnlyEmpty: how == 0})
	if theirs, ours := w.calicoClass(terr), w.ourClass(oerr); theirs != ours {
		w.fail("Calico %v, ours %v", terr, oerr)
	}
}

// releasePool compares the release of all blocks of a pool.
func (w *world) releasePool(tr *model.Trace) {
	p := w.menu[tr.Below(uint64(len(w.menu)))]
	if w.pools[p.name] == nil || tr.Below(2) == 0 {
		return
	}
	w.step("ReleasePoolAffinities %s", p.name)
	terr := w.calico.ReleasePoolAffinities(bg, netOf(p.netip()))
	_, oerr := w.engine.DisownBlocks(bg, alloc.DisownArgs{Pool: p.name})
	if terr != nil || oerr != nil {
		w.fail("Calico %v, ours %v", terr, oerr)
	}
}

// ensureBlock compares the claim of a block without an address. Calico does that for hosts that keep addresses only.
func (w *world) ensureBlock(tr *model.Trace) {
	if !w.windows {
		return
	}
	host := hostNames[tr.Below(4)]
	w.step("EnsureBlock %s", host)
	before, blocks := w.moment(), w.blocks()
	reserved, head, tail := w.ends()
	block, _, terr := w.calico.EnsureBlock(bg, ipam.BlockArgs{Hostname: host, HostReservedAttrIPv4s: reserved})
	w.housekeeping(blocks, host)
	got, oerr := w.engine.EnsureBlock(bg, alloc.AssignArgs{Owner: w.ours(host), Num4: 1, Use: alloc.Workload, Blocks: alloc.BlockArgs{Head: head, Tail: tail}})
	switch {
	case terr == nil && oerr == nil && slices.Contains(got, prefixOf(*block)):
	case terr != nil && oerr != nil:
	case oerr == nil && w.wholly(got) && (terr != nil || !slices.Contains(got, prefixOf(*block))):
		w.diverged(ensuresReserved, before)
	case terr == nil && errors.Is(oerr, ipalloc.ErrLimit):
		w.diverged(limitNamed, before)
	case terr != nil && len(got) == 1 && blocks[got[0]] != nil && blocks[got[0]].Affinity == nil:
		w.diverged(adoptsOrphans, before)
	default:
		w.fail("Calico %v, %v; ours %v, %v", block, terr, got, oerr)
	}
}

// wholly reports whether the first of the blocks is wholly reserved.
func (w *world) wholly(blocks []netip.Prefix) bool {
	set := must(alloc.ReservedSet(must(w.engine.Operator().Reservations(bg))))
	return len(blocks) > 0 && set.ContainsPrefix(blocks[0])
}
