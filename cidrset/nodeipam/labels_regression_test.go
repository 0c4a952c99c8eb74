package nodeipam_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// The regression tests are named after what must not happen: defects of the original.

// restart makes a second allocator from what is recorded of the first: entries,
// reservations, nodes, and then the deletions that were under way.
func restart(t testing.TB, families []nodeipam.Family, a *nodeipam.Allocator) *nodeipam.Allocator {
	t.Helper()
	b := allocator(t, families)
	for _, p := range a.Reserved() {
		if err := b.Reserve(p); err != nil {
			t.Fatal(err)
		}
	}
	for e := range a.Entries() {
		if err := b.AddEntry(e.Entry); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range b.Load(slices.Collect(a.All())) {
		t.Errorf("what the allocator recorded itself is a problem: %v", e)
	}
	for e := range a.Entries() {
		if e.Terminating {
			if _, err := b.DeleteEntry(e.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

// Nodes that match two entries of different child size were recorded, after a
// restart, in the larger children of the better entry; releasing one of them freed
// the others' prefixes.
func TestRestartMustNotRoundToAnotherEntrysChildren(t *testing.T) {
	large := e4("large", "10.0.0.0/16", 10, "a,b")
	small := e4("small", "10.0.0.0/16", 8, "a")
	before := allocator(t, v4, small)
	n := labels("a=1,b=1")
	gets(t, before, node{Name: "n1", Labels: n}, "small [10.0.0.0/24]")
	gets(t, before, node{Name: "n2", Labels: n}, "small [10.0.1.0/24]")
	if err := before.AddEntry(large); err != nil {
		t.Fatal(err)
	}
	a := restart(t, v4, before)
	if _, ok := a.Release("n1"); !ok {
		t.Fatal("n1 held nothing")
	}
	gets(t, a, node{Name: "n3", Labels: n}, "large [10.0.4.0/22]") // not 10.0.0.0/22: n2 is there
	if as, _ := a.Lookup("n2"); as.Entry != "small" {
		t.Errorf("n2 is of %q", as.Entry)
	}
	// The same without a recorded entry: the size decides.
	b := allocator(t, v4, large, small)
	if problems := b.Load([]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24")}, {Name: "n2", Prefixes: prefixes("10.0.1.0/24")}}); len(problems) > 0 {
		t.Fatal(problems)
	}
	b.Release("n1")
	gets(t, b, node{Name: "n3", Labels: n}, "large [10.0.4.0/22]")
}

// A node's prefix was given away as soon as the node was to be deleted, while its
// workloads still ran. Nothing but Release frees here, whatever becomes of the entry.
func TestTerminatingNodeMustKeepItsPrefixUntilReleased(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/23", 8, "a"), e4("y", "10.0.0.0/23", 8, "b"))
	gets(t, a, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24]")
	if gone, err := a.DeleteEntry("x"); gone || err != nil {
		t.Fatal(gone, err)
	}
	if changed, problems := a.Observe(node{Name: "n1"}); changed || problems != nil { // its record is being emptied
		t.Error(changed, problems)
	}
	gets(t, a, node{Name: "n2", Labels: labels("b=1")}, "y [10.0.1.0/24]")
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n3", Labels: labels("b=1")}); return err })
	a.Release("n1")
	gets(t, a, node{Name: "n3", Labels: labels("b=1")}, "y [10.0.0.0/24]")
}

// A node or a service range of a family that an entry lacks crashed the program.
func TestMissingFamilyMustNotPanic(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/16", 8, "a"))
	if err := a.Reserve(pfx("fd00::/108")); err != nil {
		t.Fatal(err)
	}
	for _, entryName := range []string{"", "x"} {
		name := "n" + entryName
		_, problems := a.Observe(node{Name: name, Labels: labels("a=1"), Entry: entryName, Prefixes: prefixes("10.0.7.0/24", "fd00::700/120")})
		want := ipalloc.ErrMismatch
		if entryName == "" {
			want = ipalloc.ErrOutOfRange
		}
		if !has(problems, want) || !has(problems, ipalloc.ErrReserved) {
			t.Errorf("%s: %v", name, problems)
		}
		if as, _ := a.Lookup(name); fmt.Sprint(as) != fmt.Sprintf("{[10.0.7.0/24 fd00::700/120] %s}", entryName) {
			t.Errorf("%s holds %v", name, as)
		}
	}
	a.Release("n")
	a.Release("nx")
	gets(t, a, node{Name: "n2", Labels: labels("a=1")}, "x [10.0.0.0/24]")
}

func has(problems []*ipalloc.Error, want error) bool {
	return slices.ContainsFunc(problems, func(e *ipalloc.Error) bool { return is(e, want) })
}

// Every failing attempt of a dual-stack node took another IPv4 prefix.
func TestFailingDualStackMustNotDrainTheFirstFamily(t *testing.T) {
	a := allocator(t, dual, e46("x", "10.0.0.0/22", "fd00::/120", 8, "a"), e46("y", "10.0.0.0/22", "fd00::/120", 8, "a"))
	gets(t, a, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24 fd00::/120]")
	before := bytesOf(t, a)
	for i := range 1000 {
		fails(t, a, ipalloc.ErrFull, func() error {
			_, err := a.Allocate(node{Name: fmt.Sprint("m", i), Labels: labels("a=1")})
			return err
		})
	}
	if bytesOf(t, a) != before {
		t.Error("1,000 failures changed something")
	}
	if stats := poolStats(a, "x"); stats[0].Free != 3 {
		t.Errorf("%d IPv4 children free, want 3", stats[0].Free)
	}
	// A node whose prefixes fit an entry only in part stays
	// whole, in no entry that it was not recorded with.
	if _, problems := a.Observe(node{Name: "n2", Prefixes: prefixes("10.0.1.0/24", "fd07::/120")}); !has(problems, ipalloc.ErrOutOfRange) {
		t.Error("no problem")
	}
	a.Release("n2")
	if stats := poolStats(a, "x"); stats[0].Free != 3 {
		t.Errorf("%d IPv4 children free after the release, want 3", stats[0].Free)
	}
}

// A node was released by what its labels said then, so that one that had been
// relabelled leaked its prefix and its entry could never be deleted.
func TestRelabelledNodeMustNotLeak(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/24", 8, "a"), e4("y", "10.1.0.0/24", 8, "b"))
	gets(t, a, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24]")
	gets(t, a, node{Name: "n1", Labels: labels("b=1")}, "x [10.0.0.0/24]") // labels do not move a node
	if gone, err := a.DeleteEntry("x"); gone || err != nil {
		t.Fatal(gone, err)
	}
	if as, ok := a.Release("n1"); !ok || as.Entry != "x" {
		t.Fatal(as, ok)
	}
	for e := range a.Entries() {
		if e.Name == "x" {
			t.Error("x is still there")
		}
	}
	if err := a.AddEntry(e4("z", "10.0.0.0/24", 8, "a")); err != nil {
		t.Fatal(err)
	}
	gets(t, a, node{Name: "n2", Labels: labels("a=1")}, "z [10.0.0.0/24]")
}

// After a restart the nodes of a terminating entry were forgotten; it went, and
// an overlapping entry gave their prefixes away.
func TestRestartMustNotForgetTheNodesOfATerminatingEntry(t *testing.T) {
	before := allocator(t, v4, e4("x", "10.0.0.0/23", 8, "a"), e4("y", "10.0.0.0/23", 7, "b"))
	gets(t, before, node{Name: "n1", Labels: labels("a=1")}, "x [10.0.0.0/24]")
	if gone, err := before.DeleteEntry("x"); gone || err != nil {
		t.Fatal(gone, err)
	}
	a := restart(t, v4, before)
	state := slices.Collect(a.Entries())[0]
	if state.Name != "x" || !state.Terminating || state.Nodes != 1 {
		t.Errorf("after the restart: %+v", state)
	}
	gets(t, a, node{Name: "n2", Labels: labels("b=1")}, "y [10.0.1.0/25]")
	fails(t, a, ipalloc.ErrInUse, func() error { return a.AddEntry(e4("x", "10.0.0.0/23", 8, "a")) })
	a.Release("n1")
	gets(t, a, node{Name: "n3", Labels: labels("b=1")}, "y [10.0.1.128/25]")
	gets(t, a, node{Name: "n4", Labels: labels("b=1")}, "y [10.0.0.0/25]")
	if err := a.AddEntry(e4("x", "10.2.0.0/23", 8, "a")); err != nil {
		t.Errorf("x is gone, and yet: %v", err)
	}
	// Deleted before its nodes were loaded, an entry is gone; what they hold is not.
	b := allocator(t, v4, e4("y", "10.0.0.0/24", 7, "b"))
	if problems := b.Load([]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/25")}}); !has(problems, ipalloc.ErrNotFound) {
		t.Error(problems)
	}
	gets(t, b, node{Name: "n2", Labels: labels("b=1")}, "y [10.0.0.128/25]")
}

// Nodes that matched no entry were skipped at start-up, and their prefixes were
// given to others.
func TestNodeThatMatchesNothingMustKeepItsPrefixOutOfCirculation(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/23", 8, "a"))
	if problems := a.Load([]node{{Name: "n1", Labels: labels("z=1"), Prefixes: prefixes("10.0.0.0/24")}}); len(problems) > 0 {
		t.Fatal(problems) // it is one of x's children, whatever its labels say now
	}
	gets(t, a, node{Name: "n2", Labels: labels("a=1")}, "x [10.0.1.0/24]")
	// Prefixes of no entry are held as well, for entries to come.
	if problems := a.Load([]node{{Name: "n3", Prefixes: prefixes("10.9.0.16/28")}}); !has(problems, ipalloc.ErrOutOfRange) {
		t.Error(problems)
	}
	if err := a.AddEntry(e4("y", "10.9.0.0/26", 5, "b")); err != nil {
		t.Fatal(err)
	}
	gets(t, a, node{Name: "n4", Labels: labels("b=1")}, "y [10.9.0.32/27]")
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n5", Labels: labels("b=1")}); return err })
	a.Release("n3")
	gets(t, a, node{Name: "n5", Labels: labels("b=1")}, "y [10.9.0.0/27]")
}

// The service range was kept out of the entries that were there at start-up
// only; one that was added later handed it out.
func TestEntryAddedLaterMustNotHandOutTheServiceRange(t *testing.T) {
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true, Families: v4, Reserved: prefixes("10.96.0.0/24", "10.96.2.0/28")})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.AddEntry(e4("x", "10.96.0.0/22", 8, "a")); err != nil {
		t.Fatal(err)
	}
	n := labels("a=1")
	gets(t, a, node{Name: "n1", Labels: n}, "x [10.96.1.0/24]")
	gets(t, a, node{Name: "n2", Labels: n}, "x [10.96.3.0/24]")
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n3", Labels: n}); return err })
	// A node that claims the range does not free it when it goes.
	if _, problems := a.Observe(node{Name: "n4", Prefixes: prefixes("10.96.0.0/24")}); !has(problems, ipalloc.ErrReserved) {
		t.Error(problems)
	}
	a.Release("n4")
	fails(t, a, ipalloc.ErrFull, func() error { _, err := a.Allocate(node{Name: "n3", Labels: n}); return err })
}

// The example of the original's own design, 118 - 64 > 16 bits of IPv6, was
// refused.
func TestLargeIPv6PoolMustNotBeRefused(t *testing.T) {
	a := allocator(t, dual, e46("x", "10.0.0.0/20", "1:1:1:1::/64", 10))
	gets(t, a, node{Name: "n1"}, "x [10.0.0.0/22 1:1:1:1::/118]")
	gets(t, a, node{Name: "n2"}, "x [10.0.4.0/22 1:1:1:1::400/118]")
	stats := poolStats(a, "x")
	if stats[1].Capacity != 1<<54 || stats[1].Free != 1<<54-2 {
		t.Errorf("%+v", stats)
	}
}
