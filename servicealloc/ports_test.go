package servicealloc

import (
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
)

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
