package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/metrics"
)

// Each refusal at the front door is a shortage, whichever call it was, and counts with its pool if it has one.
func TestRefusals(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	e := must(ipset.New(db, ipset.Options{}))(t)
	a, b := alloc.HostOwner("a"), alloc.HostOwner("b")
	add := func(p alloc.Pool) {
		t.Helper()
		if err := e.AddPool(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	add(alloc.Pool{Name: "pods", Prefix: prefix("10.0.0.0/25"), BlockBits: 26, Index: []string{"tenant"}})
	add(alloc.Pool{Name: "lb", Prefix: prefix("10.1.0.0/32"), BlockBits: 32, Manual: true})
	c := metrics.NewEngine("pods", e, metrics.EngineOptions{})
	counts := noRefusals("pods")
	for name, n := range noRefusals("lb") {
		counts[name] = n
	}
	refused := func(what string, err error, series string) {
		t.Helper()
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		c.Observe(alloc.Assigned{}, err)
		if _, known := counts[series]; !known {
			t.Fatalf("%s has no series %s before it is first refused", what, series)
		}
		counts[series]++
		if got := values(scrape(t, c)["ipalloc_shortages_total"]); fmt.Sprint(got) != fmt.Sprint(counts) {
			t.Errorf("%s: %v\n got %v\nwant %v", what, err, got, counts)
		}
	}

	must(e.Assign(ctx, a, "lb-1", "lb"))(t)
	_, err := e.Assign(ctx, a, "lb-2", "lb")
	refused("Assign in a full manual pool", err, "family=4,kind=ipset,pool=lb,reason=full")

	if err := e.Operator().SetConfig(ctx, alloc.Config{Strict: true}); err != nil {
		t.Fatal(err)
	}
	must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "b"}))(t)
	must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: a, Num4: 64, Handle: "a"}))(t)
	_, err = e.Assign(ctx, a, "a-2", "pods")
	refused("Assign under strict affinity", err, "family=4,kind=ipset,pool=pods,reason=foreign")
	held := must(e.IPsByHandle(ctx, "b"))(t)[0].Address
	_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: held.Next(), Owner: a, Handle: "a-3"})
	refused("AssignIP in the block of another host", err, "family=4,kind=ipset,pool=pods,reason=foreign")
	if err := e.Operator().SetConfig(ctx, alloc.Config{MaxBlocksPerHost: 1}); err != nil {
		t.Fatal(err)
	}
	must(e.ReleaseByHandle(ctx, "a"))(t)
	must(e.ReleaseByHandle(ctx, "b"))(t)
	must(e.DisownBlocks(ctx, alloc.DisownArgs{Owner: a}))(t)
	must(e.DisownBlocks(ctx, alloc.DisownArgs{Owner: b}))(t)
	must(e.AutoAssign(ctx, alloc.AssignArgs{Owner: b, Num4: 64, Handle: "b"}))(t)
	_, err = e.Assign(ctx, b, "b-2", "pods")
	refused("Assign at the limit of blocks", err, "family=4,kind=ipset,pool=pods,reason=limit")
	must(e.ReleaseByHandle(ctx, "b"))(t)

	quota := limits.Attribute("tenant", "acme", 1)
	of := must(alloc.NewAttributes(map[string]string{"tenant": "acme"}))(t)
	l := limits.New(db, ipset.Options{})
	for i := range 2 {
		_, err = l.AutoAssign(ctx, quota, alloc.AssignArgs{Owner: b, Num4: 1, Handle: fmt.Sprint("vm", i), Attributes: of})
	}
	refused("the quota of a tenant", err, "kind=ipset,reason=limit")

	// An address that is taken is an answer.
	held = must(e.IPsByHandle(ctx, "vm0"))(t)[0].Address
	_, err = e.AssignIP(ctx, alloc.AssignIPArgs{Address: held, Owner: b, Handle: "other"})
	c.Observe(alloc.Assigned{}, err)
	if got := values(scrape(t, c)["ipalloc_shortages_total"]); fmt.Sprint(got) != fmt.Sprint(counts) {
		t.Errorf("%v: %v", err, got)
	}

	// The series of a pool go with it.
	must(e.ReleaseByHandle(ctx, "lb-1"))(t)
	if err := e.Operator().ChangePools(ctx, alloc.PoolChanges{Remove: []string{"lb"}}); err != nil {
		t.Fatal(err)
	}
	for name := range counts {
		if strings.Contains(name, "pool=lb") {
			delete(counts, name)
		}
	}
	scrape(t, c)
	if got := values(scrape(t, c)["ipalloc_shortages_total"]); fmt.Sprint(got) != fmt.Sprint(counts) {
		t.Errorf("a pool was removed:\n got %v\nwant %v", got, counts)
	}
}

// The refusals of a range of numbers are those of the pool of its space.
func TestNumbersRefused(t *testing.T) {
	ctx := t.Context()
	db := store.NewMemory()
	vlans := must(numbers.New(ctx, db, "vlan", numbers.Range{First: 100, Last: 100}, ipset.Options{}))(t)
	in := must(must(ipset.New(db, ipset.Options{}))(t).InSpace("vlan"))(t)
	c := metrics.NewEngine("vlans", in, metrics.EngineOptions{})
	must(vlans.Assign(ctx, "a"))(t)
	_, err := vlans.Assign(ctx, "b")
	c.Observe(alloc.Assigned{}, err)
	got := scrape(t, c)
	if n := values(got["ipalloc_shortages_total"]); n["family=6,kind=ipset,pool=numbers,reason="+alloc.ReasonOutsideLeft.String()+",space=vlan"] != 1 {
		t.Errorf("%v: %v", err, n)
	}
	want(t, got, "pool_usable", map[string]float64{"kind=ipset,pool=numbers,space=vlan": 1})
}

