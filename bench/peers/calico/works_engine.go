package main

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// Contestants.
const (
	ours   = "ours"
	theirs = "calico"
)

const sectionEngine = "Engine and client, on a store in memory"

// contestants make engines for a pool of /26 blocks, each with a store of its own in memory.
var contestants = []struct {
	name string
	make func(pool netip.Prefix) engine
}{
	{ours, func(p netip.Prefix) engine {
		// A number needs strict affinity; none is asked here, as Calico's default of 20 is given with each call.
		return newOurs(store.NewMemory(), p, alloc.Config{})
	}},
	{theirs, func(p netip.Prefix) engine { return newCalicoEngine(newBackend(), p) }},
}

var wholeNet = netip.MustParsePrefix("10.0.0.0/8")

// engineWorks are the works on engines with one store in memory each.
func engineWorks() *frame.Works {
	ws := &frame.Works{Section: sectionEngine}
	for _, c := range contestants {
		for _, held := range []int{0, 32, 62} {
			ws.Add(fmt.Sprintf("engine/%d", held), fmt.Sprintf("AutoAssign + release, a host with a /26 of which %d are held", held),
				c.name, func() *frame.Job { return pairJob(c.make(wholeNet), held) })
		}
		ws.Add("engine/handle", "AutoAssign + release by handle, 32 held", c.name, func() *frame.Job { return handleJob(c.make(wholeNet)) })
		for _, g := range []int{32, 256} {
			ws.Add(fmt.Sprintf("engine/g%d", g), fmt.Sprintf("AutoAssign + release, %d callers of one host, 16 blocks half full", g),
				c.name, func() *frame.Job { return crowdJob(c.make(wholeNet), g) })
		}
		for _, blocks := range []int{10, 1000, 100_000} {
			ws.Add(fmt.Sprintf("first/%d", blocks), fmt.Sprintf("first address of a new host, %d blocks in the cluster", blocks),
				c.name, func() *frame.Job { return firstJob(c.make(wholeNet), blocks) })
		}
		for _, bits := range []int{22, 16, 10} {
			if bits == 10 && c.name == theirs {
				continue // minutes for one address
			}
			pool, blocks := netip.PrefixFrom(wholeNet.Addr(), bits), 1<<(26-bits)
			ws.Add(fmt.Sprintf("full/%d", blocks), fmt.Sprintf("AutoAssign in a full pool of %d blocks", blocks),
				c.name, func() *frame.Job { return fullJob(c.make(pool), pool, false) })
			ws.Add(fmt.Sprintf("borrow/%d", blocks), fmt.Sprintf("borrow the one free address of %d blocks + release", blocks),
				c.name, func() *frame.Job { return fullJob(c.make(pool), pool, true) })
		}
	}
	return ws
}

// handleName returns a handle of 40 bytes.
func handleName(i int) string { return fmt.Sprintf("k8s-pod-network.%024d", i) }

// know stores what the contestant's store must know of a host beforehand.
func know(e engine, host string) {
	if l, ok := e.(*locked); ok {
		e = l.engine
	}
	if c, ok := e.(*calicoEngine); ok {
		c.known(host)
	}
}

// pair takes an address and gives it back.
func pair(e engine, host, handle string, blocks int) error {
	l, err := e.assign(host, handle, blocks)
	if err != nil {
		return err
	}
	return e.release(l, handle)
}

func pairJob(e engine, held int) *frame.Job {
	know(e, "host")
	for i := range held {
		must(e.assign("host", handleName(i), 0))
	}
	handle := handleName(held)
	return &frame.Job{Run: func(n int) {
		for range n {
			check(pair(e, "host", handle, 0))
		}
	}}
}

func handleJob(e engine) *frame.Job {
	know(e, "host")
	for i := range 32 {
		must(e.assign("host", handleName(i), 0))
	}
	handle := handleName(32)
	return &frame.Job{Run: func(n int) {
		for range n {
			must(e.assign("host", handle, 0))
			check(e.releaseHandle(handle))
		}
	}}
}

// crowdJob is g callers of one host with 16 blocks, half of whose addresses are held. A call that fails for no good reason
// is made again: the time of an operation is that of one that succeeded.
func crowdJob(e engine, g int) *frame.Job {
	know(e, "host")
	const blocks = 16
	for i := range blocks {
		e.fill(nth(i), "host", 32)
	}
	return &frame.Job{Wall: true, Grain: g, Run: func(n int) {
		frame.Together(g, func(i int) {
			handle := handleName(i)
			for done, failed := 0, 0; done < n/g; {
				l, err := e.assign("host", handle, 20)
				if err == nil && l != (lease{}) {
					check(e.release(l, handle))
					done, failed = done+1, 0
				} else if failed++; failed > 1000 {
					panic(err)
				}
			}
		})
	}}
}

// firstJob is hosts without a block that ask for an address, one after the other, each with a process of its own.
func firstJob(e engine, blocks int) *frame.Job {
	const row, rows = 20, 1 << 18 / 20 // blocks of a host; places for them, taken in a scattered order
	for i := range blocks {
		e.fill(nth(i/row*7919%rows*row+i%row), fmt.Sprint("old", i/row), 1)
	}
	const batch = 4
	var hosts, handles [batch]string
	for i := range batch {
		hosts[i], handles[i] = fmt.Sprint("new", i), handleName(i)
		know(e, hosts[i])
	}
	clean := true
	return &frame.Job{
		N: batch,
		Reset: func() {
			for i := range hosts {
				if !clean {
					check(e.releaseHandle(handles[i]))
					e.drop(hosts[i])
				}
			}
			clean = false
		},
		Run: func(n int) {
			for i := range n {
				e.fresh()
				if l := must(e.assign(hosts[i], handles[i], 0)); l == (lease{}) {
					panic("no address")
				}
			}
		},
	}
}

// nth returns the n-th block of the network.
func nth(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 10), byte(n >> 2), byte(n << 6)}), 26)
}

// fullJob is a host without a block in a pool all of whose blocks are full, but for one address of one block if
// it can borrow.
func fullJob(e engine, pool netip.Prefix, borrow bool) *frame.Job {
	know(e, "new")
	blocks := 1 << (26 - pool.Bits())
	for i := range blocks {
		held := 64
		if borrow && i == blocks/2 {
			held--
		}
		e.fill(nth(i), fmt.Sprint("old", i/20), held)
	}
	handle := handleName(0)
	return &frame.Job{Run: func(n int) {
		for range n {
			l := must(e.assign("new", handle, 0))
			if (l != lease{}) != borrow {
				panic(fmt.Sprint("got ", l))
			}
			if borrow {
				check(e.release(l, handle))
			}
		}
	}}
}
