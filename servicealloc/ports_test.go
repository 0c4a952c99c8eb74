package servicealloc

import (
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The node ports 30000-30128: dynamic ones first, then the static band by name, then
// whatever is free. A number is taken for every protocol.
func TestPortsContract(t *testing.T) {
	p := newPortsT(t, 30000, 30128)
	for i := range 129 - 16 {
		will, _, _ := p.DryRun(Port{Protocol: TCP})
		if n, spilled, err := p.AllocateNext(TCP); err != nil || spilled || n < 30016 || n != will {
			t.Fatal(i, n, spilled, err, will)
		}
	}
	if _, taken := p.Lookup(Port{UDP, 30053}); !taken {
		t.Fatal("free for UDP")
	}
	wantErr(t, p.Allocate(Port{UDP, 30053}), ipalloc.ErrOccupied)
	if s := p.Stats(); s.Static.Free != 16 || s.Dynamic.Free != 0 {
		t.Fatal(s)
	}
	for n := uint16(30000); n < 30016; n++ {
		wantErr(t, p.Allocate(Port{Number: n}), nil)
	}
	_, _, err := p.AllocateNext(TCP)
	wantErr(t, err, ipalloc.ErrFull)
	if !p.Release(Port{SCTP, 30053}) || p.Release(Port{TCP, 30053}) {
		t.Fatal("release")
	}
	if n, spilled, err := p.AllocateNext(""); n != 30053 || spilled || err != nil {
		t.Fatal(n, spilled, err)
	}
	check(t, p)
	n := newPortsT(t, 1, 17, NeverSpill())
	if got, _, err := n.AllocateNext(""); got != 17 || err != nil {
		t.Fatal(got, err)
	}
	_, _, err = n.AllocateNext("")
	wantErr(t, err, ipalloc.ErrFull)
	_, _, err = n.DryRun(Port{})
	wantErr(t, err, ipalloc.ErrFull)
}

// With PerProtocol each protocol has its own numbers, and a port of all protocols is
// one that is free in each.
func TestPortsPerProtocol(t *testing.T) {
	p := must(NewPorts(PortRange{First: 1, Last: 20, PerProtocol: true}, LowestFirst()))
	for _, step := range []struct {
		proto Protocol
		want  uint16
	}{{TCP, 17}, {UDP, 17}, {TCP, 18}, {"", 19}, {UDP, 18}, {SCTP, 17}, {TCP, 20}, {"", 1}} {
		will, _, _ := p.DryRun(Port{Protocol: step.proto})
		if n, _, err := p.AllocateNext(step.proto); n != step.want || will != n || err != nil {
			t.Fatalf("%+v: %d (dry %d), %v", step, n, will, err)
		}
		check(t, p)
	}
	wantErr(t, p.Allocate(Port{"", 20}), ipalloc.ErrOccupied)
	wantErr(t, p.Allocate(Port{UDP, 20}), nil)
	if got := slices.Collect(p.All(UDP)); !slices.Equal(got, []uint16{1, 17, 18, 19, 20}) {
		t.Error(got)
	}
	if got := slices.Collect(p.All("")); len(got) != 5+5+3 {
		t.Error(got)
	}
	for range p.All("") {
		break
	}
	if s := p.Stats(); s.Static.Used != 3 || s.Dynamic.Used != 4+4+2 {
		t.Errorf("%+v", s)
	}
	if !p.Release(Port{"", 19}) || p.Release(Port{TCP, 19}) {
		t.Error("release of all protocols")
	}
	check(t, p)
}

// Ports outside the range, and protocols that are none.
func TestPortsByName(t *testing.T) {
	p := newPortsT(t, 10000, 10200)
	for _, n := range []uint16{10000, 10010, 10020} {
		wantErr(t, p.Allocate(Port{UDP, n}), nil)
	}
	before := stateOf(t, p)
	for n, want := range map[uint16]error{10000: ipalloc.ErrOccupied, 10030: nil, 9999: ipalloc.ErrOutOfRange, 10201: ipalloc.ErrOutOfRange, 65535: ipalloc.ErrOutOfRange} {
		_, _, err := p.DryRun(Port{UDP, n})
		wantErr(t, err, want)
	}
	for _, bad := range []Port{{UDP, 9999}, {UDP, 10201}, {UDP, 0}, {TCP, 65535}} {
		wantErr(t, p.Allocate(bad), ipalloc.ErrOutOfRange)
		if b, taken := p.Lookup(bad); taken || p.Release(bad) || b != Closed {
			t.Error(bad)
		}
	}
	for _, proto := range []Protocol{"tcp", "ICMP", " "} {
		wantErr(t, p.Allocate(Port{proto, 10000}), ipalloc.ErrInvalid)
		_, _, err := p.AllocateNext(proto)
		wantErr(t, err, ipalloc.ErrInvalid)
		_, _, err = p.DryRun(Port{Protocol: proto})
		wantErr(t, err, ipalloc.ErrInvalid)
		if _, taken := p.Lookup(Port{proto, 10000}); taken || p.Release(Port{proto, 10000}) {
			t.Error(proto)
		}
		for range p.All(proto) {
			t.Error(proto)
		}
	}
	if stateOf(t, p) != before {
		t.Error("something changed")
	}
	check(t, p)
}
