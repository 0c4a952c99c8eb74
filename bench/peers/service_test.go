package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/model"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// serviceWorlds are the ranges that a trace may begin with: both accept them.
var serviceWorlds = []string{
	"10.96.0.0/24", "10.96.0.0/27", "10.96.0.0/28", "192.168.1.240/30", "192.168.1.0/31", "192.168.1.0/32", "10.96.0.0/22",
	"fd00::/122", "fd00::/124", "fd00::/127", "fd00::/128", "fd00::/116", "2001:db8::/112", "255.255.255.0/24",
}

// serviceReplay drives a range of Kubernetes and one of ours with one trace. Kubernetes
// draws from a source of its own, so that the two can't pick alike: each picks in turn,
// the other must agree that the pick is one it may make, and takes the same by name.
type serviceReplay struct {
	t testing.TB
	p netip.Prefix
	k *ipallocator.Range
	s *servicealloc.Range
}

// replayService runs a trace to its end and then takes all that is left.
func replayService(t testing.TB, data []byte) {
	tr := model.NewTrace(data)
	p := netip.MustParsePrefix(serviceWorlds[tr.Op(len(serviceWorlds))])
	r := &serviceReplay{t: t, p: p, k: must(ipallocator.NewInMemory(ipNet(p))), s: must(servicealloc.NewRange(p))}
	r.compare()
	for tr.More() {
		op, a := tr.Op(6), r.address(tr.Uint())
		switch op {
		case 0, 1:
			r.theirs()
		case 2:
			r.ours()
		case 3:
			r.named(a)
		default:
			r.release(a)
		}
		r.compare()
	}
	for r.theirs() {
	}
	r.compare()
}

// address returns one in the range or just beside it.
func (r *serviceReplay) address(n uint64) netip.Addr {
	size := uint64(1) << (r.p.Addr().BitLen() - r.p.Bits())
	a := r.p.Addr()
	if n %= size + 2; n == size+1 {
		return a.Prev()
	}
	if n < size {
		return addrNumber(a)(n)
	}
	return addrNumber(a)(size - 1).Next()
}

// theirs lets Kubernetes pick.
func (r *serviceReplay) theirs() bool {
	r.t.Helper()
	_, spilled, err := r.s.DryRun(netip.Addr{})
	ip, kerr := r.k.AllocateNext()
	if kerr != nil || err != nil {
		if !errors.Is(kerr, ipallocator.ErrFull) || !errors.Is(err, ipalloc.ErrFull) {
			r.t.Fatalf("AllocateNext: Kubernetes %v, %v; ours %v", ip, kerr, err)
		}
		return false
	}
	a := addrOfIP(ip)
	want := servicealloc.Dynamic
	if spilled {
		want = servicealloc.Static
	}
	if got, _ := r.s.Lookup(a); got != want {
		r.t.Fatalf("Kubernetes picks %v, which is %v; ours would pick a %v one", a, got, want)
	}
	if err := r.s.Allocate(a); err != nil {
		r.t.Fatalf("Kubernetes picks %v: %v", a, err)
	}
	return true
}

// ours lets our range pick.
func (r *serviceReplay) ours() {
	r.t.Helper()
	a, _, err := r.s.AllocateNext()
	if err != nil {
		if ip, kerr := r.k.AllocateNext(); !errors.Is(err, ipalloc.ErrFull) || !errors.Is(kerr, ipallocator.ErrFull) {
			r.t.Fatalf("ours %v; Kubernetes %v, %v", err, ip, kerr)
		}
		return
	}
	if kerr := r.k.Allocate(a.AsSlice()); kerr != nil {
		r.t.Fatalf("ours picks %v: Kubernetes %v", a, kerr)
	}
}

