package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/selector"
)

func TestRequestKeyGivesTheFirstAnswer(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28), poolOf("b", "2001:db8::/124", 124))
	a := want("h", 3, "p")
	a.Num6, a.Request = 2, "r1"
	first := w.assign(a)
	again := w.assign(a)
	other, err := w.engine(w.store).AutoAssign(bg, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []alloc.Assigned{again, other} {
		if !slices.Equal(got.V4, first.V4) || !slices.Equal(got.V6, first.V6) {
			t.Errorf("%+v, first %+v", got, first)
		}
	}
	if als, _ := w.IPsByHandle(bg, "p"); len(als) != 5 {
		t.Errorf("%d addresses held", len(als))
	}
	// A shortage is not remembered: the repetition gets what has become free beside what it holds.
	b := want("h", 20, "q")
	b.Request = "r2"
	short := w.assign(b)
	w.releaseHandle("p")
	if got := w.assign(b); len(got.V4) != len(short.V4)+3 || !slices.Equal(got.V4[:len(short.V4)], short.V4) || len(got.Short) != 1 {
		t.Errorf("%+v, first %+v", got, short)
	}
	// All or nothing, and the first call took what a second would need; then the pool does not serve any more at all.
	d := want("h", 12, "s")
	d.Partial, d.Request, d.Pools = false, "r4", []string{"c"}
	w.AddPool(bg, poolOf("c", "10.0.2.0/28", 28))
	whole := w.assign(d)
	if got, err := w.AutoAssign(bg, d); err != nil || !slices.Equal(got.V4, whole.V4) {
		t.Errorf("all or nothing: %+v, %v", got, err)
	}
	w.RemovePool(bg, "c")
	if got, err := w.AutoAssign(bg, d); err != nil || !slices.Equal(got.V4, whole.V4) {
		t.Errorf("pool removed: %+v, %v", got, err)
	}
	w.releaseHandle("s")
	w.releaseHandle("q")
	w.AddPool(bg, poolOf("c", "10.0.2.0/28", 28))
	// AssignIP: the address is taken, by the first call itself.
	c := alloc.AssignIPArgs{Address: ip("10.0.0.0"), Owner: alloc.HostOwner("h"), Handle: "r", Request: "r3"}
	al, err := w.AssignIP(bg, c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.engine(w.store).AssignIP(bg, c); err != nil || got != al {
		t.Errorf("%+v, %v; first %+v", got, err, al)
	}
	c.Request = ""
	if got, err := w.AssignIP(bg, c); err != nil || got != al {
		t.Errorf("by its holder, without the key: %+v, %v", got, err)
	}
	c.Handle = "thief"
	if _, err := w.AssignIP(bg, c); !errors.Is(err, ipalloc.ErrOccupied) {
		t.Errorf("by another: %v", err)
	}
	c.Handle = "r"
	c.Request, c.Address = "r3", ip("10.0.0.1")
	if _, err := w.AssignIP(bg, c); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("key of another request: %v", err)
	}
	w.check()
	w.clock.add(2 * time.Hour)
	if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{RequestsAfter: time.Hour}); err != nil || s.Requests != 4 || w.records(record.KindRequest) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28), poolOf("b", "2001:db8::/126", 126))
	a := want("h", 3, "p")
	a.Num6, a.Partial = 5, false
	before, _ := w.store.MarshalBinary()
	if got, err := w.AutoAssign(bg, a); !errors.Is(err, cause.Short) || len(got.V4) > 0 || !strings.Contains(err.Error(), `in "b": not enough addresses: full`) {
		t.Errorf("%+v, %v", got, err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the store changed")
	}
	a.Num6 = 4
	if got := w.assign(a); len(got.V4) != 3 || len(got.V6) != 4 {
		t.Errorf("%+v", got)
	}
}

