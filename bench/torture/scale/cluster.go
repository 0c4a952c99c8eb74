package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const (
	cooldown  = 5 * time.Minute
	leaseTime = 8 * time.Hour
	idleAfter = 30 * time.Minute
	zones     = 3
)

// config says what is simulated. Periods are in days.
type config struct {
	Days, Nodes, Pods int // Pods at the peak
	Engines           int
	Tick              time.Duration
	Turnover          float64 // how often a pod is replaced each day
	Leak              float64 // the share of releases that never come
	Seed              uint64

	UpgradeIn int // days in which every node is replaced
	ZoneEvery int
}

// place is where a node runs. The host there is replaced now and then.
type place struct {
	host uint32
	down bool
	pods []int32 // slots
}

// pod is one slot of the table of pods.
type pod struct {
	id     uint32 // 0: the slot is free
	place  int32
	at     int32 // in the pods of its place
	leased bool
}

type renewal struct {
	slot int32
	id   uint32
}

// cluster is the simulation: what runs, and what was told of addresses.
type cluster struct {
	config
	ctx      context.Context
	random   *rand.Rand
	now      time.Time
	day      int
	ticks    int // in the day
	meter    *meter
	engines  []*ipset.Engine
	operator ipset.Operator
	gc       *ipset.Collector
	oracle   *oracle

	places   []place
	inUse    map[uint32]bool // hosts
	lastHost uint32
	slots    []pod
	free     []int32
	live     int
	lastPod  uint32
	leaked   map[uint32]bool
	renewals map[int][]renewal // by tick since the beginning
	most     int               // pods of a place

	blockBits int     // of IPv4
	upgraded  float64 // places, of those in turn
	spot      float64 // nodes due to be taken away
}

// six is the pool of those nodes that have both families.
var six = alloc.Pool{Name: "six", Prefix: netip.MustParsePrefix("fd00::/64"), BlockBits: 122, Cooldown: cooldown}

