package nodeipam_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/selector"
)

// The order, rule after rule: in each case the first entry wins by the named
// rule, whatever the order in which the two are added.
func TestEachRule(t *testing.T) {
	for name, c := range map[string]struct {
		win, lose entry
		rule      string
	}{
		"a selector beats a default of fewer children": {
			e4("x", "10.0.0.0/8", 8, "a"), e4("a", "10.0.0.0/24", 4), "selector"},
		"two labels beat one": {
			e4("x", "192.168.0.0/16", 8, "a=1,b=2"), e4("a", "10.1.0.0/24", 8, "a=1"), "labels met"},
		"a label beats only negative ones": {
			e4("x", "10.0.0.0/8", 8, "a"), e4("a", "10.0.0.0/24", 4, "!z,y!=1"), "labels met"},
		"every positive operator counts": {
			e4("x", "10.0.0.0/8", 8, "a=1,b,n>3,m<9"), e4("a", "10.0.0.0/24", 4, "a=1,b,n>3"), "labels met"},
		"the name counts": {
			e4("x", "10.0.0.0/8", 8, "a,@=n1"), e4("a", "10.0.0.0/24", 4, "b"), "labels met"},
		"of OR-ed terms the best counts": {
			e4("x", "10.0.0.0/8", 8, "a", "a,b", "z,y,x"), e4("a", "10.0.0.0/24", 4, "b"), "labels met"},
		"fewer children": {
			e4("x", "192.168.0.0/24", 8, "a"), e4("a", "10.0.0.0/16", 8, "a"), "capacity"},
		"fewer children in the smaller family": {
			e46("x", "192.168.0.0/16", "fd00::/119", 8, "a"), e46("a", "10.0.0.0/22", "fd00::/112", 8, "a"), "capacity"},
		"fewer addresses per node": {
			e4("x", "192.168.0.0/22", 6, "a"), e4("a", "10.0.0.0/20", 8, "a"), "addresses per node"},
		"lower names of labels": {
			e4("x", "192.168.0.0/16", 8, "a"), e4("a", "10.0.0.0/16", 8, "b"), "names of the labels met"},
		"lower names of several labels": {
			e4("x", "192.168.0.0/16", 8, "b,a"), e4("a", "10.0.0.0/16", 8, "a,m"), "names of the labels met"},
		"lower base address": {
			e4("x", "9.0.0.0/16", 8, "a"), e4("a", "10.0.0.0/16", 8, "a"), "base address"},
		"lower base address, IPv6": {
			e6("x", "fd00:9::/112", 8, "a"), e6("a", "fd00:10::/112", 8, "a"), "base address"},
		"IPv4 before IPv6": {
			e4("x", "203.0.113.0/24", 4, "a"), e6("a", "fd00::/120", 4, "a"), "base address"},
		"IPv4 decides before IPv6": {
			e46("x", "10.0.0.0/16", "fd01::/112", 8, "a"), e46("a", "10.1.0.0/16", "fd00::/112", 8, "a"), "base address"},
		"the same IPv4, lower IPv6": {
			e46("x", "10.0.0.0/16", "fd00::/112", 8, "a"), e46("a", "10.0.0.0/16", "fd01::/112", 8, "a"), "base address"},
		"the same IPv4, one with IPv6": {
			e46("x", "10.0.0.0/16", "fd00::/112", 8, "a"), e4("a", "10.0.0.0/16", 8, "a"), "base address"},
		"longer prefix": { // the other family makes the capacities equal
			e46("x", "10.0.0.0/16", "fd00::/114", 8, "a"), e46("a", "10.0.0.0/14", "fd00::/114", 8, "a"), "prefix length"},
		"longer prefix, IPv6": {
			e46("x", "10.0.0.0/16", "fd00::/110", 8, "a"), e46("a", "10.0.0.0/16", "fd00::/108", 8, "a"), "prefix length"},
		"lower name": {
			e4("a", "10.0.0.0/16", 8, "a"), e4("x", "10.0.0.0/16", 8, "a"), "name"},
		"the same among defaults: fewer children": {
			e4("x", "192.168.0.0/24", 4), e4("a", "10.0.0.0/16", 4), "capacity"},
		"the same among defaults: name": {
			e4("a", "10.0.0.0/16", 8), e4("x", "10.0.0.0/16", 8), "name"},
	} {
		n := node{Name: "n1", Labels: labels("a=1,b=2,m=5,n=5")}
		for _, order := range [][]entry{{c.win, c.lose}, {c.lose, c.win}} {
			names, rules := ranking(allocator(t, nil, order...), n)
			if !slices.Equal(names, []string{c.win.Name, c.lose.Name}) || rules[0] != c.rule {
				t.Errorf("%s: %v by %v, want %s first by %v", name, names, rules, c.win.Name, c.rule)
			}
		}
	}
}

