package world

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// A snapshot of each allocator in memory is the same world: it shows the same, and makes the same snapshot.
func TestSnapshotsOfServicesAndNodes(t *testing.T) {
	s := NewServices(t)
	data, err := s.MarshalBinary()
	must(t, err)
	restored, err := servicealloc.NewRegistry(s.Ports(), servicealloc.Restore(data))
	must(t, err)
	again, err := restored.MarshalBinary()
	must(t, err)
	if !bytes.Equal(data, again) {
		t.Error("services: the snapshot of the restored registry is another one")
	}
	for _, line := range Diff(LookServices(s.Registry), LookServices(restored)) {
		if _, what := Key(line); what != "grant dual" && what != "address 10.96.0.99" {
			t.Error("services:", line)
		}
	}
	// A transaction does not outlive its process: its owner holds what it had and what it asked for.
	if g, _ := restored.Get("dual"); len(g.Addrs) != 3 || len(g.Ports) != 2 {
		t.Errorf("services: %+v", g)
	}
	slots, byLabels := NewNodes(t)
	for _, a := range []*nodeipam.Allocator{slots, byLabels} {
		data, err := a.MarshalBinary()
		must(t, err)
		restored, err := nodeipam.Restore(data)
		must(t, err)
		again, err := restored.MarshalBinary()
		must(t, err)
		if lines := Diff(LookNodes(a), LookNodes(restored)); len(lines) > 0 || !bytes.Equal(data, again) {
			t.Error("nodes:", lines)
		}
	}
}

// Whatever is done to one owner while the transaction of another is open, that one keeps what it held and what it asks for.
func TestServicesLeaveOthersAlone(t *testing.T) {
	for i, do := range []func(s *Services) error{
		func(s *Services) error {
			_, err := s.Allocate("new", servicealloc.Request{Addrs: at4("0.0.0.0"), Ports: []servicealloc.Port{{}}})
			return err
		},
		func(s *Services) error { _, err := s.Release("recorded", 0); return err },
		func(s *Services) error {
			s.Load([]servicealloc.Grant{{Owner: "recorded", Generation: 41, Addrs: at4("10.96.0.78")}})
			return nil
		},
		func(s *Services) error {
			from, _ := s.Get("recorded")
			_, _, err := s.Move(from, servicealloc.Grant{Owner: "new", Addrs: from.Addrs})
			return err
		},
		func(s *Services) error {
			tx, _, err := s.Begin("recorded", servicealloc.Request{Addrs: at4("10.96.0.110")})
			must(t, err)
			return tx.Commit()
		},
		func(s *Services) error {
			tx, _, err := s.Begin("new", servicealloc.Request{Addrs: at4("10.96.0.111")})
			must(t, err)
			return tx.Rollback()
		},
		func(s *Services) error {
			_, err := s.Allocate("new", servicealloc.Request{Addrs: at4("0.0.0.0"), DryRun: true})
			return err
		},
		func(s *Services) error { // the record of an owner as far as it is written, while its transaction is open
			g, _ := s.Get("dual")
			s.Load([]servicealloc.Grant{{Owner: "dual", Generation: g.Generation, Addrs: g.Addrs[:1]}})
			return nil
		},
	} {
		s := NewServices(t)
		before := LookServices(s.Registry)
		must(t, do(s))
		must(t, s.Check())
		for _, line := range Diff(before, LookServices(s.Registry)) {
			switch _, what := Key(line); what {
			case "grant recorded", "grant new", "grant dual":
			default:
				for _, mine := range []string{"10.96.0.10", "10.96.0.99", "10.98.0.5"} {
					if what == "address "+mine {
						t.Errorf("call %d changes %s", i, line)
					}
				}
			}
		}
		if _, err := s.Allocate("thief", servicealloc.Request{Addrs: []netip.Addr{at("10.96.0.99")}}); err == nil {
			t.Errorf("call %d: another owner gets what an open transaction holds", i)
		}
		must(t, s.Open.Commit())
		must(t, s.Check())
		if owner, _, ok := s.OwnerOf(at("10.96.0.99")); !ok || owner != "dual" {
			t.Errorf("call %d: the transaction was committed, and its address is of %q", i, owner)
		}
	}
}
