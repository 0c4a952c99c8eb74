package main

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"testing"

	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// operations is how many operations TestServicesSideBySide performs.
var operations = flag.Int("operations", 200_000, "operations side by side with Kubernetes' service allocators; 10000000 takes about a minute")

// A long run of random operations on the real allocators and on ours, in turn: picks of
// either, named addresses and ports, releases. Every answer is compared, the counts
// after each operation, the content now and then. The load drifts between empty and
// full, so that picks spill into the static band and come back.
func TestServicesSideBySide(t *testing.T) {
	each := *operations / 5
	for seed := range seeds.Each(t, 1, 1) {
		sideBySide(t, each, seed)
	}
}

func sideBySide(t *testing.T, each int, seed uint64) {
	for i, p := range []string{"10.96.0.0/24", "10.96.0.0/27", "10.96.0.0/20", "fd00::/118"} {
		longAddresses(t, netip.MustParsePrefix(p), each, rand.New(rand.NewPCG(uint64(i)+seed, 1)))
	}
	longPorts(t, each, rand.New(rand.NewPCG(9+seed, 1)))
}

func longAddresses(t *testing.T, p netip.Prefix, n int, rng *rand.Rand) {
	r := &serviceReplay{t: t, p: p, k: must(ipallocator.NewInMemory(ipNet(p))), s: must(servicealloc.NewRange(p))}
	spilled := 0
	for i := range n {
		// Full and empty in turn, each for as long as it takes to get there.
		filling := i/int(8*usable(p))%2 == 0
		switch k := rng.IntN(10); {
		case k < 2:
			r.named(r.address(rng.Uint64()))
		case k < 5 == filling:
			r.release(r.address(rng.Uint64()))
		case k%2 == 0:
			r.theirs()
		default:
			r.ours()
		}
		st := r.s.Stats()
		if free := st.Static.Free + st.Dynamic.Free; free != uint64(r.k.Free()) {
			t.Fatalf("%v, operation %d: Kubernetes has %d free, ours %d", p, i, r.k.Free(), free)
		}
		if st.Dynamic.Free == 0 && st.Static.Used > 0 {
			spilled++
		}
		if i%50_000 == 0 {
			r.compare()
		}
	}
	r.compare()
	if spilled == 0 && n >= 40_000 && usable(p) < 4096 {
		t.Errorf("%v: the dynamic band was never full", p)
	}
}

func longPorts(t *testing.T, n int, rng *rand.Rand) {
	r := servicealloc.PortRange{First: 30000, Last: 30255}
	k := must(portallocator.NewInMemory(utilnet.PortRange{Base: 30000, Size: 256}))
	s := must(servicealloc.NewPorts(r))
	for i := range n {
		filling := i/2048%2 == 0
		port := uint16(29999 + rng.IntN(258))
		switch c := rng.IntN(10); {
		case c < 2:
			if kerr, err := k.Allocate(int(port)), s.Allocate(port); (kerr == nil) != (err == nil) {
				t.Fatalf("operation %d: Allocate(%d): Kubernetes %v, ours %v", i, port, kerr, err)
			}
		case c < 5 == filling:
			if held := k.Has(int(port)); k.Release(int(port)) != nil || s.Release(port) != held {
				t.Fatalf("operation %d: Release(%d)", i, port)
			}
		default:
			_, spilled, err := s.DryRun(0)
			got, kerr := k.AllocateNext()
			if (err == nil) != (kerr == nil) {
				t.Fatalf("operation %d: Kubernetes %v, ours %v", i, kerr, err)
			}
			if err != nil {
				continue
			}
			port = uint16(got)
			if b, _ := s.Lookup(port); (b == servicealloc.Static) != spilled {
				t.Fatalf("operation %d: Kubernetes picks %d, which is %v; ours spills: %v", i, got, b, spilled)
			}
			if err := s.Allocate(port); err != nil {
				t.Fatal(err)
			}
		}
		if st := s.Stats(); int(st.Static.Free+st.Dynamic.Free) != k.Free() {
			t.Fatalf("operation %d: Kubernetes has %d free, ours %+v", i, k.Free(), st)
		}
	}
}
