package main

import (
	"fmt"
	"net/netip"

	"github.com/ipalloc/ipalloc/internal/addr"

	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

// prefixSet is what every contestant of the system cidrset can do, with its own
// type H for a prefix. The counts that ours returns cost the others nothing.
type prefixSet[H any] interface {
	AllocateNext() (H, error)
	Occupy(H) (uint64, error)
	Release(H) (uint64, error)
}

// prefixPeer is a contestant of the system cidrset.
type prefixPeer[H any, S prefixSet[H]] struct {
	name   string
	make   func(pool netip.Prefix, childBits int) (S, error)
	handle func(netip.Prefix) H // to the contestant's type, never timed
	prefix func(H) netip.Prefix
}

const (
	systemCidrset = "cidrset"
	// window is how many of the children that are taken a driver knows; with all
	// of 2^24 the driver's array would be what is measured.
	windowBits, window = 12, 1 << windowBits
	// ownBits is the same for each of many goroutines.
	ownBits, own = 6, 1 << ownBits
	batch        = 64
)

// benchPool is the pool of every work; the length of a child makes its size.
var benchPool = netip.MustParsePrefix("10.0.0.0/8")

// benchPart is the part of it that is occupied and released as one.
var benchPart = netip.MustParsePrefix("10.16.0.0/12")

// fills are the fill levels of a set that is churned: 1/free of it is free.
var fills = []struct {
	name string
	free uint64
}{{"50", 2}, {"99", 100}, {"99.99", 10000}}

// cidrsetWorks returns the works of package cidrset with all contestants.
func cidrsetWorks() *frame.Works {
	ws := &frame.Works{Section: systemCidrset, Skip: skipCidrset}
	addPrefixPeer(ws, nullPeer)
	addPrefixPeer(ws, oursPeer)
	addPrefixPeer(ws, bitsetPeer)
	addPrefixPeer(ws, ciliumPeer)
	addPrefixPeer(ws, kubernetesPeer)
	return ws
}

// skipCidrset tells what is not measured because it takes minutes: a bitmap that
// grows by a few words at a time, copying itself, up to 2^24.
func skipCidrset(contestant, id string) bool {
	return id == "fill/2^24" && (contestant == kubernetes || contestant == cilium)
}

// addPrefixPeer adds a contestant to every work that needs no more than prefixSet.
func addPrefixPeer[H any, S prefixSet[H]](ws *frame.Works, p prefixPeer[H, S]) {
	for _, order := range []int{16, 20, 24} {
		for _, f := range fills {
			ws.Add(fmt.Sprintf("pair/2^%d/%s", order, f.name),
				fmt.Sprintf("Release + AllocateNext, 2^%d children, %s %% taken", order, f.name),
				p.name, func() *frame.Job { return pairJob(p, order, f.free) })
		}
	}
	for _, order := range []int{16, 20, 24} {
		ws.Add(fmt.Sprintf("far/2^%d", order),
			fmt.Sprintf("the same, 2^%d children, one free at the far end", order),
			p.name, func() *frame.Job { return farJob(p, order) })
	}
	for _, g := range []int{2, 32} {
		ws.Add(fmt.Sprintf("pair/g%d", g),
			fmt.Sprintf("the same, 2^16 children, 50 %% taken, %d goroutines", g),
			p.name, func() *frame.Job { return parallelJob(p, g) })
	}
	for _, order := range []int{16, 20, 24} {
		ws.Add(fmt.Sprintf("fill/2^%d", order),
			fmt.Sprintf("AllocateNext, a new set of 2^%d children until it is full", order),
			p.name, func() *frame.Job { return fillJob(p, order) })
	}
	for _, g := range []int{1, 32} {
		ws.Add(fmt.Sprintf("batch/g%d", g),
			fmt.Sprintf("AllocateN of %d, per child, 2^20 children until full, %s", batch, goroutines(g)),
			p.name, func() *frame.Job { return batchJob(p, g) })
	}
	for _, order := range []int{16, 24} {
		ws.Add(fmt.Sprintf("range/2^%d", order-4),
			fmt.Sprintf("Occupy + Release of a prefix of 2^%d children", order-4),
			p.name, func() *frame.Job { return rangeJob(p, order) })
	}
	ws.Add("startup/2^16", "Occupy, each of 2^16 children of a new set, shuffled", p.name, func() *frame.Job { return startupJob(p) })
}

func goroutines(g int) string {
	if g == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", g)
}

// scatter returns element i of a permutation of [0, 2^order) that looks random.
func scatter(i uint64, order int) uint64 {
	mask := uint64(1)<<order - 1
	for range 3 {
		i = (i*0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & mask
		i ^= i >> (order/2 + 1)
	}
	return i
}

// filled returns a set of which all but the first 1/free of the children, in the
// order of scatter, are taken, and n of those.
func filled[H any, S prefixSet[H]](p prefixPeer[H, S], order int, free uint64, n int) (S, []H) {
	s, codec := newSet(p, order)
	child := func(i uint64) H { return p.handle(codec.Prefix(scatter(i, order))) }
	total := uint64(1) << order
	if free = total / free; free >= total/2 {
		for i := free; i < total; i++ {
			must(s.Occupy(child(i)))
		}
	} else {
		fill(s, p, codec)
		for i := range free {
			must(s.Release(child(i)))
		}
	}
	taken := make([]H, n)
	for i := range taken {
		taken[i] = child(free + uint64(i))
	}
	return s, taken
}

// fill takes every child. The last one goes first: a bitmap that grows a few words at
// a time then grows once, and not for half a minute.
func fill[H any, S prefixSet[H]](s S, p prefixPeer[H, S], codec addr.Codec) {
	must(s.Occupy(p.handle(codec.Prefix(codec.Last()))))
	must(s.Occupy(p.handle(benchPool)))
}

func newSet[H any, S prefixSet[H]](p prefixPeer[H, S], order int) (S, addr.Codec) {
	bits := benchPool.Bits() + order
	return must(p.make(benchPool, bits)), must(addr.NewCodec(benchPool, bits))
}

// must returns v. Every call of a work must succeed, or it measures something else.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// pairs gives back a random one of the children in win and takes another, n times.
// It returns the state of the generator, of which x is the seed.
func pairs[H any, S prefixSet[H]](s S, win []H, shift uint, n int, x uint64) uint64 {
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
		w := x >> shift
		if _, err := s.Release(win[w]); err != nil {
			panic(err)
		}
		h, err := s.AllocateNext()
		if err != nil {
			panic(err)
		}
		win[w] = h
	}
	return x
}

func pairJob[H any, S prefixSet[H]](p prefixPeer[H, S], order int, free uint64) *frame.Job {
	s, win := filled(p, order, free, window)
	x := uint64(1)
	return &frame.Job{Run: func(n int) { x = pairs(s, win, 64-windowBits, n, x) }}
}

// farJob has one free child, the last one, and a cursor on the first: each call
// that looks for it has the whole set to go.
func farJob[H any, S prefixSet[H]](p prefixPeer[H, S], order int) *frame.Job {
	s, codec := newSet(p, order)
	fill(s, p, codec)
	last := p.handle(codec.Prefix(codec.Last()))
	return &frame.Job{Run: func(n int) {
		h := last
		for range n {
			if _, err := s.Release(h); err != nil {
				panic(err)
			}
			var err error
			if h, err = s.AllocateNext(); err != nil {
				panic(err)
			}
		}
	}}
}

func parallelJob[H any, S prefixSet[H]](p prefixPeer[H, S], g int) *frame.Job {
	s, taken := filled(p, 16, 2, g*own)
	x := make([]uint64, g)
	return &frame.Job{Wall: true, Grain: g, Run: func(n int) {
		frame.Together(g, func(i int) {
			x[i] = pairs(s, taken[i*own:(i+1)*own], 64-ownBits, n/g, x[i]+uint64(i))
		})
	}}
}

func fillJob[H any, S prefixSet[H]](p prefixPeer[H, S], order int) *frame.Job {
	var s S
	return &frame.Job{
		N:     1 << order,
		Reset: func() { s, _ = newSet(p, order) },
		Run: func(n int) {
			for range n {
				if _, err := s.AllocateNext(); err != nil {
					panic(err)
				}
			}
		},
	}
}

func batchJob[H any, S prefixSet[H]](p prefixPeer[H, S], g int) *frame.Job {
	s, _ := newSet(p, 20)
	all := p.handle(benchPool)
	allocateN := func(dst []H) (err error) {
		for i := range dst {
			if dst[i], err = s.AllocateNext(); err != nil {
				return err
			}
		}
		return nil
	}
	if b, ok := any(s).(interface{ AllocateN([]H) error }); ok {
		allocateN = b.AllocateN
	}
	dst := make([]H, g*batch)
	return &frame.Job{
		N:     1 << 20,
		Wall:  g > 1,
		Reset: func() { must(s.Release(all)) },
		Run: func(n int) {
			frame.Together(g, func(i int) {
				dst := dst[i*batch : (i+1)*batch]
				for range n / batch / g {
					if err := allocateN(dst); err != nil {
						panic(err)
					}
				}
			})
		},
	}
}

func rangeJob[H any, S prefixSet[H]](p prefixPeer[H, S], order int) *frame.Job {
	s, _ := newSet(p, order)
	part := p.handle(benchPart)
	return &frame.Job{Run: func(n int) {
		for range n {
			if _, err := s.Occupy(part); err != nil {
				panic(err)
			}
			if _, err := s.Release(part); err != nil {
				panic(err)
			}
		}
	}}
}

func startupJob[H any, S prefixSet[H]](p prefixPeer[H, S]) *frame.Job {
	const order = 16
	s, codec := newSet(p, order)
	all := make([]H, 1<<order)
	for i := range all {
		all[i] = p.handle(codec.Prefix(scatter(uint64(i), order)))
	}
	return &frame.Job{
		N:     len(all),
		Reset: func() { s, _ = newSet(p, order) },
		Run: func(n int) {
			for _, h := range all[:n] {
				if _, err := s.Occupy(h); err != nil {
					panic(err)
				}
			}
		},
	}
}