// named compares a request for an address.
func (r *serviceReplay) named(a netip.Addr) {
	r.t.Helper()
	if !a.IsValid() {
		return // beside the end of all addresses
	}
	kerr, err := r.k.Allocate(a.AsSlice()), r.s.Allocate(a)
	outside := (*ipallocator.ErrNotInRange)(nil)
	if (kerr == nil) != (err == nil) || errors.As(kerr, &outside) != errors.Is(err, ipalloc.ErrOutOfRange) ||
		errors.Is(kerr, ipallocator.ErrAllocated) != errors.Is(err, ipalloc.ErrOccupied) {
		r.t.Fatalf("Allocate(%v): Kubernetes %v; ours %v", a, kerr, err)
	}
}

// release compares a release: Kubernetes does not say whether there was anything.
func (r *serviceReplay) release(a netip.Addr) {
	r.t.Helper()
	if !a.IsValid() {
		return
	}
	held := r.k.Has(a.AsSlice())
	kerr := r.k.Release(a.AsSlice())
	if got := r.s.Release(a); kerr != nil || got != held {
		r.t.Fatalf("Release(%v): Kubernetes %v, held %v; ours %v", a, kerr, held, got)
	}
}

// compare compares the states: counts, content, and the stored form, both ways.
func (r *serviceReplay) compare() {
	t := r.t
	t.Helper()
	if err := r.s.Check(); err != nil {
		t.Fatal(err)
	}
	st := r.s.Stats()
	if free, used := st.Static.Free+st.Dynamic.Free, st.Static.Used+st.Dynamic.Used; free != uint64(r.k.Free()) || used != uint64(r.k.Used()) {
		t.Fatalf("Kubernetes has %d free and %d taken, ours %d and %d", r.k.Free(), r.k.Used(), free, used)
	}
	var want []netip.Addr
	r.k.ForEach(func(ip net.IP) { want = append(want, addrOfIP(ip)) })
	slices.SortFunc(want, netip.Addr.Compare)
	if got := slices.Collect(r.s.All()); !slices.Equal(got, want) {
		t.Fatalf("Kubernetes holds %v, ours %v", want, got)
	}
	var stored api.RangeAllocation
	if err := r.k.Snapshot(&stored); err != nil {
		t.Fatal(err)
	}
	mine, err := rangealloc.Encode(stored.Range, servicealloc.Grant{Addrs: want})
	if err != nil || !bytes.Equal(mine, stored.Data) {
		t.Fatalf("Kubernetes stores %s %x, ours %x (%v)", stored.Range, stored.Data, mine, err)
	}
	if again := must(rangealloc.Decode(stored.Range, stored.Data)); !slices.Equal(again.Addrs, want) {
		t.Fatalf("imported: %v, want %v", again.Addrs, want)
	}
}

// FuzzServicesAgainstKubernetes replays traces on both.
func FuzzServicesAgainstKubernetes(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for world := range serviceWorlds {
		data := []byte{byte(world)}
		for range 80 {
			data = model.AppendOp(data, byte(rng.IntN(6)), rng.Uint64N(1<<17))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			return // every step compares everything
		}
		replayService(t, data)
	})
}

