package ipset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// numbered notes which sequence numbers each address has had. None may come again.
type numbered map[netip.Addr]uint64

func (n numbered) note(t *testing.T, als []alloc.Allocation) {
	t.Helper()
	for _, al := range als {
		if al.Seq <= n[al.Address] {
			t.Fatalf("%v has sequence number %d after %d", al.Address, al.Seq, n[al.Address])
		}
		n[al.Address] = al.Seq
	}
}

// Hosts that came and went leave no pages, in a pool where each block has a page of its own and in one where they share theirs, nor do
// pools that were removed: only the catalog and the floors of the block size are left, however many there were.
func TestPagesGoWithTheirBlocks(t *testing.T) {
	for _, p := range []alloc.Pool{poolOf("a", "fd00::/64", 122), poolOf("a", "10.0.0.0/12", 26), poolOf("a", "10.0.0.0/26", 32)} {
		w := newWorld(t, alloc.Config{}, p)
		left := func() (floors, others int) {
			for _, r := range w.list(store.Range{}) {
				if id, ok := record.ParsePageKey(r.Key); ok && id.Level == record.FloorLevel {
					floors++
				} else if r.Key[:1] != record.KindCatalog {
					others++
				}
			}
			return floors, others
		}
		for i := range 300 {
			h := alloc.HostOwner(fmt.Sprint("h", i))
			if _, err := w.Assign(bg, h, "p"); err != nil {
				t.Fatal(err)
			}
			if i == 150 { // its block outlives the pool
				if err := w.RemovePool(bg, "a"); err != nil {
					t.Fatal(err)
				}
				w.check(audit.NoPool)
			}
			if _, _, err := w.RemoveHost(bg, h); err != nil {
				t.Fatal(err)
			}
			if i == 150 {
				if err := w.AddPool(bg, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.clock.add(48 * time.Hour)
		if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil { // what Assign remembers
			t.Fatal(err)
		}
		if floors, others := left(); floors > 64 || others > 0 {
			t.Errorf("%v: %d floors and %d other records are left", p.Prefix, floors, others)
		}
	}
}

// A page of 64 blocks, the pages above it and their floor give every block that comes a number above all that its addresses had:
// whatever comes and goes, from engines that do not know of one another, and however full the pages are.
func TestSequenceNumbersOutliveTheirPages(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 31)) // two pages of level 0, one above
	engines := []*Engine{w.Engine, w.engine(w.store), w.engine(w.store)}
	r := rand.New(rand.NewPCG(1, 2))
	seen := numbered{}
	var hosts []string
	for i := range 3000 {
		e := engines[r.IntN(len(engines))]
		most := []int{2, 10, 127}[i/1000]
		if len(hosts) < most && (len(hosts) == 0 || r.IntN(10) > 0) || r.IntN(2) == 0 && len(hosts) < 127 {
			h := fmt.Sprint("h", i)
			got, err := e.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner(h), Num4: 1 + r.IntN(2), Handle: h})
			if err != nil {
				t.Fatal(err)
			}
			seen.note(t, got.V4)
			hosts = append(hosts, h)
			continue
		}
		at := r.IntN(len(hosts))
		if _, _, err := e.RemoveHost(bg, alloc.HostOwner(hosts[at])); err != nil {
			t.Fatal(err)
		}
		hosts[at] = hosts[len(hosts)-1]
		hosts = hosts[:len(hosts)-1]
		if i%100 == 0 {
			w.check()
		}
	}
}

// A page that comes and goes between the reading of an engine and its commit is seen: the block that the engine makes begins above
// what was handed out meanwhile.
func TestPageComesAndGoesUnseen(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 26))
	other := func() []alloc.Allocation {
		var als []alloc.Allocation
		for range 3 {
			als = append(als, w.assign(want("other", 1, "q")).V4...)
			if _, _, err := w.RemoveHost(bg, alloc.HostOwner("other")); err != nil {
				t.Fatal(err)
			}
		}
		return als
	}
	for _, before := range []int{0, 1} { // the floor is not there, or it is
		seen := numbered{}
		for range before {
			seen.note(t, other())
		}
		s := newRacing(w.store)
		s.before = func([]store.Op) { seen.note(t, other()) }
		got, err := w.engine(s).AutoAssign(bg, want("h", 1, "p"))
		if err != nil {
			t.Fatal(err)
		}
		seen.note(t, got.V4)
		if _, _, err := w.RemoveHost(bg, alloc.HostOwner("h")); err != nil {
			t.Fatal(err)
		}
		w.check()
	}
}

// What is wrong with pages and floors is reported and repaired: a page without blocks, whose mark is kept, and records that cannot be read.
// No number comes again after.
func TestEmptyPagesAndFloorsAreRepaired(t *testing.T) {
	leaf, _ := record.LeafOf(netip.MustParsePrefix("10.0.0.0/26"))
	above, _, _ := leaf.Up()
	for _, tt := range []struct {
		key, value string
		problems   int
	}{
		{leaf.Key(), record.Page{Mark: 1000}.Encode(), 1},
		{leaf.Key(), record.Page{Word: 2, Mark: 1000}.Encode(), 1},
		{leaf.Key(), "?", 2},
		{above.Key(), record.Page{}.Encode(), 1},
		{leaf.Floor().Key(), "?", 2},
		{leaf.Floor().Key(), record.Page{Word: 1}.Encode(), 2},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 26))
		seen := numbered{}
		churn := func() {
			seen.note(t, w.assign(want("h", 1024, "p")).V4)
			if _, _, err := w.RemoveHost(bg, alloc.HostOwner("h")); err != nil {
				t.Fatal(err)
			}
		}
		churn()
		if _, err := w.store.Commit(bg, []store.Op{{Kind: store.Put, Key: tt.key, Value: tt.value, Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		rep, err := w.Operator().Check(bg, nil)
		if err != nil || len(rep.Problems) != tt.problems {
			t.Fatalf("%q: %v, %v", tt.value, rep.Problems, err)
		}
		if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n != len(rep.Repair) {
			t.Errorf("%q: %d of %d steps, %v", tt.value, n, len(rep.Repair), err)
		}
		w.check()
		forgetAll(w.Engine)
		if tt.key == leaf.Key() && tt.problems == 1 {
			for a := range seen {
				seen[a] = max(seen[a], 1000)
			}
		}
		churn()
	}
}
