package main

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
)

// compare compares the states: blocks, whose they are, who has which address, and the order in which the free ones will
// be handed out.
func (w *world) compare() {
	w.Helper()
	theirs := w.blocks()
	affine := map[alloc.Owner][]netip.Prefix{}
	ours := 0
	for b, err := range w.engine.Operator().Blocks(bg, netip.Prefix{}) {
		if err != nil {
			w.fail("%v", err)
		}
		ours++
		t := theirs[b.Prefix()]
		if t == nil {
			w.fail("Calico has no block %v, ours is of %q with %d held", b.Prefix(), b.Owner(), b.Used())
		}
		if b.Owner() != w.owner(t.Affinity) {
			w.fail("block %v: of %q with Calico, of %q here", b.Prefix(), w.owner(t.Affinity), b.Owner())
		}
		if t.Affinity != nil {
			affine[b.Owner()] = append(affine[b.Owner()], b.Prefix())
		}
		w.compareBlock(t, b)
	}
	if ours != len(theirs) {
		w.fail("%d blocks with Calico, %d here", len(theirs), ours)
	}
	for _, h := range hostNames {
		o := w.ours(h)
		if got := must(w.engine.BlocksOf(bg, o)); !slices.Equal(got, affine[o]) {
			w.fail("blocks of %s: %v, and %v say so", h, got, affine[o])
		}
	}
	w.compareRecords(theirs)
	if problems := must(w.engine.Operator().Check(bg, nil)).Problems; slices.ContainsFunc(problems, func(p audit.Problem) bool { return p.Kind != audit.NoPool }) {
		w.fail("check: %v", problems)
	}
}

// compareBlock compares what is in a block.
func (w *world) compareBlock(t *model.AllocationBlock, b *block.Block) {
	w.Helper()
	held := map[int]alloc.Allocation{}
	for al := range b.All() {
		x := must(t.IPToOrdinal(ipOf(al.Address)))
		held[x] = al
	}
	head, tail := b.Reserved()
	for x, i := range t.Allocations {
		al, taken := held[x]
		reserved := x < int(head) || x >= len(t.Allocations)-int(tail)
		switch {
		case i == nil && (taken || reserved), i != nil && !taken && !reserved:
			w.fail("%v: address %d: with Calico %v, here %v", b.Prefix(), x, i, al)
		case i == nil:
			continue
		}
		a := t.Attributes[*i]
		handle := ""
		if a.AttrPrimary != nil {
			handle = *a.AttrPrimary
		}
		if reserved != (handle == ipam.WindowsReservedHandle) {
			w.fail("%v: address %d: reserved here: %v, of %q with Calico", b.Prefix(), x, reserved, handle)
		}
		if !reserved && (al.Handle != handle || !maps.Equal(al.Attributes.Map(), a.AttrSecondary)) {
			w.fail("%v: address %d is held by %q %v with Calico, by %q %v here", b.Prefix(), x, handle, a.AttrSecondary, al.Handle, al.Attributes.Map())
		}
	}
	var free []int
	for a := range b.FreeAddresses() {
		free = append(free, must(t.IPToOrdinal(ipOf(a))))
	}
	if !slices.Equal(free, t.Unallocated) {
		w.fail("%v: the free ones are %v with Calico, %v here", b.Prefix(), t.Unallocated, free)
	}
}

