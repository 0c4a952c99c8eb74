package ipset

import (
	"fmt"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// The report counts what each owner has, agrees with the addresses themselves, and names who is at a limit.
func TestHosts(t *testing.T) {
	small := poolOf("small", "10.0.1.0/30", 30)
	small.MaxBlocksPerHost = 1
	w := newWorld(t, alloc.Config{MaxBlocksPerHost: 3}, poolOf("big", "10.0.0.0/28", 30), small)
	a := want("a", 9, "pa")
	a.Pools = []string{"big"}
	w.assign(a)                  // three blocks
	w.assign(want("b", 3, "pb")) // the last of big
	w.assign(want("c", 6, "pc")) // small, and two borrowed
	w.assign(want("d", 1, "pd")) // borrowed
	w.releaseHandle("nothing")
	reports, err := w.Hosts(bg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range reports {
		got = append(got, fmt.Sprintf("%s %d %s %d %d %v %v", r.Owner.Name, r.Blocks, r.Used, r.Borrowed, r.Lent, r.Limits, r.AtLimit()))
	}
	sum := alloc.Count{}
	borrowed, lent := 0, 0
	for _, r := range reports {
		als, err := w.IPsByHost(bg, r.Owner)
		if err != nil || uint64(len(als)) != r.Used.Lo-uint64(r.Lent)+uint64(r.Borrowed) {
			t.Errorf("%s holds %d addresses, %v: %+v", r.Owner, len(als), err, r)
		}
		sum, borrowed, lent = sum.Add(r.Used), borrowed+r.Borrowed, lent+r.Lent
	}
	if sum != (alloc.Count{Lo: 19}) || borrowed != 3 || lent != 3 {
		t.Errorf("%s used, %d borrowed, %d lent", sum, borrowed, lent)
	}
	if !slices.IsSortedFunc(reports, func(x, y alloc.HostReport) int { return y.Used.Cmp(x.Used) }) || len(reports) != 4 {
		t.Errorf("%q", got)
	}
	for _, r := range reports {
		if at := r.Owner.Name == "a" || r.Owner.Name == "c"; r.AtLimit() != at {
			t.Errorf("%s at a limit: %v, %v", r.Owner, r.AtLimit(), r.Limits)
		}
	}
}

// A shortage says whether what is left is reserved, or lies outside the ranges of its pool.
func TestShortageOutsideOfRanges(t *testing.T) {
	p := poolOf("lan", "10.0.0.0/24", 24)
	p.Ranges = []netipx.IPRange{netipx.MustParseIPRange("10.0.0.100-10.0.0.103")}
	for reserved, want := range map[string]alloc.Reason{
		"":                      alloc.ReasonOutsideLeft,
		"10.0.0.0-10.0.0.99":    alloc.ReasonOutsideLeft,
		"10.0.0.104-10.0.0.110": alloc.ReasonOutsideLeft,
		"10.0.0.99-10.0.0.100":  alloc.ReasonReservedLeft,
		"10.0.0.103-10.0.0.200": alloc.ReasonReservedLeft,
	} {
		w := newWorld(t, alloc.Config{}, p)
		if reserved != "" {
			var sb netipx.IPSetBuilder
			sb.AddRange(netipx.MustParseIPRange(reserved))
			set, _ := sb.IPSet()
			if _, err := w.Operator().SetReservations(bg, reservations(set)); err != nil {
				t.Fatal(err)
			}
		}
		got := w.assign(alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 5, Partial: true})
		if len(got.Short) != 1 || got.Short[0].Reason != want {
			t.Errorf("reserved %q: %v, want %v", reserved, got.Short, want)
		}
	}
}
