package servicealloc

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// What is loaded while a transaction is open is recorded somewhere: neither outcome gives
// it back, also if the transaction itself has taken it.
func TestLoadIntoAnOpenTransaction(t *testing.T) {
	for _, commit := range []bool{false, true} {
		for _, old := range []string{"", "10.0.0.5"} {
			for req, want := range map[string][2]string{
				"":         {"", ""},
				"10.0.0.6": {"", "10.0.0.6"},
				"10.0.0.7": {"", ""}, // what is loaded
			} {
				r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
				r.Load(grants("svc: " + old))
				tx, _, err := r.Begin("svc", Request{Addrs: grants("x: " + req)[0].Addrs})
				wantErr(t, err, nil)
				if problems := r.Load(grants("svc: 10.0.0.7")); len(problems) > 0 {
					t.Fatal(problems)
				}
				check(t, r)
				end, rest := tx.Rollback, old
				if commit {
					end, rest = tx.Commit, want[1]
				}
				wantErr(t, end(), nil)
				wantHeld(t, r, "svc: "+strings.TrimSpace(rest+" 10.0.0.7"))
				must(r.Release("svc", 0))
				wantHeld(t, r)
			}
		}
	}
}

// Load of what a transaction has taken, as far as its record is written, gives nothing
// back: until it ends the owner holds all of it.
func TestLoadOfAPartOfATransaction(t *testing.T) {
	for _, generation := range []uint64{0, 1, 2} {
		for _, commit := range []bool{false, true} {
			r := newRegistryT(t, "10.0.0.0/24 fd00::/120", LowestFirst())
			both := []netip.Addr{ip("10.0.0.20"), ip("fd00::70")}
			tx, g, err := r.Begin("web", Request{Addrs: both})
			wantErr(t, err, nil)
			if problems := r.Load([]Grant{{Owner: "web", Generation: generation, Addrs: both[:1]}}); len(problems) > 0 {
				t.Fatal(problems)
			}
			check(t, r)
			wantErr(t, errOf(r.Allocate("other", Request{Addrs: both[1:]})), ipalloc.ErrOccupied)
			if now, _ := r.Get("web"); now.Generation == g.Generation {
				t.Errorf("%+v and %+v have one generation", now, g)
			}
			end, want := tx.Rollback, "web: 10.0.0.20"
			if commit {
				end, want = tx.Commit, "web: 10.0.0.20 fd00::70"
			}
			wantErr(t, end(), nil)
			wantHeld(t, r, want)
		}
	}
}

// Every grant has a generation of its own, also one that Load has changed while a
// transaction was open.
func TestGenerationsOfATransactionAndLoad(t *testing.T) {
	var told Change
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst(), OnChange(func(c Change) { told = c }))
	tx, _, err := r.Begin("web", Request{})
	wantErr(t, err, nil)
	seen := map[uint64]string{}
	see := func() {
		g, _ := r.Get("web")
		if was, ok := seen[g.Generation]; ok && was != textOf(g) {
			t.Errorf("generation %d stands for %q and %q", g.Generation, was, textOf(g))
		}
		seen[g.Generation] = textOf(g)
		if textOf(told.Grant) != textOf(g) {
			t.Errorf("the receiver has %+v, the owner %+v", told, g)
		}
	}
	for _, a := range []string{"10.0.0.20", "10.0.0.21"} {
		r.Load(grants("web: " + a))
		see()
	}
	wantErr(t, tx.Commit(), nil)
	see()
	check(t, r)
}

// A closed registry is not changed any more, and says so; what it holds can be read.
func TestClose(t *testing.T) {
	r := newRegistryT(t, "10.0.0.0/24", LowestFirst())
	g := must(r.Allocate("a", Request{Addrs: anyBoth[:1]}))
	tx, _, err := r.Begin("b", Request{Addrs: anyBoth[:1]})
	wantErr(t, err, nil)
	before := stateOf(t, r)
	r.Close()
	r.Close()
	_, _, begin := r.Begin("c", Request{})
	_, _, move := r.Move(g, Grant{})
	problems := r.Load(grants("d: 10.0.0.5"))
	if len(problems) != 1 {
		t.Fatal(problems)
	}
	for _, err := range []error{tx.Rollback(), tx.Commit(), begin, move, problems[0], errOf(r.Allocate("c", Request{Addrs: anyBoth[:1]})),
		errOf(r.Release("a", 0)), r.SetRange(rangeOf("more", "10.1.0.0/24")), r.RemoveRange("main")} {
		wantErr(t, err, ipalloc.ErrClosed)
	}
	if stateOf(t, r) != before {
		t.Error("something changed")
	}
	wantHeld(t, r, "a: "+textOf(g))
}