// compareRecords looks at Calico's other records: affinities that say what the blocks say, and handles, which may say
// too much.
func (w *world) compareRecords(blocks map[netip.Prefix]*model.AllocationBlock) {
	w.Helper()
	affinities := 0
	for _, kvp := range must(w.backend.List(bg, model.BlockAffinityListOptions{}, "")).KVPairs {
		key := kvp.Key.(model.BlockAffinityKey)
		if b := blocks[prefixOf(key.CIDR)]; b == nil || b.Host() != key.Host || kvp.Value.(*model.BlockAffinity).State != model.StateConfirmed {
			w.fail("Calico's affinity %v is %v", key, kvp.Value)
		}
		affinities++
	}
	held := map[string]map[string]int{}
	for _, b := range blocks {
		if b.Affinity != nil {
			affinities--
		}
		for _, i := range b.Allocations {
			if i == nil || b.Attributes[*i].AttrPrimary == nil || *b.Attributes[*i].AttrPrimary == ipam.WindowsReservedHandle {
				continue
			}
			h := *b.Attributes[*i].AttrPrimary
			if held[h] == nil {
				held[h] = map[string]int{}
			}
			held[h][b.CIDR.String()]++
		}
	}
	if affinities != 0 {
		w.fail("Calico has %d affinities more than blocks with one", affinities)
	}
	for _, kvp := range must(w.backend.List(bg, model.IPAMHandleListOptions{}, "")).KVPairs {
		h := kvp.Key.(model.IPAMHandleKey).HandleID
		for block, n := range kvp.Value.(*model.IPAMHandle).Block {
			switch has := held[h][block]; {
			case n < has:
				w.fail("Calico's handle %s has %d addresses in %s and counts %d", h, has, block, n)
			case n > has:
				w.note(countsHandles)
			}
			delete(held[h], block)
		}
		if len(held[h]) > 0 {
			w.fail("Calico's handle %s does not know of %v", h, held[h])
		}
		delete(held, h)
	}
	if len(held) > 0 {
		w.fail("Calico has no handles for %v", held)
	}
}

// compareHandle compares who has what by handle.
func (w *world) compareHandle(handle string) {
	w.Helper()
	ips, err := w.calico.IPsByHandle(bg, handle)
	theirs := addrsOf(ips)
	slices.SortFunc(theirs, netip.Addr.Compare)
	var ours []netip.Addr
	for _, al := range must(w.engine.IPsByHandle(bg, handle)) {
		ours = append(ours, al.Address)
	}
	if !slices.Equal(theirs, ours) {
		w.fail("%s has %v with Calico (%v), %v here", handle, theirs, err, ours)
	}
	if err != nil {
		w.note(unknownHandle)
	}
}

// compareUse compares utilizations.
func (w *world) compareUse() {
	w.Helper()
	theirs := must(w.calico.GetUtilization(bg, ipam.GetUtilizationArgs{}))
	ours := map[netip.Prefix]alloc.Utilization{}
	lost := 0
	for _, pool := range must(w.engine.Utilization(bg)) {
		for _, b := range pool.Blocks {
			ours[b.Prefix] = b
			if pool.Pool == "" && b.Prefix.Addr().Is6() {
				lost++
			}
		}
	}
	seen := 0
	for _, pool := range theirs {
		for _, t := range pool.Blocks {
			seen++
			ones, _ := t.CIDR.Mask.Size()
			a, _ := netip.AddrFromSlice(t.CIDR.IP)
			b, ok := ours[netip.PrefixFrom(a.Unmap(), ones)]
			name := pool.Name
			if strings.HasPrefix(name, "orphaned") {
				name = ""
			}
			ends := uint64(0)
			if w.windows {
				bl := must(w.engine.Operator().BlockOf(bg, b.Prefix.Addr()))
				head, tail := bl.Reserved()
				ends = head + tail
			}
			kept := b.Reserved.Lo - ends // by reservations
			if !ok || b.Pool != name || b.Capacity.Lo != uint64(t.Capacity) || b.Available.Lo+kept != uint64(t.Available) {
				w.fail("use of %v: with Calico %s %d of %d available, here %+v", t.CIDR, pool.Name, t.Available, t.Capacity, b)
			}
			if kept > 0 {
				w.note(countsReserved)
			}
		}
	}
	if seen+lost != len(ours) {
		w.fail("use of %d blocks with Calico, of %d here, %d of them IPv6 and in no pool", seen, len(ours), lost)
	}
	if lost > 0 {
		w.note(lostIPv6)
	}
}
