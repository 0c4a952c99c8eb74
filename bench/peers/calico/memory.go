package main

import (
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/bench/internal/thread"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// The load whose memory is measured, and the part of it with which Calico is, so that its figures are extrapolated.
const (
	heldBlocks    = 160_000
	heldAddresses = 10_000_000
	calicoShare   = 100
)

// heldIn returns how many addresses of the i-th block are held, 62 or 63, and the number of the first.
func heldIn(i int) (n, first int) {
	first = i * heldAddresses / heldBlocks
	return (i+1)*heldAddresses/heldBlocks - first, first
}

// memory measures what ten million addresses take, each with a handle of 40 bytes of its own.
func memory(o frame.Options, log io.Writer) []frame.Fact {
	runtime.GOMAXPROCS(o.Procs)
	begin := time.Now()
	title := fmt.Sprintf("%s addresses in %s blocks, each with a handle of its own of 40 bytes: ", report.Whole(heldAddresses), report.Whole(heldBlocks))
	note := fmt.Sprintf(" (Calico: of %s, multiplied)", report.Whole(heldAddresses/calicoShare))
	facts := []frame.Fact{
		fact("memory/built", title+"live heap, as commits leave it"+note, report.Size),
		fact("memory/heap", "the same, loaded from a snapshot", report.Size),
		fact("memory/each", "the same, for an address", report.Size),
		fact("memory/records", "the same, keys and values alone", report.Size),
		fact("memory/load", "the same, CPU time to load a snapshot (Calico: to list and decode blocks and handles)", report.Duration),
	}
	before := frame.LiveHeap()
	data, built := ourSnapshot()
	facts[0].Values[ours] = float64(built - before)
	fmt.Fprintf(log, "%6.1fs  memory: built\n", time.Since(begin).Seconds())
	records := len(data)
	t := thread.Process()
	m := must(store.RestoreMemory(data))
	load := thread.Process() - t
	data = nil
	heap := frame.LiveHeap() - before
	check(m.Check())
	runtime.KeepAlive(m)
	m = nil
	for i, v := range []float64{float64(heap), float64(heap) / heldAddresses, float64(records), float64(load)} {
		facts[i+1].Values[ours] = v
	}

	before = frame.LiveHeap()
	b, records := calicoLoad()
	heap = frame.LiveHeap() - before
	t = thread.Process()
	blocks := must(b.List(bg, model.BlockListOptions{}, ""))
	handles := must(b.List(bg, model.IPAMHandleListOptions{}, ""))
	load = thread.Process() - t
	runtime.KeepAlive(b)
	if len(blocks.KVPairs) != heldBlocks/calicoShare || len(handles.KVPairs) != heldAddresses/calicoShare {
		panic("the load is not what it should be")
	}
	for i, v := range map[int]float64{0: float64(heap), 2: float64(heap) / heldAddresses, 3: float64(records), 4: float64(load)} {
		facts[i].Values[theirs] = v * calicoShare
	}
	fmt.Fprintf(log, "%6.1fs  memory\n", time.Since(begin).Seconds())
	return facts
}

// ourSnapshot returns the snapshot of a store with the load, and the live heap with that store.
func ourSnapshot() ([]byte, uint64) {
	db := store.NewMemory()
	e := newOurs(db, wholeNet, alloc.Config{})
	now := time.Now()
	var buf []alloc.Allocation
	for i := range heldBlocks {
		b := must(block.New(nth(i), block.Options{Owner: alloc.HostOwner(ownerName(i)), Claimed: now}))
		n, first := heldIn(i)
		for j := range n {
			b.AutoAssign(buf[:0], 1, alloc.Claim{Handle: handleName(first + j)}, now, nil)
		}
		check(e.Operator().ImportBlock(bg, b))
	}
	built := frame.LiveHeap()
	return must(db.MarshalBinary()), built
}

// ownerName returns the host of a block.
func ownerName(i int) string { return fmt.Sprint("node-", i/20) }

// calicoLoad returns a backend with a part of the load, and the bytes of its paths and values.
func calicoLoad() (*backend, int) {
	b := newBackend()
	c := newCalicoEngine(b, netip.PrefixFrom(wholeNet.Addr(), 8))
	for i := range heldBlocks / calicoShare {
		owner := ownerName(i)
		block := newCalicoBlock(netOf(nth(i)), nil)
		affinity := "host:" + owner
		block.Affinity = &affinity
		n, first := heldIn(i)
		for j := range n {
			handle := handleName(first + j)
			must(calicoAutoAssign(&block, 1, &handle, owner, nil, true, noReservations{}))
			c.store(model.IPAMHandleKey{HandleID: handle}, &model.IPAMHandle{HandleID: handle, Block: map[string]int{block.CIDR.String(): 1}})
		}
		c.store(model.BlockAffinityKey{CIDR: block.CIDR, Host: owner}, &model.BlockAffinity{State: model.StateConfirmed})
		c.store(model.BlockKey{CIDR: block.CIDR}, block.AllocationBlock)
	}
	bytes := 0
	b.tree.Ascend(func(r *record) bool {
		bytes += len(r.path) + len(r.json)
		return true
	})
	return b, bytes
}