// The cases on which the texts that describe cluster CIDRs and the program that
// serves them disagree, or say nothing. Each states what is decided here and why.
var ambiguities = []struct {
	id, question, decision, why string
	entries                     []entry
	node                        node
	want                        []string // the ranking
}{
	{
		"1", "Is the number of allocatable children what there is or what is free?",
		"What there is.", "A count of free ones would change the ranking with every allocation.",
		[]entry{e4("two", "10.0.0.0/23", 8, "a"), e4("four", "10.4.0.0/22", 8, "a")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"two", "four"},
	},
	{
		"2", "Are base addresses compared as text or as numbers?",
		"As numbers.", "As text 10.0.0.0 and 100.64.0.0 come before 9.0.0.0, and /16 before /8.",
		[]entry{e4("a", "100.64.0.0/16", 8, "a"), e4("b", "10.0.0.0/16", 8, "a"), e4("c", "9.0.0.0/16", 8, "a")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"c", "b", "a"},
	},
	{
		"2b", "And those of IPv6?",
		"As numbers too.", "As text fd00:10:: comes before fd00:9::.",
		[]entry{e6("a", "fd00:10::/112", 8, "a"), e6("b", "fd00:9::/112", 8, "a")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"b", "a"},
	},
	{
		"3", "Is the size of a node its mask or its host bits?",
		"Its host bits.", "A /24 of IPv4 and a /120 of IPv6 are equally large, so the next rule decides; by mask IPv6 would always win.",
		[]entry{e6("a", "fd00::/112", 8, "z"), e4("b", "10.0.0.0/16", 8, "a"), e46("c", "10.0.0.0/16", "fd00::/112", 8, "m")},
		node{Name: "n1", Labels: labels("a=1,m=1,z=1")}, []string{"b", "c", "a"},
	},
	{
		"4", "How does a family that is missing compare?",
		"It does not: the minimum is over the families that there are.", "An entry of one family with 4 children comes before one of both with 16 and 8.",
		[]entry{e46("a", "10.0.0.0/20", "fd00::/117", 8, "a"), e4("b", "10.1.0.0/22", 8, "a"), e6("c", "fd00::/119", 8, "a")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"c", "b", "a"},
	},
	{
		"5", "Do NotIn and DoesNotExist count as labels matched?",
		"No.", "They match labels that the node does not have; otherwise two of them beat one label that it has.",
		[]entry{e4("negative", "10.0.0.0/24", 4, "!x,y!=1"), e4("positive", "10.0.0.0/8", 8, "a")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"positive", "negative"},
	},
	{
		"5b", "Does In with many values count for more? Do two requirements on one label?",
		"No: it is one label.", "Labels are counted, so that saying the same in more words wins nothing.",
		[]entry{e4("c", "10.2.0.0/16", 8, "a=1|2|3"), e4("b", "10.1.0.0/16", 8, "a>0,a<9"), e4("a", "10.0.0.0/16", 8, "a=1")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"a", "b", "c"},
	},
	{
		"5c", "Does NotIn on the name count?",
		"No.", "The rule counts positive requirements, and that is none.",
		[]entry{e4("not-n2", "10.0.0.0/24", 4, "@!=n2"), e4("n1", "10.0.0.0/8", 8, "@=n1")},
		node{Name: "n1"}, []string{"n1", "not-n2"},
	},
	{
		"6", "Are several terms AND-ed or OR-ed?",
		"OR-ed, as the API says; the best matching one counts.", "A node with only label a matches terms [a] and [b].",
		[]entry{e4("or", "10.0.0.0/16", 8, "a", "b")},
		node{Name: "n1", Labels: labels("a=1")}, []string{"or"},
	},
	{
		"6b", "Do requirements on the name match?",
		"Yes.", "The API has them.",
		[]entry{e4("by-name", "10.0.0.0/16", 8, "@=n1"), e4("other", "10.0.0.0/16", 8, "@=n2")},
		node{Name: "n1"}, []string{"by-name"},
	},
	{
		"6c", "Which labels of OR-ed terms are compared by name?",
		"Those of the term that counts; of equally good ones the lowest.", "Otherwise the order of the terms would decide.",
		[]entry{e4("z", "10.0.0.0/16", 8, "c", "a"), e4("b", "10.1.0.0/16", 8, "b")},
		node{Name: "n1", Labels: labels("a=1,b=1,c=1")}, []string{"z", "b"},
	},
	{
		"7", "Are a missing selector and one without terms the same?",
		"Yes, both are default, and the rules apply among defaults.", "Both are said to select all nodes.",
		[]entry{
			{Name: "missing", IPv4: pfx("10.0.0.0/16"), HostBits: 8},
			{Name: "no-terms", IPv4: pfx("10.1.0.0/20"), HostBits: 8, Selector: selector.Selector{}},
		},
		node{Name: "n1"}, []string{"no-terms", "missing"},
	},
	{
		"8", "Can a node's label make a default entry match better?",
		"No.", "A default entry is one without a selector, not one with a hidden label.",
		[]entry{e4("default", "10.0.0.0/24", 8), e4("chosen", "10.0.0.0/8", 8, "a")},
		node{Name: "n1", Labels: labels("a=1,kubernetes.io/clusterCIDR=default")}, []string{"chosen", "default"},
	},
	{
		"9", "What decides between two entries that are equal in all of this?",
		"The second family's address, then the name.", "Something has to that is not the order of arrival, which a restart changes.",
		[]entry{
			e46("c", "10.0.0.0/16", "fd00:2::/112", 8, "a"), e46("b", "10.0.0.0/16", "fd00:1::/112", 8, "a"),
			e46("a", "10.0.0.0/16", "fd00:2::/112", 8, "a"),
		},
		node{Name: "n1", Labels: labels("a=1")}, []string{"b", "a", "c"},
	},
}

