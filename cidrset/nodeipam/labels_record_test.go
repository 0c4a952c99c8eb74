package nodeipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// Load never fails as a whole: each record is held, and what is wrong with it is a
// problem that names node, entry and prefix.
func TestLoadProblems(t *testing.T) {
	for name, c := range map[string]struct {
		nodes    []node
		problems []string
		held     string
	}{
		"nothing wrong": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")}},
			nil, "n1 x [10.0.0.0/24 fd00::/120]"},
		"in the other order": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("fd00::/120", "10.0.0.0/24")}},
			nil, "n1 x [fd00::/120 10.0.0.0/24]"},
		"no prefixes": {[]node{{Name: "n1", Entry: "x"}}, nil, ""},
		"no entry recorded, one fits": {
			[]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")}},
			nil, "n1 x [10.0.0.0/24 fd00::/120]"},
		"no entry recorded, several fit": {
			[]node{{Name: "n1", Prefixes: prefixes("10.1.0.0/24", "fd01::/120")}},
			[]string{`nodeipam: record for "n1" in "twin-a": no entry is recorded, and "twin-b" fits as well`}, "n1 twin-a [10.1.0.0/24 fd01::/120]"},
		"no entry recorded, several fit, the later name better": {
			[]node{{Name: "n1", Prefixes: prefixes("10.2.0.0/24", "fd03::/120")}},
			[]string{`nodeipam: record for "n1" in "small": no entry is recorded, and "big" fits as well`}, "n1 small [10.2.0.0/24 fd03::/120]"},
		"no entry recorded, none fits": {
			[]node{{Name: "n1", Prefixes: prefixes("10.9.0.0/24", "fd09::/120")}},
			[]string{
				`nodeipam: record 10.9.0.0/24 for "n1": Prefixes[0]: no child of any entry`,
				`nodeipam: record fd09::/120 for "n1": Prefixes[1]: no child of any entry`,
			}, "n1  [10.9.0.0/24 fd09::/120]"},
		"no entry recorded, of two entries": {
			[]node{{Name: "n1", Prefixes: prefixes("10.0.0.0/24", "fd01::/120")}},
			[]string{`nodeipam: record for "n1": children of several entries, not of one`}, "n1  [10.0.0.0/24 fd01::/120]"},
		"the entry is not there": {
			[]node{{Name: "n1", Entry: "gone", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")}},
			[]string{`nodeipam: record for "n1" in "gone": no such entry`}, "n1 gone [10.0.0.0/24 fd00::/120]"},
		"out of range": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.1.0.0/24", "fd00::/120")}},
			[]string{`nodeipam: record 10.1.0.0/24 for "n1" in "x" 10.0.0.0/22: Prefixes[0]: out of range`}, "n1 x [10.1.0.0/24 fd00::/120]"},
		"larger than the pool": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/8", "fd00::/120")}},
			[]string{
				`nodeipam: record 10.0.0.0/8 for "n1" in "x" 10.0.0.0/22: Prefixes[0]: out of range`,
				`nodeipam: record 10.0.0.0/8 for "n1" in "x": Prefixes[0]: overlaps a reservation`,
			}, "n1 x [10.0.0.0/8 fd00::/120]"},
		"misaligned": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/23", "fd00::40/122")}},
			[]string{
				`nodeipam: record 10.0.0.0/23 for "n1" in "x" 10.0.0.0/22: Prefixes[0]: not a /24`,
				`nodeipam: record fd00::40/122 for "n1" in "x" fd00::/118: Prefixes[1]: not a /120`,
			}, "n1 x [10.0.0.0/23 fd00::40/122]"},
		"three prefixes": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120", "10.0.1.0/24")}},
			[]string{`nodeipam: record 10.0.1.0/24 for "n1" in "x": Prefixes[2]: more than one IPv4 prefix`}, "n1 x [10.0.0.0/24 fd00::/120 10.0.1.0/24]"},
		"a family is missing": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24")}},
			[]string{`nodeipam: record for "n1" in "x": no IPv6 prefix, which every node needs`}, "n1 x [10.0.0.0/24]"},
		"a reservation": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.3.0/24", "fd00::/120")}},
			[]string{`nodeipam: record 10.0.3.0/24 for "n1" in "x": Prefixes[0]: overlaps a reservation`}, "n1 x [10.0.3.0/24 fd00::/120]"},
		"two nodes with the same": {
			[]node{
				{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")},
				{Name: "n2", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::100/120")},
			},
			[]string{`nodeipam: record 10.0.0.0/24 for "n2" in "x": Prefixes[0]: overlaps another node's prefix, held by "n1"`},
			"n1 x [10.0.0.0/24 fd00::/120] n2 x [10.0.0.0/24 fd00::100/120]"},
		"one inside another's": {
			[]node{
				{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")},
				{Name: "n2", Entry: "y", Prefixes: prefixes("10.0.0.128/26", "fd02::/122")},
			},
			[]string{`nodeipam: record 10.0.0.128/26 for "n2" in "y": Prefixes[0]: overlaps another node's prefix, held by "n1"`},
			"n1 x [10.0.0.0/24 fd00::/120] n2 y [10.0.0.128/26 fd02::/122]"},
		"garbage": {
			[]node{{Name: "n1", Entry: "x", Prefixes: []netip.Prefix{{}, pfx("fd00::/120")}, Texts: []string{"10.0.0", "fd00::/120"}}},
			[]string{
				`nodeipam: record "10.0.0" for "n1" in "x": Prefixes[0]: not a valid address or prefix`,
				`nodeipam: record for "n1" in "x": no IPv4 prefix, which every node needs`,
			}, "n1 x [fd00::/120]"},
		"nothing but garbage": {
			[]node{{Name: "n1", Entry: "x", Prefixes: []netip.Prefix{{}}}},
			[]string{`nodeipam: record for "n1" in "x": Prefixes[0]: not a valid address or prefix`}, ""},
		"host bits": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.7/24", "fd00::/120")}},
			[]string{`nodeipam: record 10.0.0.7/24 for "n1" in "x": Prefixes[0]: has host bits set`}, "n1 x [10.0.0.0/24 fd00::/120]"},
		"4-in-6": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("::ffff:10.0.0.0/120", "fd00::/120")}},
			[]string{`nodeipam: record ::ffff:10.0.0.0/120 for "n1" in "x": Prefixes[0]: IPv4-mapped IPv6 (4-in-6); use the IPv4 form`},
			"n1 x [10.0.0.0/24 fd00::/120]"},
		"listed twice": {
			[]node{
				{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")},
				{Name: "n1", Prefixes: prefixes("10.0.1.0/24", "fd00::/120")},
			},
			[]string{
				`nodeipam: record for "n1": listed twice`,
				`nodeipam: record 10.0.1.0/24 for "n1" in "x": Prefixes[0]: more than one IPv4 prefix`,
			}, "n1 x [10.0.0.0/24 fd00::/120 10.0.1.0/24]"},
		"the same prefix twice": {
			[]node{{Name: "n1", Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120", "10.0.0.0/24")}},
			[]string{`nodeipam: record 10.0.0.0/24 for "n1" in "x": Prefixes[2]: more than one IPv4 prefix`}, "n1 x [10.0.0.0/24 fd00::/120]"},
		"no name": {
			[]node{{Entry: "x", Prefixes: prefixes("10.0.0.0/24", "fd00::/120")}},
			[]string{`nodeipam: record: Name: empty`}, " x [10.0.0.0/24 fd00::/120]"},
	} {
		a := allocator(t, dual,
			e46("x", "10.0.0.0/22", "fd00::/118", 8, "a"),
			e46("y", "10.0.0.0/22", "fd02::/118", 6, "b"),
			e46("big", "10.2.0.0/20", "fd03::/116", 8, "a"),
			e46("small", "10.2.0.0/22", "fd03::/118", 8, "a"),
			e46("twin-b", "10.1.0.0/22", "fd01::/118", 8, "a"),
			e46("twin-a", "10.1.0.0/22", "fd01::/118", 8, "a"))
		if err := a.Reserve(pfx("10.0.3.0/26")); err != nil {
			t.Fatal(err)
		}
		var problems []string
		for _, e := range a.Load(c.nodes) {
			problems = append(problems, e.Error())
			if lacks := strings.HasSuffix(e.Error(), "which every node needs"); lacks != errors.Is(e, ipalloc.ErrNotHeld) {
				t.Errorf("%s: %v is %v", name, e, e.Err)
			}
		}
		if !slices.Equal(problems, c.problems) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(problems, "\n"), strings.Join(c.problems, "\n"))
		}
		var held []string
		for n := range a.All() {
			held = append(held, fmt.Sprint(n.Name, " ", n.Entry, " ", n.Prefixes))
		}
		if got := strings.Join(held, " "); got != c.held {
			t.Errorf("%s: held %s, want %s", name, got, c.held)
		}
		check(t, a)
	}
}