func TestLeasesAndSticky(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/28", 28))
	a := want("h", 2, "vm")
	a.TTL, a.Sticky = time.Hour, true
	first := w.assign(a)
	w.assign(want("h", 1, "ever"))
	w.clock.add(50 * time.Minute)
	if n, err := w.Renew(bg, "vm", alloc.RenewArgs{TTL: time.Hour}); len(n) != 2 || err != nil {
		t.Fatalf("renewed %v, %v", n, err)
	}
	if n, err := w.Renew(bg, "ever", alloc.RenewArgs{TTL: time.Hour}); len(n) != 0 || !errors.Is(err, ipalloc.ErrNotHeld) {
		t.Fatalf("renewed %v without lease, %v", n, err)
	}
	w.clock.add(59 * time.Minute)
	if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	if als, _ := w.IPsByHandle(bg, "vm"); len(als) != 2 {
		t.Fatalf("ended before its renewed end: %v", als)
	}
	w.clock.add(time.Minute)
	if als, _ := w.IPsByHandle(bg, "vm"); len(als) != 0 {
		t.Fatalf("held after its end: %v", als)
	}
	w.check()
	if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Advanced != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	w.check()
	w.assign(want("h", 3, "other"))
	if got := w.assign(a); !slices.EqualFunc(got.V4, first.V4, func(x, y alloc.Allocation) bool { return x.Address == y.Address && x.Seq > y.Seq }) {
		t.Errorf("not the addresses it had: %+v, had %+v", got.V4, first.V4)
	}
	w.releaseHandle("vm")
	w.AssignIP(bg, alloc.AssignIPArgs{Address: first.V4[0].Address, Owner: alloc.HostOwner("h"), Handle: "thief"})
	got := w.assign(a)
	if len(got.V4) != 2 || got.V4[0].Address != first.V4[1].Address {
		t.Errorf("one was taken: %+v", got.V4)
	}
}

func TestIdleBlocksGoBack(t *testing.T) {
	labels := map[string]string{"zone": "a"}
	p := poolOf("a", "10.0.0.0/24", 30)
	p.Nodes = selector.Selector{{Labels: []selector.Requirement{{Key: "zone", Op: selector.In, Values: []string{"a"}}}}}
	w := newWorld(t, alloc.Config{}, p)
	w.core.Labels = func(alloc.Owner) (map[string]string, bool) { return labels, true }
	w.assign(want("h", 12, "p"))
	w.clock.add(time.Hour)
	w.releaseHandle("p")
	w.clock.add(9 * time.Minute)
	sweep := func(a alloc.SweepArgs) int {
		t.Helper()
		s, err := w.Operator().Sweep(bg, a)
		if err != nil {
			t.Fatal(err)
		}
		w.check()
		return len(s.Returned)
	}
	if n := sweep(alloc.SweepArgs{IdleAfter: 10 * time.Minute, Keep: 1}); n != 0 {
		t.Errorf("%d returned too early: age counts from when they became empty", n)
	}
	w.clock.add(time.Minute)
	if n := sweep(alloc.SweepArgs{IdleAfter: 10 * time.Minute, Keep: 1}); n != 2 || len(w.blocksOf("h")) != 1 {
		t.Errorf("%d returned, %d kept", n, len(w.blocksOf("h")))
	}
	if n := sweep(alloc.SweepArgs{Unselected: true}); n != 0 {
		t.Errorf("%d returned although selected", n)
	}
	labels = map[string]string{"zone": "b"}
	if n := sweep(alloc.SweepArgs{Unselected: true}); n != 1 || len(w.blocksOf("h")) != 0 {
		t.Errorf("%d returned", n)
	}
	if _, err := w.AutoAssign(bg, want("h", 1, "p")); !errors.Is(err, cause.NoPool) {
		t.Errorf("no longer selected: %v", err)
	}
}

