package servicealloc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// The node ports 30000-30128: dynamic ones first, then the static band by name, then
// whatever is free.
func TestPortsContract(t *testing.T) {
	p := newPortsT(t, 30000, 30128)
	for i := range 129 - 16 {
		will, _, _ := p.DryRun(0)
		if n, spilled, err := p.AllocateNext(); err != nil || spilled || n < 30016 || n != will {
			t.Fatal(i, n, spilled, err, will)
		}
	}
	if _, taken := p.Lookup(30053); !taken {
		t.Fatal("free")
	}
	wantErr(t, p.Allocate(30053), ipalloc.ErrOccupied)
	if s := p.Stats(); s.Static.Free != 16 || s.Dynamic.Free != 0 {
		t.Fatal(s)
	}
	for n := uint16(30000); n < 30016; n++ {
		wantErr(t, p.Allocate(n), nil)
	}
	_, _, err := p.AllocateNext()
	wantErr(t, err, ipalloc.ErrFull)
	if !p.Release(30053) || p.Release(30053) {
		t.Fatal("release")
	}
	if n, spilled, err := p.AllocateNext(); n != 30053 || spilled || err != nil {
		t.Fatal(n, spilled, err)
	}
	check(t, p)
	n := newPortsT(t, 1, 17, NeverSpill())
	if got, _, err := n.AllocateNext(); got != 17 || err != nil {
		t.Fatal(got, err)
	}
	_, _, err = n.AllocateNext()
	wantErr(t, err, ipalloc.ErrFull)
	_, _, err = n.DryRun(0)
	wantErr(t, err, ipalloc.ErrFull)
}

// The first and the last number of a range are of it, the numbers beside it are not, and a dry run answers as the call would.
func TestPortsAtBothEnds(t *testing.T) {
	for _, r := range []PortRange{{First: 30000, Last: 32767}, {First: 1, Last: 65535}, {First: 1, Last: 1}, {First: 65535, Last: 65535}} {
		p := newPortsT(t, r.First, r.Last)
		for _, n := range []uint16{r.First, r.Last} {
			if will, spilled, err := p.DryRun(n); will != n || spilled || err != nil {
				t.Errorf("%v: DryRun(%d) = %d, %v, %v", r, n, will, spilled, err)
			}
			if err := p.Allocate(n); err != nil && r.First != r.Last {
				t.Errorf("%v: %v", r, err)
			}
			if b, taken := p.Lookup(n); b == Closed || !taken {
				t.Errorf("%v: Lookup(%d) = %v, %v", r, n, b, taken)
			}
			will, _, err := p.DryRun(n)
			if will != 0 {
				t.Errorf("%v: DryRun of a taken number is %d", r, will)
			}
			wantErr(t, err, ipalloc.ErrOccupied)
			if !p.Release(n) {
				t.Errorf("%v: %d was not taken", r, n)
			}
		}
		for _, n := range []uint16{r.First - 1, r.Last + 1} {
			if n < r.First || n > r.Last {
				wantErr(t, p.Allocate(n), ipalloc.ErrOutOfRange)
				if b, taken := p.Lookup(n); b != Closed || taken || p.Release(n) {
					t.Errorf("%v: %d is of it", r, n)
				}
			}
		}
	}
}

// With PerProtocol each protocol has its own numbers, and a port of all protocols is
// one that is free in each.
func TestPortsPerProtocol(t *testing.T) {
	r := must(NewRegistry(PortRange{First: 1, Last: 20, PerProtocol: true}, LowestFirst()))
	owners := 0
	next := func(proto Protocol) (uint16, error) {
		owners++
		g, err := r.Allocate(fmt.Sprint(owners-1), Request{Ports: []Port{{Protocol: proto}}})
		if err != nil {
			return 0, err
		}
		return g.Ports[0].Number, nil
	}
	for _, step := range []struct {
		proto Protocol
		want  uint16
	}{{TCP, 17}, {UDP, 17}, {TCP, 18}, {"", 19}, {UDP, 18}, {SCTP, 17}, {TCP, 20}, {"", 1}} {
		if n, err := next(step.proto); n != step.want || err != nil {
			t.Fatalf("%+v: %d, %v", step, n, err)
		}
		check(t, r)
	}
	wantErr(t, errOf(r.Allocate("all", Request{Ports: []Port{{"", 20}}})), ipalloc.ErrOccupied)
	must(r.Allocate("udp", Request{Ports: []Port{{UDP, 20}}}))
	if s := r.Stats().Ports; s.Static.Used != 3 || s.Dynamic.Used != 4+4+2 {
		t.Errorf("%+v", s)
	}
	must(r.Release("3", 0)) // 19, of all protocols
	must(r.Allocate("sctp", Request{Ports: []Port{{SCTP, 19}}}))
	if n, err := next(""); n != 2 || err != nil {
		t.Error(n, err)
	}
	must(r.Release("sctp", 0))
	if n, err := next(""); n != 19 || err != nil {
		t.Error(n, err)
	}
	check(t, r)
}

