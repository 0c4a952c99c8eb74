package servicealloc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

var anyBoth = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newRangeT(t testing.TB, p string, opts ...Option) *Range {
	t.Helper()
	r, err := NewRange(pfx(p), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newPortsT(t testing.TB, first, last uint16, opts ...Option) *Ports {
	t.Helper()
	p, err := NewPorts(PortRange{First: first, Last: last}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var testPorts = PortRange{First: 30000, Last: 30127}

// newRegistryT returns a registry with one range of these prefixes.
func newRegistryT(t testing.TB, prefixes string, opts ...Option) *Registry {
	t.Helper()
	r, err := NewRegistry(testPorts, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if prefixes != "" {
		wantErr(t, r.SetRange(rangeOf("main", prefixes)), nil)
	}
	return r
}

func rangeOf(name, prefixes string) RangeInfo {
	i := RangeInfo{Name: name}
	for _, p := range strings.Fields(prefixes) {
		i.Prefixes = append(i.Prefixes, pfx(p))
	}
	return i
}

func draining(i RangeInfo) RangeInfo { i.Draining = true; return i }
func reserved(i RangeInfo) RangeInfo { i.Reserved = true; return i }

type checker interface{ Check() error }

func check(t testing.TB, cs ...checker) {
	t.Helper()
	for _, c := range cs {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantErr checks the sentinel, and that it comes in an *ipalloc.Error of this package.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Fatalf("error %v, want %v", err, want)
	}
	if e := (*ipalloc.Error)(nil); err != nil && (!errors.As(err, &e) || e.Package != "servicealloc" || e.Op == "") {
		t.Fatalf("%T %v is no complete *ipalloc.Error", err, err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// stateOf is the state of an allocator as bytes, to see that nothing has changed.
func stateOf(t testing.TB, m interface{ MarshalBinary() ([]byte, error) }) string {
	t.Helper()
	data, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// has reports whether ip is taken.
func has(r *Range, ip netip.Addr) bool { _, taken := r.Lookup(ip); return taken }

func bandOf(r *Range, ip netip.Addr) Band { b, _ := r.Lookup(ip); return b }

// textOf is what an owner holds: "10.0.0.1 fd00::1 30000 30001/TCP".
func textOf(g Grant) string {
	var out []string
	for _, ip := range g.Addrs {
		out = append(out, ip.String())
	}
	for _, p := range g.Ports {
		s := fmt.Sprint(p.Number)
		if p.Protocol != "" {
			s += "/" + string(p.Protocol)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// heldBy is what each owner of a registry holds.
func heldBy(r *Registry) (out []string) {
	for g := range r.All() {
		out = append(out, g.Owner+": "+textOf(g))
	}
	return out
}

func wantHeld(t testing.TB, r *Registry, want ...string) {
	t.Helper()
	if got := heldBy(r); !slices.Equal(got, want) {
		t.Fatalf("held %q, want %q", got, want)
	}
	check(t, r)
}
