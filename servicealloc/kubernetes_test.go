package servicealloc

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The small ranges of Kubernetes' tests: one without any address, one in which a single
// one is free, one that is filled in random order and emptied.
func TestSmallRangesOfKubernetes(t *testing.T) {
	none := newRangeT(t, "192.168.1.0/32")
	if s := none.Stats(); s != (Stats{}) {
		t.Error(s)
	}
	_, _, err := none.AllocateNext()
	wantErr(t, err, ipalloc.ErrFull)
	wantErr(t, none.Allocate(ip("192.168.1.0")), ipalloc.ErrOutOfRange)

	small := newRangeT(t, "192.168.1.240/30")
	found := map[netip.Addr]bool{}
	for range 2 {
		a, spilled, err := small.AllocateNext()
		if err != nil || spilled || found[a] {
			t.Fatal(a, spilled, err)
		}
		found[a] = true
	}
	for a := range found {
		if taken := has(small, a); !taken {
			t.Error(a)
		}
		wantErr(t, small.Allocate(a), ipalloc.ErrOccupied)
	}
	for range 100 { // full, however often it is asked
		_, _, err := small.AllocateNext()
		wantErr(t, err, ipalloc.ErrFull)
	}
	check(t, none, small)
}

// The reserved band of Kubernetes' tests: the dynamic addresses go first, then the
// static ones by name and by picks, each once; releasing a dynamic one redirects picks.
func TestReservedBandOfKubernetes(t *testing.T) {
	for _, tt := range []struct {
		prefix  string
		dynamic int
	}{{"192.168.1.0/25", 126 - 16}, {"192.168.0.0/22", 1022 - 64}, {"fd00::/120", 255 - 16}} {
		r := newRangeT(t, tt.prefix)
		for i := range tt.dynamic {
			if a, spilled, err := r.AllocateNext(); err != nil || spilled {
				t.Fatal(tt.prefix, i, a, spilled, err)
			}
		}
		static := pfx(tt.prefix).Addr().Next()
		wantErr(t, r.Allocate(static), nil)
		last := static
		for range 5 {
			last = last.Next()
		}
		a, spilled, err := r.AllocateNext()
		if err != nil || !spilled {
			t.Fatal(a, err)
		}
		for a := range r.All() {
			if b, _ := r.Lookup(a); b == Dynamic {
				r.Release(a)
				if again, spilled, err := r.AllocateNext(); again != a || spilled || err != nil {
					t.Fatal(again, spilled, err)
				}
				break
			}
		}
		for {
			if _, spilled, err := r.AllocateNext(); err != nil {
				wantErr(t, err, ipalloc.ErrFull)
				break
			} else if !spilled {
				t.Fatal("a dynamic one was left")
			}
		}
		if s := r.Stats(); s.Static.Free+s.Dynamic.Free != 0 {
			t.Error(s)
		}
		check(t, r)
	}
}

// The services of Kubernetes' storage tests: what is asked for, and what comes of it when
// it is created, changed, and deleted, single and dual stack, with and without node ports.
func TestServicesOfKubernetes(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/16 2000::/108", LowestFirst())
	for i, tt := range []struct {
		owner, addrs string
		ports        []Port
		want         string
	}{
		{"clusterIP", "0.0.0.0", nil, "10.0.1.1"},
		{"clusterIP", "0.0.0.0 ::", nil, "10.0.1.1 2000::101"},          // upgrade to dual stack
		{"clusterIP", "0.0.0.0", nil, "10.0.1.1"},                       // and back
		{"clusterIP", "", nil, ""},                                      // to ExternalName, or headless
		{"v6", ":: 0.0.0.0", nil, "2000::101 10.0.1.1"},                 // IPv6 first
		{"v6", "::", nil, "2000::101"},                                  // the primary one stays
		{"named", "10.0.0.10 2000::a", nil, "10.0.0.10 2000::a"},        // kube-dns
		{"nodePort", "0.0.0.0", []Port{{}, {}}, "10.0.1.1 30016 30017"}, //
		{"nodePort", "0.0.0.0", []Port{{"", 30017}}, "10.0.1.1 30017"},  // one fewer
		{"nodePort", "0.0.0.0", []Port{{"", 30017}, {}}, "10.0.1.1 30017 30016"},
		{"nodePort", "0.0.0.0", nil, "10.0.1.1"},                                        // to ClusterIP
		{"lb", "0.0.0.0 ::", []Port{{}, {"", 30100}}, "10.0.1.2 2000::102 30016 30100"}, // health-check node port
		{"lb", "0.0.0.0 ::", []Port{{TCP, 30016}, {UDP, 30016}}, "10.0.1.2 2000::102 30016/TCP 30016/UDP"},
		{"dns", "0.0.0.0", []Port{{}}, "10.0.1.3 30017"}, // 53/TCP and 53/UDP: one number
	} {
		tx, g, err := r.Begin(tt.owner, Request{Addrs: grants("x: " + tt.addrs)[0].Addrs, Ports: tt.ports})
		if err != nil || textOf(g) != tt.want {
			t.Fatalf("%d: %v, %v; want %s", i, textOf(g), err, tt.want)
		}
		wantErr(t, tx.Commit(), nil)
		check(t, r)
	}
	for _, name := range []string{"v6", "named", "nodePort", "lb", "dns"} {
		tx, _, err := r.Begin(name, Request{})
		wantErr(t, err, nil)
		wantErr(t, tx.Commit(), nil)
	}
	wantHeld(t, r)
	if st := r.Stats(); st.V4.Dynamic.Used+st.V6.Dynamic.Used+st.Ports.Dynamic.Used != 0 {
		t.Errorf("%+v", st)
	}
}