// Ports against the node port allocator, in the way of the replay of addresses.
func TestPortsAgainstKubernetes(t *testing.T) {
	for _, r := range []servicealloc.PortRange{{First: 30000, Last: 32767}, {First: 30000, Last: 30015}, {First: 30000, Last: 30016}, {First: 100, Last: 228}, {First: 65535, Last: 65535}} {
		k := must(portallocator.NewInMemory(utilnet.PortRange{Base: int(r.First), Size: int(r.Last-r.First) + 1}))
		s := must(servicealloc.NewPorts(r))
		rng := rand.New(rand.NewPCG(1, uint64(r.Last)))
		for range 4000 {
			n := int(r.First) + rng.IntN(int(r.Last-r.First)+3) - 1
			port := uint16(n)
			switch rng.IntN(4) {
			case 0, 1:
				_, spilled, err := s.DryRun(0)
				got, kerr := k.AllocateNext()
				if (err == nil) != (kerr == nil) {
					t.Fatalf("%v: Kubernetes %v, ours %v", r, kerr, err)
				}
				if err != nil {
					continue
				}
				port = uint16(got)
				if b, _ := s.Lookup(port); (b == servicealloc.Static) != spilled {
					t.Fatalf("%v: Kubernetes picks %d, which is %v; ours spills: %v", r, got, b, spilled)
				}
				if err := s.Allocate(port); err != nil {
					t.Fatal(err)
				}
			case 2:
				if n > 65535 {
					continue
				}
				if kerr, err := k.Allocate(n), s.Allocate(port); (kerr == nil) != (err == nil) {
					t.Fatalf("%v: Allocate(%d): Kubernetes %v, ours %v", r, n, kerr, err)
				}
			case 3:
				if n > 65535 {
					continue
				}
				if held := k.Has(n); k.Release(n) != nil || s.Release(port) != held {
					t.Fatalf("%v: Release(%d)", r, n)
				}
			}
			if st := s.Stats(); int(st.Static.Free+st.Dynamic.Free) != k.Free() {
				t.Fatalf("%v: Kubernetes has %d free, ours %+v", r, k.Free(), st)
			}
		}
		var stored api.RangeAllocation
		if err := k.Snapshot(&stored); err != nil {
			t.Fatal(err)
		}
		var held servicealloc.Grant
		for n := range s.All() {
			held.Ports = append(held.Ports, servicealloc.Port{Number: n})
		}
		if mine := must(rangealloc.Encode(stored.Range, held)); stored.Range != r.String() || !bytes.Equal(mine, stored.Data) {
			t.Fatalf("%v: Kubernetes stores %s %x, ours %x", r, stored.Range, stored.Data, mine)
		}
	}
}

// Each divergence of the table, on both sides.
func TestServiceDivergences(t *testing.T) {
	k64, s64 := must(ipallocator.NewInMemory(ipNet(netip.MustParsePrefix("fd00::/64")))), must(servicealloc.NewRange(netip.MustParsePrefix("fd00::/64")))
	far := netip.MustParseAddr("fd00::1:0:0:1")
	khuge, shuge := must(ipallocator.NewInMemory(ipNet(netip.MustParsePrefix("0.0.0.0/1")))), must(servicealloc.NewRange(netip.MustParsePrefix("0.0.0.0/1")))
	p30 := netip.MustParsePrefix("10.0.0.0/30")
	kfull, sfull := must(ipallocator.NewInMemory(ipNet(p30))), must(servicealloc.NewRange(p30))
	for _, a := range []string{"10.0.0.1", "10.0.0.2"} {
		if kfull.Allocate(net.ParseIP(a)) != nil || sfull.Allocate(netip.MustParseAddr(a)) != nil {
			t.Fatal(a)
		}
	}
	kports := must(portallocator.NewInMemory(utilnet.PortRange{Base: 30000, Size: 2768}))
	sports := must(servicealloc.NewPorts(servicealloc.PortRange{First: 30000, Last: 32767}))
	dryIP, dryErr := kfull.DryRun().AllocateNext()
	dryPort, _ := portallocator.StartOperation(kports, true).AllocateNext()
	port, _, _ := sports.DryRun(0)
	mapped := netip.MustParseAddr("::ffff:10.0.0.5")
	k24, s24 := must(ipallocator.NewInMemory(ipNet(netip.MustParsePrefix("10.0.0.0/24")))), must(servicealloc.NewRange(netip.MustParsePrefix("10.0.0.0/24")))
	overfull := kfull.Restore(ipNet(p30), []byte{0xff, 0xff})
	_, _, dryNamed := sfull.DryRun(netip.MustParseAddr("10.0.0.1"))
	_, badBits := rangealloc.Decode("10.0.0.0/30", []byte{0xff, 0xff})
	_, _, sFullErr := sfull.DryRun(netip.Addr{})

	shown := map[string]bool{
		svcLargeIPv6: k64.Allocate(far.AsSlice()) != nil && s64.Allocate(far) == nil,
		svcHugeIPv4:  khuge.Free() == 0 && shuge.Stats().Dynamic.Free == 1<<31-2-256,
		svcDryNext:   dryErr == nil && addrOfIP(dryIP) == p30.Addr() && errors.Is(sFullErr, ipalloc.ErrFull),
		svcDryNamed:  kfull.DryRun().Allocate(net.ParseIP("10.0.0.1")) == nil && errors.Is(dryNamed, ipalloc.ErrOccupied),
		svcDryPort:   dryPort > 32767 && port >= 30086 && port <= 32767,
		svcRestore: overfull == nil && kfull.Free() < 0 &&
			errors.Is(badBits, ipalloc.ErrCorrupt),
		svcMapped: k24.Allocate(mapped.AsSlice()) == nil && errors.Is(s24.Allocate(mapped), ipalloc.ErrOutOfRange),
	}
	for _, d := range serviceDivergences {
		if strings.HasPrefix(d.Case, "repair") { // shown by TestRepairAgainstKubernetes
			continue
		}
		if !shown[d.Case] {
			t.Errorf("%s: not as the table says", d.Case)
		}
		delete(shown, d.Case)
	}
	for name := range shown {
		t.Errorf("%s: not in the table", name)
	}
}