// The pools of prefixes have the metrics of every pool, and their refusals count.
func TestPrefixes(t *testing.T) {
	ctx := t.Context()
	of := must(prefixes.New(store.NewMemory(), prefixes.Options{}))(t)
	if err := of.AddPool(ctx, prefixes.Pool{Prefix: prefix("10.0.0.0/16"), Sizes: prefixes.Sizes{Shortest: 20, Longest: 24}}); err != nil {
		t.Fatal(err)
	}
	must(of.Assign(ctx, prefixes.Request{Owner: "a", Pool: prefix("10.0.0.0/16"), Bits: 24}))(t)
	must(of.Assign(ctx, prefixes.Request{Owner: "b", Pool: prefix("10.0.0.0/16"), Bits: 20}))(t)
	c := metrics.NewPrefixes("nets", "blue", of)
	pool := func(state string) string { return "kind=prefixes,pool=10.0.0.0/16,space=blue,state=" + state }
	got := scrape(t, c)
	want(t, got, "pool_count", map[string]float64{pool("used"): 17, pool("reserved"): 0, pool("free"): 239})
	want(t, got, "pool_largest_free_prefix_length", map[string]float64{"kind=prefixes,pool=10.0.0.0/16,space=blue": 17})
	want(t, got, "scrape_success", map[string]float64{"kind=prefixes,space=blue": 1})
	sums(t, got)
	var err error
	for i := 0; err == nil; i++ {
		_, err = of.Assign(ctx, prefixes.Request{Owner: fmt.Sprint("n", i), Pool: prefix("10.0.0.0/16"), Bits: 20})
		c.Observe(err)
	}
	got = scrape(t, c)
	if n := values(got["ipalloc_shortages_total"])["family=4,kind=prefixes,pool=10.0.0.0/16,reason=full,space=blue"]; n != 1 {
		t.Errorf("%v: %v", err, values(got["ipalloc_shortages_total"]))
	}
	want(t, got, "assign_failures_total", map[string]float64{"kind=prefixes,reason=full,space=blue": 1})
}

// The sets of a network of hostlocal have them too: excluded addresses and gateways are reserved unless they are held.
func TestHostLocal(t *testing.T) {
	ctx := t.Context()
	sets := must(hostlocal.Canonical([]hostlocal.RangeSet{{{Subnet: prefix("10.1.0.0/29"), Exclude: []netip.Prefix{prefix("10.1.0.4/31")}}}}))(t)
	e := must(hostlocal.New(store.NewMemory(), hostlocal.Config{Network: "net", Sets: sets}))(t)
	c := metrics.NewHostLocal("net", e, sets)
	for i := 0; ; i++ {
		_, err := e.Add(ctx, hostlocal.Attachment{Container: fmt.Sprint("c", i), Interface: "eth0"})
		c.Observe(err)
		if errors.Is(err, ipalloc.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	pool := func(state string) string { return "kind=hostlocal,pool=" + sets[0].String() + ",state=" + state }
	got := scrape(t, c)
	want(t, got, "pool_count", map[string]float64{pool("used"): 3, pool("reserved"): 3, pool("free"): 0})
	want(t, got, "assign_failures_total", map[string]float64{"kind=hostlocal,reason=full": 1})
	sums(t, got)
}

// What is kept is counted, whether its handle has it or not.
func TestKept(t *testing.T) {
	_, db := newEngine(t, store.NewMemory(), "10.0.0.0/24")
	k := must(kept.New(db, alloc.VirtualOwner("dhcp"), ipset.Options{}))(t)
	for i, a := range []string{"10.0.0.7", "10.0.0.9"} {
		if err := k.Keep(t.Context(), netip.MustParseAddr(a), fmt.Sprint("mac", i)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, scrape(t, metrics.NewKept("pods", "", k)), "kept_addresses", map[string]float64{"": 2})
}

// A call that the store does not answer shows while it waits.
func TestInFlight(t *testing.T) {
	inner := &slow{Store: store.NewMemory(), begun: make(chan struct{}), end: make(chan struct{})}
	db := metrics.NewStore("pods", inner)
	done := make(chan error)
	for range 2 {
		go func() {
			_, err := db.Get(t.Context(), nil, "a")
			done <- err
		}()
		<-inner.begun
	}
	time.Sleep(time.Millisecond)
	got := scrape(t, db)
	want(t, got, "store_in_flight", map[string]float64{"op=commit": 0, "op=get": 2, "op=list": 0})
	if old := values(got["ipalloc_store_oldest_in_flight_seconds"]); old["op=get"] < 0.001 || old["op=list"] != 0 {
		t.Errorf("%v", old)
	}
	close(inner.end)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	want(t, scrape(t, db), "store_oldest_in_flight_seconds", map[string]float64{"op=commit": 0, "op=get": 0, "op=list": 0})
}

// slow is a store whose reads wait.
type slow struct {
	store.Store
	begun, end chan struct{}
}

func (s *slow) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	s.begun <- struct{}{}
	<-s.end
	return s.Store.Get(ctx, dst, keys...)
}
