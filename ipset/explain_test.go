package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

// scarce returns pools of four addresses of which host h gets none, each for another reason, and one that gives.
func scarce(t *testing.T) *world {
	zone := selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{"a"}}}}}
	pools := []alloc.Pool{{Name: "given"}, {Name: "full"}, {Name: "cooling", Cooldown: time.Hour}, {Name: "reserved"}, {Name: "limited", MaxBlocksPerHost: 1}, {Name: "subnet", Subnet: true},
		{Name: "manual", Manual: true}, {Name: "disabled", Disabled: true}, {Name: "tunnel", Uses: alloc.Tunnel}, {Name: "zoned", Nodes: zone}, {Name: "spaced", Namespaces: zone}, {Name: "small", BlockBits: 31}}
	for i := range pools {
		pools[i].Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 30)
		if pools[i].BlockBits == 0 {
			pools[i].BlockBits = 30
		}
	}
	pools[4].BlockBits = 31
	w := newWorld(t, alloc.Config{Strict: true}, append(pools, poolOf("six", "fd00::/126", 126))...)
	for pool, n := range map[string]int{"full": 4, "cooling": 4, "limited": 2, "subnet": 2} {
		a := want("h", n, pool)
		a.Pools = []string{pool}
		w.assign(a)
	}
	w.clock.add(time.Minute)
	w.releaseHandle("cooling")
	var b netipx.IPSetBuilder
	b.AddPrefix(pools[3].Prefix)
	set, _ := b.IPSet()
	if _, err := w.Operator().SetReservations(bg, reservations(set)); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestExplainSaysWhy: each pool has its reason, one that gives has the addresses of the call, and the utilization agrees.
func TestExplainSaysWhy(t *testing.T) {
	w := scarce(t)
	before, _ := w.store.MarshalBinary()
	a := want("h", 1, "x")
	a.Blocks, a.Partial = alloc.BlockArgs{Head: 1, Tail: 1}, false
	found, err := w.Explain(bg, a)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the store changed")
	}
	us, err := w.Utilization(bg)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]alloc.Reason{"full": alloc.ReasonFull, "cooling": alloc.ReasonCoolingLeft, "reserved": alloc.ReasonReservedLeft, "limited": alloc.ReasonEndsTooLarge, "subnet": alloc.ReasonOutsideLeft, "manual": alloc.ReasonNotNamed,
		"disabled": alloc.ReasonDisabled, "tunnel": alloc.ReasonOtherUse, "zoned": alloc.ReasonNotOfHost, "spaced": alloc.ReasonNotOfNamespace, "small": alloc.ReasonEndsTooLarge, "six": alloc.ReasonOtherFamily}
	for i, x := range found {
		if x.Pool != us[i].Pool {
			t.Errorf("%s where Utilization has %s", x.Pool, us[i].Pool)
		}
		if x.Pool == "given" {
			if got := w.assign(want("h", 1, "given")); len(x.Gives) != 1 || x.Reason != 0 {
				t.Errorf("%+v, and the call gives %v", x, got)
			}
			continue
		}
		if x.Reason != reasons[x.Pool] || len(x.Gives) > 0 {
			t.Errorf("%+v, want %v", x, reasons[x.Pool])
		}
		if none := us[i].Available == (alloc.Count{}); none != slices.Contains([]string{"full", "cooling", "reserved", "subnet"}, x.Pool) {
			t.Errorf("%s: %v and %v available", x.Pool, x.Reason, us[i].Available)
		}
	}
	if len(found) != len(us) {
		t.Errorf("%d of %d pools", len(found), len(us))
	}
	a.Pools = []string{"zoned"}
	if found, err = w.Explain(bg, a); err != nil || !slices.ContainsFunc(found, func(x alloc.Explanation) bool { return x.Pool == "zoned" && len(x.Gives) == 1 }) {
		t.Errorf("a pool that the call names, whatever it selects: %+v, %v", found, err)
	}
	if _, err := w.Explain(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Pools: []string{"none"}}); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Error(err)
	}
}