// servicePeerObeys checks the contract that makes the figures of a contestant
// comparable: each address once, full after the last, and what is given back comes again.
func servicePeerObeys[H any, S addrSet[H]](t *testing.T, p addrPeer[H, S]) {
	t.Run(p.name, func(t *testing.T) {
		for _, prefix := range []string{"10.0.0.0/22", "fd00::/118"} {
			pool := netip.MustParsePrefix(prefix)
			s := must(p.make(pool))
			seen := map[netip.Addr]bool{}
			for {
				h, err := s.AllocateNext()
				if err != nil {
					break
				}
				a := p.addr(h)
				if !pool.Contains(a) || seen[a] {
					t.Fatalf("%s: %v is outside or given twice", prefix, a)
				}
				seen[a] = true
			}
			n := uint64(len(seen))
			if want := usable(pool); n != want && !(p.name == cilium && n == want-1 && pool.Addr().Is6()) { // no last address there
				t.Fatalf("%s: %d addresses, want %d", prefix, n, want)
			}
			for _, x := range []uint64{7, 700} {
				a := addrNumber(pool.Addr())(x)
				s.Release(p.handle(a))
				if got := p.addr(must(s.AllocateNext())); got != a {
					t.Fatalf("%s: %v comes after %v was given back", prefix, got, a)
				}
				s.Release(p.handle(a))
				if err := s.Allocate(p.handle(a)); err != nil {
					t.Fatalf("%s: %v", prefix, err)
				}
			}
		}
	})
}

func TestServicePeers(t *testing.T) {
	servicePeerObeys(t, oursAddrPeer)
	servicePeerObeys(t, bitsetAddrPeer)
	servicePeerObeys(t, ciliumAddrPeer)
	servicePeerObeys(t, kubernetesAddrPeer)
	servicePeerObeys(t, kubernetesObjectPeer)
}

// Every work of a /16, of ports and of objects runs with every contestant.
func TestServiceWorksRun(t *testing.T) {
	for _, w := range serviceWorks().List {
		if strings.Contains(w.ID, "/12") || strings.Contains(w.ID, "/v6") || w.ID == "svcobjects/10000" {
			continue // the same with ranges that take seconds to fill, or 10 ms for an address
		}
		for _, c := range w.Cells {
			j := c.Open()
			if j.Reset != nil {
				j.Reset()
			}
			j.Run(max(j.N, j.Grain, 64))
		}
	}
}
