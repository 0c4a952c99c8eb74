package rangealloc

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/repair"
)

// grants reads "a: 10.0.1.1 30001; b: fd00::1".
func grants(s string) (out []servicealloc.Grant) {
	for _, line := range strings.Split(s, ";") {
		owner, list, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		g := servicealloc.Grant{Owner: strings.TrimSpace(owner)}
		for _, f := range strings.Fields(list) {
			var n uint16
			if a, err := netip.ParseAddr(f); err == nil {
				g.Addrs = append(g.Addrs, a)
			} else if number, proto, _ := strings.Cut(f, "/"); true {
				fmt.Sscan(number, &n)
				g.Ports = append(g.Ports, servicealloc.Port{Protocol: servicealloc.Protocol(proto), Number: n})
			}
		}
		out = append(out, g)
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if e := (*ipalloc.Error)(nil); !errors.Is(err, want) || want != nil && (!errors.As(err, &e) || e.Package != "rangealloc" || e.Op == "") {
		t.Fatalf("%v, want %v", err, want)
	}
}

// heldBy is what each owner has.
func heldBy(r *servicealloc.Registry) string {
	var out []string
	for g := range r.All() {
		out = append(out, fmt.Sprint(g.Owner, ":", textOf(g)))
	}
	return strings.Join(out, "; ")
}

// textOf is what an owner holds: "10.0.0.1 30000".
func textOf(g servicealloc.Grant) string {
	var out []string
	for _, ip := range g.Addrs {
		out = append(out, ip.String())
	}
	for _, p := range g.Ports {
		out = append(out, fmt.Sprint(p.Number))
	}
	return strings.Join(out, " ")
}

// The number of a RangeAllocation is big-endian, its bit i the i-th usable address, and
// has no zero bytes in front.
func TestEncode(t *testing.T) {
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
		data, err := Encode(tt.spec, grants("a: "+tt.taken)...)
		if err != nil || !bytes.Equal(data, tt.data) {
			t.Errorf("%s, %s: %x, %v; want %x", tt.spec, tt.taken, data, err, tt.data)
		}
		g, err := Decode(tt.spec, append([]byte{0, 0}, data...))
		wantErr(t, err, nil)
		if again := must(Encode(tt.spec, g)); !bytes.Equal(again, data) {
			t.Errorf("%s: %x out and in again is %x", tt.spec, data, again)
		}
	}
	_, err := Encode("2001:db8::/64", grants("a: 2001:db8::1:0:0")...)
	wantErr(t, err, ipalloc.ErrLimit)
	if g := must(Decode("10.0.0.3/30", []byte{3})); textOf(g) != "10.0.0.1 10.0.0.2" { // host bits, as people write them
		t.Error(g)
	}
	for _, spec := range []string{"", "x", "10.0.0.0", "10.0.0.0/33", "010.0.0.0/30", "fd00::%1/64", "fd00::/63", "::ffff:0:0/96", "30000-65536", "0-10", "10-9", "1-2-3", "+1-2", "30000-32767\n"} {
		_, err := Encode(spec)
		wantErr(t, err, ipalloc.ErrInvalid)
		_, err = Decode(spec, nil)
		wantErr(t, err, ipalloc.ErrInvalid)
	}
	for spec, data := range map[string][]byte{"10.0.0.0/30": {4}, "10.0.0.0/29": {0xff}, "10.0.0.0/32": {1}, "fd00::/126": {8}, "1-2": {4}, "10.0.0.0/28": append([]byte{1}, make([]byte, 100)...)} {
		_, err := Decode(spec, data)
		wantErr(t, err, ipalloc.ErrCorrupt)
	}
}

// What was imported is held by an unknown owner until the services are compared: those
// that are desired go to their owners, the others are leaks.
func TestDecodeIntoARegistry(t *testing.T) {
	r := must(servicealloc.NewRegistry(servicealloc.PortRange{First: 30000, Last: 30127}))
	if err := r.SetRange(servicealloc.RangeInfo{Name: "main", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}); err != nil {
		t.Fatal(err)
	}
	for spec, data := range map[string][]byte{"10.0.0.0/24": {2, 1}, "30000-30127": {6}} {
		if problems := r.Load([]servicealloc.Grant{must(Decode(spec, data))}); len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	if got := heldBy(r); got != ":10.0.0.1 10.0.0.10 30001 30002" {
		t.Error(got)
	}
	if problems := repair.Apply(r, repair.Plan(repair.Diff(r, grants("dns: 10.0.0.10 30001/UDP"), nil, time.Time{}), 1, 0)); len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := heldBy(r); got != "dns:10.0.0.10 30001" {
		t.Error(got)
	}
	data, err := Encode("10.0.0.0/24", slices.Collect(r.All())...)
	if err != nil || !bytes.Equal(data, []byte{2, 0}) {
		t.Error(data, err)
	}
}