func TestAmbiguities(t *testing.T) {
	for _, c := range ambiguities {
		permute(c.entries, func(order []entry) {
			a := allocator(t, nil, order...)
			if c.id == "1" { // of four children one is free
				if err := a.Reserve(pfx("10.4.0.0/23")); err != nil {
					t.Fatal(err)
				}
				if err := a.Reserve(pfx("10.4.2.0/24")); err != nil {
					t.Fatal(err)
				}
			}
			if names, _ := ranking(a, c.node); !slices.Equal(names, c.want) {
				t.Errorf("%s: %s %s %s Ranked %v, want %v", c.id, c.question, c.decision, c.why, names, c.want)
			}
		})
	}
}

// Ambiguity 10: entries never change, may overlap, and give a node as many addresses
// in both families. Decided: that is refused at the door. Why: a node could not use
// the difference, and the ranking would need two sizes.
func TestAmbiguity10FamiliesOfDifferentSize(t *testing.T) {
	a := allocator(t, nil)
	e := e46("x", "10.0.0.0/16", "fd00::/112", 0)
	e.MaskIPv4, e.MaskIPv6 = 24, 121
	if got := fails(t, a, ipalloc.ErrInvalid, func() error { return a.AddEntry(e) }); got.Name != "x" || got.Field != "MaskIPv6" {
		t.Errorf("the error names %q %q", got.Name, got.Field)
	}
	e.MaskIPv6 = 120
	if err := a.AddEntry(e); err != nil {
		t.Error(err)
	}
	if err := a.AddEntry(e4("overlapping", "10.0.0.0/20", 10)); err != nil {
		t.Error(err)
	}
	fails(t, a, ipalloc.ErrExists, func() error { return a.AddEntry(e4("overlapping", "10.0.0.0/20", 9)) })
}

