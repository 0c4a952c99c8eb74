package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/block"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// Contestants.
const (
	ours   = "ours"
	theirs = "calico"         // with a backend that codes its objects as all of Calico's do, or without any
	copies = "calico-uncoded" // with a backend that copies objects and codes nothing
)

const sectionBlock = "One block, no store"

// blockFills are the blocks of the works on a block, with how many addresses are held throughout.
var blockFills = []struct {
	prefix string
	held   []int
}{
	{"10.0.0.0/26", []int{0, 32, 62}},
	{"10.0.0.0/20", []int{2048}},
}

// blockWorks are an AutoAssign and the release of its address in a block of which some addresses are held, each by a
// handle of its own.
func blockWorks() *frame.Works {
	ws := &frame.Works{Section: sectionBlock}
	for _, f := range blockFills {
		p := netip.MustParsePrefix(f.prefix)
		for _, held := range f.held {
			id := fmt.Sprintf("block/%d/%d", p.Bits(), held)
			title := fmt.Sprintf("AutoAssign + release, a /%d with %d held", p.Bits(), held)
			ws.Add(id, title, ours, func() *frame.Job { return blockJob(p, held) })
			ws.Add(id, title, theirs, func() *frame.Job { return calicoBlockJob(p, held) })
		}
	}
	return ws
}

// handleName returns a handle of 40 bytes.
func handleName(i int) string { return fmt.Sprintf("k8s-pod-network.%024d", i) }

func blockJob(p netip.Prefix, held int) *frame.Job {
	b := must(block.New(p, block.Options{Owner: alloc.HostOwner("host")}))
	now := time.Unix(1e9, 0)
	var buf [1]alloc.Allocation
	for i := range held {
		b.AutoAssign(buf[:0], 1, alloc.Claim{Handle: handleName(i)}, now, nil)
	}
	handle := handleName(held)
	return &frame.Job{Run: func(n int) {
		for range n {
			got := b.AutoAssign(buf[:0], 1, alloc.Claim{Handle: handle}, now, nil)
			if o, err := b.Release(got[0].Address, alloc.Guard{Handle: handle}, now, 0); o != alloc.Released || err != nil {
				panic(fmt.Sprint(o, err))
			}
		}
	}}
}

func calicoBlockJob(p netip.Prefix, held int) *frame.Job {
	b := newCalicoBlock(netOf(p), nil)
	affinity := "host:host"
	b.Affinity = &affinity
	for i := range held {
		handle := handleName(i)
		must(calicoAutoAssign(&b, 1, &handle, "host", nil, true, noReservations{}))
	}
	handle := handleName(held)
	// Its release takes a text, its caller has it at hand.
	var texts [4096]string
	for i, a := 0, p.Addr(); p.Contains(a); i, a = i+1, a.Next() {
		texts[i] = a.String()
	}
	release := make([]ipam.ReleaseOptions, 1)
	return &frame.Job{Run: func(n int) {
		for range n {
			ips, err := calicoAutoAssign(&b, 1, &handle, "host", nil, true, noReservations{})
			if err != nil || len(ips) != 1 {
				panic(fmt.Sprint(ips, err))
			}
			ip := ips[0].IP.To4()
			release[0] = ipam.ReleaseOptions{Address: texts[int(ip[2]&0x0f)<<8|int(ip[3])], Handle: handle}
			if free, _, err := calicoRelease(&b, release); err != nil || len(free) != 0 {
				panic(fmt.Sprint(free, err))
			}
		}
	}}
}
