package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
)

func prefixesOf(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestCheckClaims(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/16")
	claimOf := func(node, prefix string, bits int) claim { return claim{node, netip.MustParsePrefix(prefix), bits} }
	sound := []claim{claimOf("a", "10.0.0.0/24", 24), claimOf("b", "10.0.255.128/25", 25), claimOf("c", "10.0.1.0/26", 26), claimOf("d", "10.0.255.0/25", 25)}
	for name, c := range map[string]struct {
		planted []claim
		want    []string
	}{
		"sound":        {nil, nil},
		"equal":        {[]claim{claimOf("x", "10.0.1.0/26", 26)}, []string{`10.0.1.0/26 of node "x" overlaps 10.0.1.0/26 of node "c"`}},
		"inside":       {[]claim{claimOf("x", "10.0.0.192/26", 26)}, []string{`10.0.0.192/26 of node "x" overlaps 10.0.0.0/24 of node "a"`}},
		"last address": {[]claim{claimOf("x", "10.0.255.255/32", 32)}, []string{`10.0.255.255/32 of node "x" overlaps 10.0.255.128/25 of node "b"`}},
		"around":       {[]claim{claimOf("x", "10.0.254.0/23", 23)}, []string{`10.0.255.0/25 of node "d" overlaps 10.0.254.0/23 of node "x"`, `10.0.255.128/25 of node "b" overlaps 10.0.254.0/23 of node "x"`}},
		"not next to":  {[]claim{claimOf("x", "10.0.8.0/23", 23), claimOf("y", "10.0.8.0/26", 26), claimOf("z", "10.0.9.0/26", 26)}, []string{`10.0.8.0/26 of node "y" overlaps 10.0.8.0/23 of node "x"`, `10.0.9.0/26 of node "z" overlaps 10.0.8.0/23 of node "x"`}},
		"outside":      {[]claim{claimOf("x", "10.1.0.0/24", 24)}, []string{`node "x" holds 10.1.0.0/24, which is outside the pool 10.0.0.0/16`}},
		"just before":  {[]claim{claimOf("x", "9.255.255.0/24", 24)}, []string{`node "x" holds 9.255.255.0/24, which is outside the pool 10.0.0.0/16`}},
		"larger":       {[]claim{claimOf("x", "10.0.0.0/15", 15)}, []string{`node "x" holds 10.0.0.0/15, which is outside the pool 10.0.0.0/16`}},
		"other family": {[]claim{claimOf("x", "fd00::/24", 24)}, []string{`node "x" holds fd00::/24, which is outside the pool 10.0.0.0/16`}},
		"wrong length": {[]claim{claimOf("x", "10.0.7.0/25", 24)}, []string{`node "x" holds 10.0.7.0/25, a /24 is right`}},
		"host bits":    {[]claim{claimOf("x", "10.0.7.1/24", 24)}, []string{`node "x" holds 10.0.7.1/24, which has host bits set`}},
		"no prefix":    {[]claim{{"x", netip.Prefix{}, 24}}, []string{`node "x" holds no valid prefix`}},
		"several":      {[]claim{claimOf("x", "10.0.7.0/25", 24), claimOf("y", "10.2.0.0/24", 24)}, []string{`node "x" holds 10.0.7.0/25, a /24 is right`, `node "y" holds 10.2.0.0/24, which is outside the pool 10.0.0.0/16`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := checkClaims(pool, append(slices.Clone(sound), c.planted...))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every field of an engine's account, with one lie at a time.
func TestCheckView(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/24")
	claims := []claim{{"a", netip.MustParsePrefix("10.0.0.0/26"), 26}, {"b", netip.MustParsePrefix("10.0.0.128/27"), 27}}
	sound := func() view {
		return view{
			used:  prefixesOf("10.0.0.0/26", "10.0.0.128/27"),
			free:  prefixesOf("10.0.0.64/26", "10.0.0.160/27", "10.0.0.192/26"),
			stats: cidrset.Stats{Capacity: 8, Used: 3, LargestFree: 26},
		}
	}
	for name, c := range map[string]struct {
		lie  func(v *view)
		want []string
	}{
		"sound":        {func(*view) {}, nil},
		"check":        {func(v *view) { v.check = errors.New("summary of word 3") }, []string{"the engine's own check: summary of word 3"}},
		"too few used": {func(v *view) { v.used = v.used[:1] }, []string{"taken are [10.0.0.0/26], the nodes hold [10.0.0.0/26 10.0.0.128/27]"}},
		"other used":   {func(v *view) { v.used[1] = v.free[1] }, []string{"taken are [10.0.0.0/26 10.0.0.160/27], the nodes hold [10.0.0.0/26 10.0.0.128/27]"}},
		"leaked free":  {func(v *view) { v.free = v.free[1:] }, []string{"free are [10.0.0.160/27 10.0.0.192/26], the nodes leave [10.0.0.64/26 10.0.0.160/27 10.0.0.192/26]"}},
		"free twice":   {func(v *view) { v.free = append(v.free, v.used[1]) }, []string{"free are [10.0.0.64/26 10.0.0.160/27 10.0.0.192/26 10.0.0.128/27], the nodes leave [10.0.0.64/26 10.0.0.160/27 10.0.0.192/26]"}},
		"not a prefix": {func(v *view) { v.used[0] = netip.Prefix{} }, []string{"taken are [invalid Prefix 10.0.0.128/27], the nodes hold [10.0.0.0/26 10.0.0.128/27]"}},
		"capacity":     {func(v *view) { v.stats.Capacity = 9 }, []string{"the capacity is said to be 9, it is 8"}},
		"used":         {func(v *view) { v.stats.Used = 2 }, []string{"2 /27 are said to be taken, the nodes hold 3"}},
		"cooling":      {func(v *view) { v.stats.Cooling = 1 }, []string{"1 are said to be cooling, this pool has no cooldown"}},
		"largest":      {func(v *view) { v.stats.LargestFree = 25 }, []string{"the largest free prefix is said to be a /25, it is a /26"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := sound()
			c.lie(&v)
			if diff := cmp.Diff(c.want, checkView(pool, 27, claims, v)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Nothing held, and an engine that names nonsense.
	v := view{used: []netip.Prefix{{}}, free: []netip.Prefix{pool}, stats: cidrset.Stats{Capacity: 8, LargestFree: 24}}
	want := []string{"taken are [invalid Prefix], the nodes hold []"}
	if diff := cmp.Diff(want, checkView(pool, 27, nil, v)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Full and empty, and 2^64 children, where counts saturate.
	whole := netip.MustParsePrefix("2001:db8::/64")
	all, halves := prefixesOf("2001:db8::/64"), prefixesOf("2001:db8::/65", "2001:db8:0:0:8000::/65")
	for _, c := range []struct {
		claims []claim
		view   view
	}{
		{nil, view{free: all, stats: cidrset.Stats{Capacity: 1<<64 - 1, LargestFree: 64}}},
		{[]claim{{"a", halves[0], 65}, {"b", halves[1], 65}}, view{used: all, stats: cidrset.Stats{Capacity: 1<<64 - 1, Used: 1<<64 - 1, LargestFree: -1}}},
		{[]claim{{"a", whole, 64}}, view{used: all, stats: cidrset.Stats{Capacity: 1<<64 - 1, Used: 1<<64 - 1, LargestFree: -1}}},
	} {
		if found := checkView(whole, 128, c.claims, c.view); found != nil {
			t.Error(found)
		}
	}
}

func TestBrokenText(t *testing.T) {
	if err := wording.Broken("never", nil); err != nil {
		t.Error(err)
	}
	found := strings.Split("abcdefghijkl", "")
	want := "broken promise, at noon:\n\t" + strings.Join(found[:10], "\n\t") + "\n\tand 2 more"
	if got := wording.Broken("at noon", found).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