// The tie-break table of the original's unit tests, told in entries: the first wins.
func TestTieBreaksOfTheOriginal(t *testing.T) {
	n := node{Name: "n1", Labels: labels("abc=1,foo=1,xyz=1,l1=1")}
	for name, c := range map[string][2]entry{
		"more labels":                  {e4("1", "192.168.0.0/16", 8, "foo,l1"), e4("2", "10.1.0.0/24", 8, "foo")},
		"fewer children":               {e4("2", "10.1.0.0/24", 8, "foo,l1"), e4("3", "172.16.0.0/16", 8, "abc,l1")},
		"smaller nodes":                {e4("4", "10.1.1.0/26", 6, "xyz,l1"), e4("2", "10.1.0.0/24", 8, "foo,l1")},
		"lower labels":                 {e4("4", "10.1.1.0/26", 6, "abc,l1"), e4("5", "10.1.2.0/26", 6, "foo,l1")},
		"lower address":                {e4("4", "10.1.1.0/26", 6, "abc,l1"), e4("6", "10.1.3.0/26", 6, "abc,l1")},
		"labels before addresses":      {e4("6", "10.1.3.0/26", 6, "abc,l1"), e4("4", "10.0.1.0/26", 6, "xyz,l1")},
		"children before size of node": {e4("2", "10.0.0.0/24", 8, "foo,l1"), e4("3", "10.0.0.0/20", 4, "foo,l1")},
		"smaller of two families":      {e46("2", "10.0.0.0/16", "ace:cab:deca::/120", 8, "foo"), e4("1", "127.123.234.0/23", 8, "foo")},
		"one address per node": {
			entry{Name: "2", IPv4: pfx("10.0.0.0/32"), IPv6: pfx("ace:cab:deca::/128"), MaskIPv4: 32, Selector: sel("xyz")},
			e46("1", "127.123.234.0/24", "abc:def:deca::/120", 8, "foo")},
	} {
		for _, order := range [][]entry{{c[0], c[1]}, {c[1], c[0]}} {
			if names, _ := ranking(allocator(t, nil, order...), n); names[0] != c[0].Name || len(names) != 2 {
				t.Errorf("%s: %v, want %s first", name, names, c[0].Name)
			}
		}
	}
}

// The ranking, and so what every node gets, does not depend on the order in which
// entries were added.
func TestRankingDoesNotDependOnInsertionOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	terms := []string{"a", "a=1", "b", "a,b", "!c", "c!=1", "n>3", "n>3,n<9", "@=n1", "@!=n2", "a,!c"}
	pools4 := []string{"10.0.0.0/16", "10.0.0.0/20", "9.0.0.0/16", "100.64.0.0/16", "10.0.0.0/14"}
	pools6 := []string{"fd00::/112", "fd00:9::/112", "fd00:10::/112", "fd00::/110", "fd00::/116"}
	for range 150 {
		var entries []entry
		for i := range 6 {
			e := entry{Name: fmt.Sprint("e", i), HostBits: 6 + rng.IntN(3)}
			if which := rng.IntN(3); which < 2 {
				e.IPv4 = pfx(pools4[rng.IntN(len(pools4))])
			}
			if which := rng.IntN(3); which < 2 || !e.IPv4.IsValid() {
				e.IPv6 = pfx(pools6[rng.IntN(len(pools6))])
			}
			for range rng.IntN(3) {
				e.Selector = append(e.Selector, sel(terms[rng.IntN(len(terms))])...)
			}
			entries = append(entries, e)
		}
		nodes := []node{{Name: "n1", Labels: labels("a=1,b=1,n=5")}, {Name: "n2", Labels: labels("a=2,c=1")}, {Name: "n3"}}
		var want string
		for try := range 6 {
			a := allocator(t, nil, entries...)
			got := ""
			for _, n := range nodes {
				names, rules := ranking(a, n)
				as, _ := a.Allocate(n)
				got += fmt.Sprint(names, rules, as, "\n")
			}
			if want == "" {
				want = got
			} else if got != want {
				t.Fatalf("%v\ngives in order %d\n%swant\n%s", entries, try, got, want)
			}
			rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
			for i := range entries {
				s := entries[i].Selector
				rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
			}
		}
	}
}