// newCluster makes the pools. At the peak they are some 75 per cent full.
func newCluster(ctx context.Context, c config, db store.Store) (*cluster, error) {
	s := &cluster{
		config: c, ctx: ctx, random: rand.New(rand.NewPCG(c.Seed, 1)), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		meter: &meter{Store: db}, oracle: newOracle(), inUse: make(map[uint32]bool), leaked: make(map[uint32]bool),
		renewals: make(map[int][]renewal), most: max(2, c.Pods*9/5/c.Nodes),
	}
	for range c.Engines {
		e, err := ipset.New(s.meter, ipset.Options{
			Now: func() time.Time { return s.now }, Rand: rand.NewPCG(c.Seed, uint64(len(s.engines))),
			Cache: max(256, 2*c.Nodes/c.Engines), // so that it is full after some weeks
			Retry: ipset.Retry{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
		})
		if err != nil {
			return nil, err
		}
		s.engines = append(s.engines, e)
	}
	s.operator = s.engines[0].Operator()
	s.gc = s.operator.NewCollector(30 * time.Minute)
	for range c.Nodes {
		s.places = append(s.places, place{host: s.newHost()})
	}
	s.meter.now = new(usage)
	for _, p := range append(s.poolsFor(c), six) {
		if err := s.engines[0].AddPool(ctx, p); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// poolsFor returns 8 to 16 equal IPv4 pools. There are one to two blocks for each host, which is less than all hosts want at the peak.
func (s *cluster) poolsFor(c config) (out []alloc.Pool) {
	need := float64(c.Pods) / 0.75
	bits := int(math.Log2(need / 8)) // addresses of a pool
	s.blockBits = 32 - max(2, min(6, int(math.Log2(need/float64(c.Nodes)))))
	at := uint32(10 << 24)
	for i := range int(math.Ceil(need / float64(int(1)<<bits))) {
		start := at + uint32(i)<<bits
		a := netip.AddrFrom4([4]byte{byte(start >> 24), byte(start >> 16), byte(start >> 8), byte(start)})
		out = append(out, alloc.Pool{Name: fmt.Sprintf("pool-%02d", i), Prefix: netip.PrefixFrom(a, 32-bits), BlockBits: s.blockBits, Cooldown: cooldown})
	}
	return out
}

func (s *cluster) newHost() uint32 {
	s.lastHost++
	s.inUse[s.lastHost] = true
	return s.lastHost
}

// engineOf returns the engine of a host: nine times in ten its own.
func (s *cluster) engineOf(host uint32) *ipset.Engine {
	if s.random.IntN(10) == 0 {
		return s.engines[s.random.IntN(len(s.engines))]
	}
	return s.engines[int(host)%len(s.engines)]
}

// start runs a new pod on some node that has room. Every fourth node gives its pods both families, every tenth pod has a lease.
func (s *cluster) start() error {
	at := s.random.IntN(len(s.places))
	for tries := 0; s.places[at].down || len(s.places[at].pods) >= s.most; tries++ {
		if tries == 10_000 {
			return fmt.Errorf("no node has room for a pod")
		}
		at = s.random.IntN(len(s.places))
	}
	p := &s.places[at]
	s.lastPod++
	pod := pod{id: s.lastPod, place: int32(at), at: int32(len(p.pods)), leased: s.random.IntN(10) == 0}
	args := alloc.AssignArgs{Owner: alloc.HostOwner(hostName(p.host)), Num4: 1, Handle: podName(pod.id)}
	if at%4 == 0 {
		args.Num6 = 1
	}
	h := holding{pod: pod.id, host: p.host}
	if pod.leased {
		args.TTL = leaseTime
		h.ends = minutes(s.now.Add(leaseTime))
	}
	var got alloc.Assigned
	err := s.meter.call(assign, func() (err error) { got, err = s.engineOf(p.host).AutoAssign(s.ctx, args); return err })
	if err != nil {
		return err
	}
	if len(got.V4) != args.Num4 || len(got.V6) != args.Num6 {
		return fmt.Errorf("pod %d got %v and %v", pod.id, got.V4, got.V6)
	}
	for _, al := range append(got.V4, got.V6...) {
		if err := s.oracle.assigned(al.Address, h, s.now); err != nil {
			return err
		}
	}
	slot := int32(len(s.slots))
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
		s.slots[slot] = pod
	} else {
		s.slots = append(s.slots, pod)
	}
	p.pods = append(p.pods, slot)
	s.live++
	if pod.leased {
		s.renewLater(renewal{slot, pod.id})
	}
	return nil
}

func (s *cluster) renewLater(r renewal) {
	at := s.tickNumber() + int(leaseTime/2/s.Tick)
	s.renewals[at] = append(s.renewals[at], r)
}

// tickNumber counts ticks since the beginning.
func (s *cluster) tickNumber() int { return s.day*s.ticksOfADay() + s.ticks }

func (s *cluster) ticksOfADay() int { return int(24 * time.Hour / s.Tick) }

// forget takes a pod out of the tables.
func (s *cluster) forget(slot int32) {
	pod := s.slots[slot]
	p := &s.places[pod.place]
	last := p.pods[len(p.pods)-1]
	p.pods[pod.at], s.slots[last].at = last, pod.at
	p.pods = p.pods[:len(p.pods)-1]
	s.slots[slot].id = 0
	s.free = append(s.free, slot)
	s.live--
}

// stop ends a pod. Now and then its release is forgotten, and half of the pods with a lease leave without a word.
func (s *cluster) stop(slot int32) error {
	pod := s.slots[slot]
	host := s.places[pod.place].host
	s.forget(slot)
	switch {
	case pod.leased && s.random.IntN(2) == 0:
		return nil
	case !pod.leased && s.random.Float64() < s.Leak:
		s.leaked[pod.id] = true
		return nil
	}
	var released []netip.Addr
	err := s.meter.call(release, func() (err error) {
		released, err = s.engineOf(host).ReleaseByHandle(s.ctx, podName(pod.id))
		return err
	})
	if err != nil {
		return err
	}
	if want := 1 + btoi(pod.place%4 == 0); len(released) != want {
		return fmt.Errorf("pod %d had %d addresses, released are %v", pod.id, want, released)
	}
	return s.gone(released, pod.id, host)
}

// gone notes released addresses.
func (s *cluster) gone(released []netip.Addr, pod, host uint32) error {
	for _, a := range released {
		delete(s.leaked, s.oracle.held[a.As16()].pod)
		if err := s.oracle.released(a, pod, host, s.now); err != nil {
			return err
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// removeHost removes the host of a place with all addresses that it holds, and adds a new host in its place.
func (s *cluster) removeHost(at int) error {
	p := &s.places[at]
	for len(p.pods) > 0 {
		s.forget(p.pods[0])
	}
	var released []netip.Addr
	err := s.meter.call(removeHost, func() (err error) {
		released, _, err = s.engineOf(p.host).RemoveHost(s.ctx, alloc.HostOwner(hostName(p.host)))
		return err
	})
	if err != nil {
		return err
	}
	if err := s.gone(released, 0, p.host); err != nil {
		return err
	}
	delete(s.inUse, p.host)
	p.host = s.newHost()
	return nil
}