// TestShortageIsInTheError: a program reads pool, reason, limit and time from the error and the result, and the only reason is the
// sentinel.
func TestShortageIsInTheError(t *testing.T) {
	w := scarce(t)
	until := w.clock.t.Add(time.Hour)
	for _, c := range []struct {
		pools string
		is    error
		want  alloc.Shortage // of the first pool
		text  string
	}{
		{"cooling", ipalloc.ErrCooling, alloc.Shortage{Reason: alloc.ReasonCoolingLeft, Until: until}, `in "cooling": not enough addresses: cooling until 2026-`},
		{"limited", ipalloc.ErrLimit, alloc.Shortage{Reason: alloc.ReasonLimitReached, Limit: alloc.BlockLimit{Pool: "limited", Blocks: 1, Max: 1}}, "limit: 1 of 1 blocks"},
		{"cooling full", ipalloc.ErrFull, alloc.Shortage{Reason: alloc.ReasonCoolingLeft, Until: until}, ": not enough addresses: cooling: cooling, full: full"},
		{"disabled tunnel", ipalloc.ErrNotFound, alloc.Shortage{Reason: alloc.ReasonDisabled}, "no pool qualifies: disabled: disabled, tunnel: for other uses"},
	} {
		a := want("h", 1, "x")
		a.Pools, a.Partial = strings.Fields(c.pools), false
		got, err := w.AutoAssign(bg, a)
		var e *ipalloc.Error
		if !errors.Is(err, c.is) || !errors.As(err, &e) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v %q", c.pools, err, c.is, c.text)
			continue
		}
		name := ""
		if len(a.Pools) == 1 {
			name = c.pools
		}
		if e.Name != name || e.Until.IsZero() != (c.is != ipalloc.ErrCooling) || !e.Until.IsZero() && !e.Until.Equal(until) {
			t.Errorf("%s: name %q, until %v", c.pools, e.Name, e.Until)
		}
		if c.want.Family, c.want.Pool = 4, got.Short[0].Pool; len(got.Short) != len(a.Pools) || got.Short[0] != c.want {
			t.Errorf("%s: %+v, want %+v", c.pools, got.Short, c.want)
		}
		if a.Partial = true; c.is != ipalloc.ErrNotFound {
			if part, err := w.AutoAssign(bg, a); err != nil || fmt.Sprint(part.Short) != fmt.Sprint(got.Short) {
				t.Errorf("%s: partial %+v, %v", c.pools, part.Short, err)
			}
		}
	}
	_, err := w.EnsureBlock(bg, alloc.AssignArgs{Owner: alloc.HostOwner("g"), Num4: 1, Pools: []string{"reserved"}})
	if !errors.Is(err, ipalloc.ErrReserved) || !strings.Contains(err.Error(), `in "reserved"`) {
		t.Error(err)
	}
	_, err = w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.7.1"), Owner: alloc.HostOwner("h")})
	if e := new(ipalloc.Error); !errors.As(err, &e) || e.Name != "disabled" || !strings.HasSuffix(err.Error(), "no pool qualifies: disabled") {
		t.Error(err)
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.4.2"), Owner: alloc.HostOwner("h")}); !errors.Is(err, ipalloc.ErrLimit) || !strings.HasSuffix(err.Error(), ": 1 of 1") {
		t.Error(err)
	}
}

// TestManyPoolsInOneError: an error names the first pools of many, its result all.
func TestManyPoolsInOneError(t *testing.T) {
	var pools []alloc.Pool
	for i := range 20 {
		pools = append(pools, alloc.Pool{Name: fmt.Sprint("p", 10+i), Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 30)})
	}
	w := newWorld(t, alloc.Config{}, pools...)
	got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num6: 1})
	if !errors.Is(err, ipalloc.ErrNotFound) || !strings.HasSuffix(err.Error(), "p17: of the other family and 12 more") || len(got.Short) != 20 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A pool that gives more than a commit of the store takes says so in its own row, and hides the answers of no other pool. With Partial
// it gives what fits, also where blocks that are claimed have one address each.
func TestMoreThanACommitTakes(t *testing.T) {
	for _, bits := range []int{32, 31, 29} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", bits), poolOf("b", "10.0.1.0/24", 24))
		e := w.engine(faults.NewLimited(w.store, store.Limits{Ops: 127}))
		a := want("h", 100, "x")
		a.Partial = false
		rows, err := e.Explain(bg, a)
		if err != nil || len(rows) != 2 || rows[0].Reason != alloc.ReasonCommitFull || rows[0].Gives != nil || len(rows[1].Gives) != 0 && len(rows[1].Gives) != 100 {
			t.Errorf("/%d: %+v, %v", bits, rows, err)
		}
		a.Partial, a.Pools = true, []string{"a"}
		got, err := e.AutoAssign(bg, a)
		if err != nil || len(got.V4) < 20 || len(got.Short) != 1 || got.Short[0].Reason != alloc.ReasonCommitFull {
			t.Errorf("/%d: %d given, %v, %v", bits, len(got.V4), got.Short, err)
		}
	}
}

// A wish counts in the row of its pool, as it does for the call.
func TestExplainWish(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28), poolOf("b", "10.0.1.0/28", 28))
	wish := netip.MustParseAddr("10.0.1.7")
	a := alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 1, Choose: alloc.Prefer(wish)}
	rows, err := w.Explain(bg, a)
	if err != nil || len(rows) != 2 || rows[0].Gives[0] != netip.MustParseAddr("10.0.0.0") || rows[1].Gives[0] != wish {
		t.Errorf("%+v, %v", rows, err)
	}
}

// Blocks that are reserved as a whole are reserved for addresses in a row too, and not fragmented.
func TestReservedIsNotFragmented(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 29))
	if err := w.Operator().ChangePools(bg, alloc.PoolChanges{Reserve: alloc.Reservations(netipx.MustParseIPRange("10.0.0.0-10.0.0.15"))}); err != nil {
		t.Fatal(err)
	}
	got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: alloc.HostOwner("h"), Num4: 2, Choose: alloc.Contiguous()})
	if err == nil || len(got.Short) != 1 || got.Short[0].Reason != alloc.ReasonReservedLeft {
		t.Errorf("%+v, %v", got.Short, err)
	}
}