// Ports by name, in the range and outside.
func TestPortsByName(t *testing.T) {
	p := newPortsT(t, 10000, 10200)
	for _, n := range []uint16{10000, 10010, 10020} {
		wantErr(t, p.Allocate(n), nil)
	}
	before := stateOf(t, p)
	for n, want := range map[uint16]error{10000: ipalloc.ErrOccupied, 10030: nil, 9999: ipalloc.ErrOutOfRange, 10201: ipalloc.ErrOutOfRange, 65535: ipalloc.ErrOutOfRange} {
		_, _, err := p.DryRun(n)
		wantErr(t, err, want)
	}
	for _, bad := range []uint16{9999, 10201, 0, 65535} {
		wantErr(t, p.Allocate(bad), ipalloc.ErrOutOfRange)
		if b, taken := p.Lookup(bad); taken || p.Release(bad) || b != Closed {
			t.Error(bad)
		}
	}
	if stateOf(t, p) != before {
		t.Error("something changed")
	}
	check(t, p)
}

// A protocol that is none is refused whatever is asked of it.
func TestNoProtocol(t *testing.T) {
	for _, each := range []bool{false, true} {
		r := must(NewRegistry(PortRange{First: 10000, Last: 10200, PerProtocol: each}))
		before := stateOf(t, r)
		for _, proto := range []Protocol{"tcp", "ICMP", " "} {
			for _, p := range []Port{{Protocol: proto}, {proto, 10000}} {
				wantErr(t, errOf(r.Allocate("o", Request{Ports: []Port{p}})), ipalloc.ErrInvalid)
				if problems := r.Load([]Grant{{Owner: "o", Ports: []Port{p}}}); len(problems) != 1 || problems[0].Err != ipalloc.ErrInvalid {
					t.Error(problems)
				}
				_, _, err := r.Move(Grant{}, Grant{Owner: "o", Ports: []Port{p}})
				wantErr(t, err, ipalloc.ErrInvalid)
				if r.UsablePort(p) {
					t.Error(p)
				}
			}
		}
		if stateOf(t, r) != before {
			t.Error("something changed")
		}
	}
}

// One number never answers two entries of a request: a held port that overlaps a named entry is not kept for an open one.
func TestNamedPortIsNotKeptForAnOpenOne(t *testing.T) {
	all, tcp, free := Port{"", 30050}, Port{TCP, 30050}, uint16(30016)
	for name, c := range map[string]struct {
		held, want []Port
		open       uint16 // the number that answers the open entry
	}{
		"one protocol named":        {[]Port{all}, []Port{tcp, {"", 0}}, free},
		"open before one protocol":  {[]Port{all}, []Port{{"", 0}, tcp}, free},
		"all protocols named":       {[]Port{tcp}, []Port{all, {TCP, 0}}, free},
		"open before all protocols": {[]Port{tcp}, []Port{{TCP, 0}, all}, free},
		"loaded twice, one named":   {[]Port{all, tcp}, []Port{tcp, {"", 0}}, free},
		"loaded twice, both open":   {[]Port{all, tcp}, []Port{{TCP, 0}, {"", 0}}, free},
		"another number is kept":    {[]Port{all, {"", 30060}}, []Port{tcp, {"", 0}}, 30060},
	} {
		for _, each := range []bool{false, true} {
			for _, begin := range []bool{false, true} {
				ports := testPorts
				ports.PerProtocol = each
				r := must(NewRegistry(ports, LowestFirst()))
				if problems := r.Load([]Grant{{Owner: "svc", Ports: c.held}}); len(problems) != 0 {
					t.Fatal(problems)
				}
				g, _ := r.Get("svc")
				req := Request{Generation: g.Generation, Ports: c.want}
				if begin {
					tx, _, err := r.Begin("svc", req)
					wantErr(t, err, nil)
					check(t, r)
					wantErr(t, tx.Commit(), nil)
				} else {
					must(r.Allocate("svc", req))
				}
				check(t, r)
				g, _ = r.Get("svc")
				numbers := []uint16{g.Ports[0].Number, g.Ports[1].Number}
				if slices.Sort(numbers); !slices.Equal(numbers, slices.Sorted(slices.Values([]uint16{30050, c.open}))) {
					t.Errorf("%s, PerProtocol %v, Begin %v: held %v, asked for %v, got %v", name, each, begin, c.held, c.want, g.Ports)
				}
			}
		}
	}
}