func TestSplitMergeDrain(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	w.assign(want("h", 100, "p"))
	before := w.records(record.KindBlock)
	_, rev, _ := w.store.List(bg, store.Range{Limit: 1})
	if err := w.Operator().SplitPool(bg, "a", 2); err != nil {
		t.Fatal(err)
	}
	for ev, err := range w.store.Watch(bg, rev, "") {
		if err != nil || len(ev.Changes) != 2 {
			t.Errorf("a split wrote more than the catalog: %v, %v", ev, err)
		}
		break
	}
	if _, now, _ := w.store.List(bg, store.Range{Limit: 1}); now != rev+1 {
		t.Errorf("a split made %d commits", now-rev)
	}
	w.check()
	if ps, _ := w.Pools(bg); len(ps) != 4 || ps[3].Name != "a-3" || ps[3].Prefix != netip.MustParsePrefix("10.0.0.192/26") {
		t.Fatalf("%+v", ps)
	}
	if err := w.Operator().SplitPool(bg, "a-0", 3); !is(err, badField("bits")) {
		t.Errorf("parts smaller than a block: %v", err)
	}
	if err := w.Operator().MergePools(bg, "b", "a-0", "a-2"); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("parts that are no prefix: %v", err)
	}
	w.assign(want("g", 20, "q"))
	if err := w.Operator().MergePools(bg, "b", "a-1", "a-0"); err != nil {
		t.Fatal(err)
	}
	if err := w.Operator().MergePools(bg, "a", "b", "a-2", "a-3"); err != nil {
		t.Fatal(err)
	}
	w.check()
	got := w.assign(want("h", 256, "r"))
	if n := 100 + 20 + len(got.V4); n != 256 {
		t.Errorf("%d addresses given of 256", n)
	}
	if w.records(record.KindBlock) < before {
		t.Error("blocks were lost")
	}
	held, err := w.Operator().Drain(bg, "a")
	if err != nil || len(held) != 256 {
		t.Errorf("drain lists %d, %v", len(held), err)
	}
	if _, err := w.AutoAssign(bg, want("h", 1, "s")); !errors.Is(err, cause.NoPool) {
		t.Errorf("drained pool: %v", err)
	}
}

// TestChangeOfPoolIsSeenAtOnce: an engine that has everything cached must not assign from a pool that another disabled.
func TestChangeOfPoolIsSeenAtOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	e := w.engine(w.store)
	if _, err := e.AutoAssign(bg, want("h", 1, "p")); err != nil {
		t.Fatal(err)
	}
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Disabled = true
	if err := w.UpdatePool(bg, p); err != nil {
		t.Fatal(err)
	}
	if got, err := e.AutoAssign(bg, want("h", 1, "q")); !errors.Is(err, cause.NoPool) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.AddPool(bg, poolOf("b", "10.0.1.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	if got, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil || !netip.MustParsePrefix("10.0.1.0/24").Contains(got.V4[0].Address) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestStaleCacheDoesNotClaim: room that another engine made in the own block is found before a block is claimed, or a
// shortage is reported.
func TestStaleCacheDoesNotClaim(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 30))
	e := w.engine(w.store)
	got, err := e.AutoAssign(bg, want("h", 4, "p"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReleaseIPs(bg, alloc.Release{Address: got.V4[1].Address}); err != nil {
		t.Fatal(err)
	}
	if next, err := e.AutoAssign(bg, want("h", 1, "q")); err != nil || next.V4[0].Address != got.V4[1].Address {
		t.Errorf("%+v, %v", next, err)
	}
	if n := len(w.blocksOf("h")); n != 1 {
		t.Errorf("%d blocks", n)
	}
	e.AutoAssign(bg, want("h", 4, "r"))
	w.ReleaseIPs(bg, alloc.Release{Address: got.V4[2].Address})
	if next, err := e.AutoAssign(bg, want("h", 1, "s")); err != nil || len(next.V4) != 1 {
		t.Errorf("reported short: %+v, %v", next, err)
	}
}

func TestHandlesDifferInCase(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	for _, h := range []string{"pod", "Pod", "POD", "pod\r\n", "pod/", "p", "\x01", "é"} {
		w.assign(want("h", 1, h))
	}
	for _, h := range []string{"pod", "Pod", "POD", "pod\r\n", "pod/", "p", "\x01", "é"} {
		if als, err := w.IPsByHandle(bg, h); err != nil || len(als) != 1 || als[0].Handle != h {
			t.Errorf("%q: %v, %v", h, als, err)
		}
	}
	w.assign(want("h", 2, ""))
	if _, err := w.IPsByHandle(bg, ""); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("empty handle: %v", err)
	}
	if _, err := w.ReleaseByHandle(bg, "a\x00b"); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("NUL: %v", err)
	}
}