// Among entries that differ in the presence of IPv6 alone, those with it come first, each kind by name, however many there are.
func TestRankingOfManyAlike(t *testing.T) {
	var entries []entry
	var with, without []string
	for i := range 60 {
		e := e4(fmt.Sprintf("e%02d", i), "10.0.0.0/16", 8, "a")
		if i*i%7 == 2 { // some here and there
			e.IPv6 = pfx("fd00::/112")
			with = append(with, e.Name)
		} else {
			without = append(without, e.Name)
		}
		entries = append(entries, e)
	}
	names, rules := ranking(allocator(t, nil, entries...), node{Name: "n1", Labels: labels("a=1")})
	if want := append(with, without...); !slices.Equal(names, want) {
		t.Fatalf("ranked %v, want %v", names, want)
	}
	for i, rule := range rules { // that of the entry behind the first
		want := "name"
		if i+1 == len(with) {
			want = "base address"
		}
		if rule != want {
			t.Errorf("%s is behind %s by %s, want %s", names[i+1], names[i], rule, want)
		}
	}
}

// A terminating entry is never eligible.
func TestTerminatingEntryIsNotRanked(t *testing.T) {
	a := allocator(t, v4, e4("best", "10.0.0.0/24", 4, "a,b"), e4("next", "10.0.0.0/16", 8, "a"))
	n := node{Name: "n1", Labels: labels("a=1,b=1")}
	gets(t, a, n, "best [10.0.0.0/28]")
	if gone, err := a.DeleteEntry("best"); gone || err != nil {
		t.Fatal(gone, err)
	}
	n.Name = "n2"
	if names, _ := ranking(a, n); !slices.Equal(names, []string{"next"}) {
		t.Errorf("ranked %v", names)
	}
	gets(t, a, n, "next [10.0.1.0/24]")
}

// The best entry that can serve all its families; nothing is mixed.
func TestExhaustedEntriesAreSkippedAndNeverMixed(t *testing.T) {
	a := allocator(t, dual,
		e46("first", "10.0.0.0/23", "fd00::/120", 8, "a,b"), // 2 and 1 children
		e46("second", "10.1.0.0/24", "fd01::/119", 8, "a"),  // 1 and 2 children
		e46("default", "10.2.0.0/16", "fd02::/112", 8))
	for i, want := range []string{
		"first [10.0.0.0/24 fd00::/120]",
		"second [10.1.0.0/24 fd01::/120]", // first has IPv4 left, and no IPv6
		"default [10.2.0.0/24 fd02::/120]",
		"default [10.2.1.0/24 fd02::100/120]",
	} {
		gets(t, a, node{Name: fmt.Sprint("n", i), Labels: labels("a=1,b=1")}, want)
	}
	stats := poolStats(a, "first")
	if stats[0].Free != 1 || stats[1].Free != 0 {
		t.Errorf("first: %+v", stats)
	}
}

// Two nodes never get what overlaps, whatever the sizes of the children.
func TestOverlappingPoolsOfDifferentChildSize(t *testing.T) {
	a, nodes := overlapping(t, 5000)
	var held []netip.Prefix
	for _, n := range nodes {
		as, err := a.Allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, as.Prefixes...)
	}
	slices.SortFunc(held, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	for i := 1; i < len(held); i++ {
		if held[i-1].Overlaps(held[i]) {
			t.Fatalf("%v and %v overlap", held[i-1], held[i])
		}
	}
	check(t, a)
}
