package servicealloc

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The number of a RangeAllocation is big-endian, its bit i the i-th usable address, and
// has no zero bytes in front.
func TestExport(t *testing.T) {
	for _, tt := range []struct {
		spec  string
		taken string
		data  []byte
	}{
		{"192.168.1.0/24", "", nil},
		{"192.168.1.0/24", "192.168.1.1 192.168.1.10", []byte{2, 1}},
		{"192.168.1.0/24", "192.168.1.254", append([]byte{0x20}, make([]byte, 31)...)},
		{"192.168.1.0/24", "192.168.1.1 192.168.1.65", []byte{1, 0, 0, 0, 0, 0, 0, 0, 1}},
		{"192.168.1.0/24", "192.168.1.0 192.168.1.255 192.168.2.1 fd00::1 9", nil},
		{"2001:db8::/112", "2001:db8::1 2001:db8::ffff", append(append([]byte{0x40}, make([]byte, 8190)...), 1)},
		{"2001:db8::/64", "2001:db8::9", []byte{1, 0}},
		{"192.168.1.0/31", "192.168.1.1", nil},
		{"10000-10200", "10000 10010/UDP 192.168.1.1", []byte{4, 1}},
		{"10000-10200", "10200 9999 10201", append([]byte{1}, make([]byte, 25)...)},
	} {
		data, err := Export(tt.spec, grants("a: "+tt.taken)...)
		if err != nil || !bytes.Equal(data, tt.data) {
			t.Errorf("%s, %s: %x, %v; want %x", tt.spec, tt.taken, data, err, tt.data)
		}
		g, err := Import(tt.spec, append([]byte{0, 0}, data...))
		wantErr(t, err, nil)
		if again := must(Export(tt.spec, g)); !bytes.Equal(again, data) {
			t.Errorf("%s: %x out and in again is %x", tt.spec, data, again)
		}
	}
	_, err := Export("2001:db8::/64", grants("a: 2001:db8::1:0:0")...)
	wantErr(t, err, ipalloc.ErrLimit)
	if g := must(Import("10.0.0.3/30", []byte{3})); textOf(g) != "10.0.0.1 10.0.0.2" { // host bits, as people write them
		t.Error(g)
	}
	for _, spec := range []string{"", "x", "10.0.0.0", "10.0.0.0/33", "010.0.0.0/30", "fd00::%1/64", "fd00::/63", "::ffff:0:0/96", "30000-65536", "0-10", "10-9", "1-2-3", "+1-2", "30000-32767\n"} {
		_, err := Export(spec)
		wantErr(t, err, ipalloc.ErrInvalid)
		_, err = Import(spec, nil)
		wantErr(t, err, ipalloc.ErrInvalid)
	}
	for spec, data := range map[string][]byte{"10.0.0.0/30": {4}, "10.0.0.0/29": {0xff}, "10.0.0.0/32": {1}, "fd00::/126": {8}, "1-2": {4}, "10.0.0.0/28": append([]byte{1}, make([]byte, 100)...)} {
		_, err := Import(spec, data)
		wantErr(t, err, ipalloc.ErrCorrupt)
	}
}

// What was imported is held by an unknown owner until the services are compared: those
// that are desired go to their owners, the others are leaks.
func TestImportIntoARegistry(t *testing.T) {
	r, _ := newClock(t, "10.0.0.0/24")
	for spec, data := range map[string][]byte{"10.0.0.0/24": {2, 1}, "30000-30127": {6}} {
		if problems := r.Load([]Grant{must(Import(spec, data))}); len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	wantHeld(t, r, ": 10.0.0.1 10.0.0.10 30001 30002")
	if problems := r.Apply(Plan(r.Diff(grants("dns: 10.0.0.10 30001/UDP"), nil), 1, 0)); len(problems) > 0 {
		t.Fatal(problems)
	}
	wantHeld(t, r, "dns: 10.0.0.10 30001")
	data, err := Export("10.0.0.0/24", slices.Collect(r.All())...)
	if err != nil || !bytes.Equal(data, []byte{2, 0}) {
		t.Error(data, err)
	}
}

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
		if taken := small.has(a); !taken {
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
	if v4, v6, ports := r.Stats(); v4.Dynamic.Used+v6.Dynamic.Used+ports.Dynamic.Used != 0 {
		t.Error(fmt.Sprint(v4, v6, ports))
	}
}
