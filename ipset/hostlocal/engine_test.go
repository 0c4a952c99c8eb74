package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var ctx = context.Background()

// subnets returns a set of whole subnets.
func subnets(texts ...string) (s RangeSet) {
	for _, text := range texts {
		s = append(s, Range{Subnet: netip.MustParsePrefix(text)})
	}
	return s
}

func addrs(texts ...string) (as []netip.Addr) {
	for _, text := range texts {
		as = append(as, netip.MustParseAddr(text))
	}
	return as
}

// holds returns a holding of a container's eth0.
func holds(container string, texts ...string) Holding {
	return Holding{Attachment: eth0(container), Addresses: addrs(texts...)}
}

// world is a store and the engine on it now.
type world struct {
	testing.TB
	store store.Store
	*Engine
}

func newWorld(t testing.TB, sets ...RangeSet) *world {
	t.Helper()
	w := &world{TB: t, store: store.NewMemory()}
	w.open(Config{Sets: sets})
	t.Cleanup(w.check)
	return w
}

// open takes another engine on the same store.
func (w *world) open(c Config) {
	w.Helper()
	if c.Network == "" {
		c.Network = "net"
	}
	e, err := New(w.store, c)
	if err != nil {
		w.Fatal(err)
	}
	w.Engine = e
}

func (w *world) check() {
	w.Helper()
	if err := w.Check(ctx); err != nil {
		w.Error(err)
	}
}

// eth0 is the first interface of a container.
func eth0(container string) Attachment { return Attachment{container, "eth0"} }

// add expects addresses, or the sentinel of an error.
func (w *world) add(who Attachment, requested []netip.Addr, want ...any) {
	w.Helper()
	got, err := w.Add(ctx, who, requested...)
	if invariant.Enabled {
		w.check()
	}
	if sentinel, ok := want[0].(error); ok {
		if !errors.Is(err, sentinel) || own(err) == nil || got != nil {
			w.Fatalf("Add(%s, %v) = %v, %v, want %v", who, requested, got, err, sentinel)
		}
		return
	}
	var texts []any
	for _, a := range got {
		texts = append(texts, a.Prefix.Addr().String())
	}
	if err != nil || !slices.Equal(texts, want) {
		w.Fatalf("Add(%s, %v) = %v, %v, want %v", who, requested, got, err, want)
	}
}

func (w *world) del(who Attachment, want ...string) {
	w.Helper()
	got, err := w.Del(ctx, who)
	if invariant.Enabled {
		w.check()
	}
	if err != nil || !slices.Equal(got, addrs(want...)) {
		w.Fatalf("Del(%s) = %v, %v, want %v", who, got, err, want)
	}
}

// load imports attachments that hold one address each, and a cursor of set 0 if it is not empty.
func (w *world) load(cursor string, held map[string]Attachment) {
	w.Helper()
	s := State{Cursors: map[int]netip.Addr{}}
	for a, who := range held {
		s.Holdings = append(s.Holdings, Holding{Attachment: who, Addresses: addrs(a)})
	}
	if cursor != "" {
		s.Cursors[0] = netip.MustParseAddr(cursor)
	}
	if left, err := w.Import(ctx, s); err != nil || len(left) > 0 {
		w.Fatal(left, err)
	}
}

// others gives each address to an attachment of its own.
func others(as ...string) map[string]Attachment {
	held := map[string]Attachment{}
	for i, a := range as {
		held[a] = eth0(fmt.Sprint("other", i))
	}
	return held
}

// TestRoundRobin is host-local's table of where the next address comes from.
func TestRoundRobin(t *testing.T) {
	for i, c := range []struct {
		subnets []string
		held    []string
		last    string
		want    any
	}{
		{[]string{"10.0.0.0/29"}, nil, "", "10.0.0.2"},
		{[]string{"2001:db8:1::/64"}, nil, "", "2001:db8:1::2"},
		{[]string{"10.0.0.0/30"}, nil, "", "10.0.0.2"},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.2"}, "", "10.0.0.3"},
		{[]string{"10.0.0.0/29"}, nil, "10.0.0.5", "10.0.0.6"},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.4", "10.0.0.5"}, "10.0.0.3", "10.0.0.6"},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.6"}, "10.0.0.5", "10.0.0.2"},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.2"}, "10.0.0.128", "10.0.0.3"},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, "10.0.0.3", "10.0.0.3"},
		{[]string{"10.0.0.0/30", "10.0.1.0/30"}, nil, "", "10.0.0.2"},
		{[]string{"10.0.0.0/30", "10.0.1.0/30"}, nil, "10.0.0.2", "10.0.1.2"},
		{[]string{"10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"}, nil, "10.0.2.2", "10.0.0.2"},
		// The last address of all has none after it.
		{[]string{"255.255.255.252/30", "10.0.0.0/30"}, nil, "255.255.255.254", "10.0.0.2"},
		{[]string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"}, nil, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
		{[]string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"}, nil, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		// And of when there is none.
		{[]string{"10.0.0.0/30"}, []string{"10.0.0.2"}, "", ipalloc.ErrFull},
		{[]string{"10.0.0.0/29"}, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, "", ipalloc.ErrFull},
		{[]string{"10.0.0.0/30", "10.0.1.0/30"}, []string{"10.0.0.2", "10.0.1.2"}, "", ipalloc.ErrFull},
		{[]string{"10.0.0.0/30", "10.0.1.0/30"}, []string{"10.0.0.2", "10.0.1.2"}, "10.0.1.2", ipalloc.ErrFull},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newWorld(t, subnets(c.subnets...))
			w.load(c.last, others(c.held...))
			w.add(eth0("id"), nil, c.want)
			if status := w.Status(ctx); c.want == error(ipalloc.ErrFull) && !errors.Is(status, ipalloc.ErrFull) {
				t.Fatalf("status %v", status)
			}
		})
	}
}

// TestIterator takes and releases a whole set from several places, as host-local's iterator goes.
func TestIterator(t *testing.T) {
	for _, c := range []struct {
		last string
		want []string
	}{
		{"", []string{"192.168.1.2", "192.168.1.3", "192.168.1.4", "192.168.1.5", "192.168.1.6"}},
		{"192.168.1.6", []string{"192.168.1.2", "192.168.1.3", "192.168.1.4", "192.168.1.5", "192.168.1.6"}},
		{"192.168.1.3", []string{"192.168.1.4", "192.168.1.5", "192.168.1.6", "192.168.1.2", "192.168.1.3"}},
	} {
		for _, release := range []bool{false, true} {
			w := newWorld(t, subnets("192.168.1.0/29"))
			w.load(c.last, nil)
			for i, a := range c.want {
				w.add(eth0(fmt.Sprint("c", i)), nil, a)
				if release {
					w.del(eth0(fmt.Sprint("c", i)), a)
				}
			}
			if !release {
				w.add(eth0("more"), nil, ipalloc.ErrFull)
			}
		}
	}
	// Base and broadcast addresses are handed out where a range names them.
	bounds := func(subnet, start, end string) Range {
		return Range{Subnet: netip.MustParsePrefix(subnet), First: netip.MustParseAddr(start), Last: netip.MustParseAddr(end)}
	}
	w := newWorld(t, RangeSet{bounds("192.168.1.0/30", "192.168.1.0", "192.168.1.3"), bounds("192.168.2.0/30", "192.168.2.0", "192.168.2.3")})
	for i, a := range []string{"192.168.1.0", "192.168.1.2", "192.168.1.3", "192.168.2.0", "192.168.2.2", "192.168.2.3"} {
		w.add(eth0(fmt.Sprint("c", i)), nil, a)
	}
	w.add(eth0("more"), nil, ipalloc.ErrFull)
	w = newWorld(t, RangeSet{bounds("255.255.255.252/30", "255.255.255.254", "255.255.255.255")})
	w.load("255.255.255.255", nil)
	w.add(eth0("a"), nil, "255.255.255.254")
	w.add(eth0("b"), nil, "255.255.255.255")
	w.add(eth0("c"), nil, ipalloc.ErrFull)
}

func TestRequests(t *testing.T) {
	w := newWorld(t, subnets("192.168.1.0/29"), subnets("10.1.2.0/24", "10.2.2.0/24"))
	w.add(eth0("a"), addrs("192.168.1.5"), "192.168.1.5", "10.1.2.2")
	w.add(eth0("b"), addrs("192.168.1.5"), ipalloc.ErrOccupied)
	w.add(eth0("b"), addrs("192.168.1.7"), ipalloc.ErrOutOfRange)
	w.add(eth0("b"), addrs("192.168.1.0"), ipalloc.ErrOutOfRange)
	w.add(eth0("b"), addrs("192.168.1.1"), ipalloc.ErrReserved)
	w.add(eth0("b"), addrs("192.168.1.3", "192.168.1.4"), ipalloc.ErrOutOfRange)
	w.add(eth0("b"), addrs("fd00::1"), ipalloc.ErrOutOfRange)
	w.add(eth0("b"), []netip.Addr{{}}, ipalloc.ErrInvalid)
	w.add(eth0("b"), addrs("::ffff:192.168.1.3"), ipalloc.ErrInvalid)
	// Nothing has changed: neither cursor moved, and the same request twice is one.
	w.add(eth0("b"), addrs("10.2.2.88", "10.2.2.88"), "192.168.1.2", "10.2.2.88")
	w.add(eth0("c"), nil, "192.168.1.3", "10.1.2.3")
	w.add(eth0("d"), addrs("10.2.2.1", "192.168.1.4"), ipalloc.ErrReserved)

	_, err := w.Add(ctx, eth0("d"), addrs("192.168.1.5")...)
	var in *SetError
	if e := own(err); !errors.As(err, &in) || in.Set != 0 || in.Range != -1 || in.Other != -1 || e.Holder != "a/eth0" || e.Addr.String() != "192.168.1.5" ||
		e.Name != "net" || e.Owner != "d/eth0" || e.Field != "Sets[0]" || e.Op != "add" {
		t.Fatalf("%+v", err)
	}
	if want := `hostlocal: add 192.168.1.5 for "d/eth0" in "net": Sets[0]: occupied, held by "a/eth0"`; err.Error() != want {
		t.Fatalf("%q, want %q", err, want)
	}
	if _, err = w.Add(ctx, eth0("d"), addrs("10.7.0.1", "10.7.0.2")...); !errors.As(err, &in) || in.Set != -1 || fmt.Sprint(in.Addrs) != "[10.7.0.1 10.7.0.2]" {
		t.Fatalf("%+v", err)
	}
}

// TestSecondAdd: a live attachment gets no second address of a set and keeps what it holds whatever happens.
func TestSecondAdd(t *testing.T) {
	w := newWorld(t, subnets("fd00::/64"))
	w.add(eth0("a"), nil, "fd00::2")
	w.add(eth0("a"), nil, ipalloc.ErrExists)
	w.add(eth0("a"), addrs("fd00::9"), ipalloc.ErrExists)
	w.add(Attachment{"a", "eth1"}, nil, "fd00::3")

	// The configuration becomes dual stack: the original fails and releases the live address.
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29"), subnets("fd00::/64")}})
	w.add(eth0("a"), nil, ipalloc.ErrExists)
	w.add(eth0("b"), nil, "10.0.0.2", "fd00::4")
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/29")}})
	w.add(eth0("a"), nil, "10.0.0.3")
	w.del(eth0("a"), "fd00::2", "10.0.0.3")
	w.del(eth0("a"))

	// What was recorded without interface counts for every interface.
	w.load("", map[string]Attachment{"10.0.0.6": {Container: "old"}})
	w.add(eth0("old"), nil, ipalloc.ErrExists)
	w.del(eth0("old"), "10.0.0.6")
	w.add(eth0("old"), nil, "10.0.0.4")
	w.load("", map[string]Attachment{"10.0.0.6": {Container: "old"}})
	w.del(eth0("old"), "10.0.0.4")
	w.del(Attachment{"old", "eth7"}, "10.0.0.6")
}

// TestWhichIsHeld: of several addresses that stand in the way, the error names the first
// in the order of host-local's file names, where 10.0.0.10 comes before 10.0.0.9.
func TestWhichIsHeld(t *testing.T) {
	for _, order := range [][]string{{"10.0.0.9", "10.0.0.10"}, {"10.0.0.10", "10.0.0.9"}} {
		w := newWorld(t, subnets("10.0.0.0/24"))
		if _, err := w.Import(ctx, State{Holdings: []Holding{holds("a", order...)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Add(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrExists) || own(err).Addr.String() != "10.0.0.10" {
			t.Error(err)
		}
	}
}

// TestAllOrNothing: an Add that fails in a later set leaves no trace.
func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/24"), subnets("fd00::/126"))
	w.add(eth0("a"), nil, "10.0.0.2", "fd00::2")
	w.add(eth0("b"), nil, "10.0.0.3", "fd00::3")
	before, err := w.store.(*store.Memory).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		w.add(eth0("c"), nil, ipalloc.ErrFull)
		w.add(eth0("c"), addrs("10.0.0.3"), ipalloc.ErrOccupied)
		w.add(eth0("c"), addrs("10.0.0.7", "10.0.0.8"), ipalloc.ErrFull)
	}
	if after, _ := w.store.(*store.Memory).MarshalBinary(); string(after) != string(before) {
		t.Fatal("a failing Add changed the store")
	}
	w.del(eth0("a"), "10.0.0.2", "fd00::2")
	w.add(eth0("c"), nil, "10.0.0.4", "fd00::2")
}

// TestRangesChange: what is taken is known by address, whatever the ranges were.
func TestRangesChange(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/29"))
	for i := range 5 {
		w.add(eth0(fmt.Sprint("c", i)), nil, fmt.Sprint("10.0.0.", i+2))
	}
	w.open(Config{Sets: []RangeSet{{{Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.9")}}}})
	w.add(eth0("x"), nil, "10.0.0.7")
	w.add(eth0("y"), nil, "10.0.0.8")
	w.add(eth0("z"), nil, "10.0.0.10")
	w.add(eth0("old gateway"), addrs("10.0.0.1"), "10.0.0.1")

	w.open(Config{}) // no ranges at all
	w.add(eth0("w"), nil, ipalloc.ErrInvalid)
	if err := w.Status(ctx); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Fatal(err)
	}
	if err := w.Verify(ctx, eth0("y"), addrs("10.0.0.8")...); err != nil {
		t.Fatal(err)
	}
	w.del(eth0("y"), "10.0.0.8")
	w.del(eth0("c3"), "10.0.0.5")
	if freed, err := w.GC(ctx, GCArgs{}); err != nil || len(freed) != 7 {
		t.Fatal(freed, err)
	}
}

func TestVerify(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/24"), subnets("fd00::/64"))
	w.add(eth0("a"), nil, "10.0.0.2", "fd00::2")
	w.load("", map[string]Attachment{"10.9.9.9": {Container: "old"}})
	for _, c := range []struct {
		who    Attachment
		listed []netip.Addr
		want   error
	}{
		{eth0("a"), nil, nil},
		{eth0("a"), addrs("10.0.0.2"), nil},
		{eth0("a"), addrs("fd00::2", "10.0.0.2"), nil},
		{eth0("a"), addrs("192.0.2.1", "10.0.0.2"), nil}, // another plugin's
		{eth0("a"), addrs("192.0.2.1"), ipalloc.ErrMismatch},
		{eth0("a"), addrs("10.0.0.2", "10.0.0.3"), ipalloc.ErrMismatch},
		{eth0("a"), addrs("10.0.0.2", "fd00::3"), ipalloc.ErrMismatch},
		{Attachment{"a", "eth1"}, nil, ipalloc.ErrNotFound},
		{eth0("10.0.0.2"), nil, ipalloc.ErrNotFound}, // the original finds its cursor file
		{eth0("old"), addrs("10.9.9.9"), nil},
		{eth0(""), nil, ipalloc.ErrInvalid},
	} {
		if err := w.Verify(ctx, c.who, c.listed...); !errors.Is(err, c.want) {
			t.Errorf("Verify(%s, %v): %v, want %v", c.who, c.listed, err, c.want)
		}
	}
}

func TestGC(t *testing.T) {
	w := newWorld(t, subnets("10.0.0.0/16"))
	var valid []Attachment
	for i := range 3000 { // more than one step
		who := eth0(fmt.Sprint("c", i))
		if _, err := w.Add(ctx, who); err != nil {
			t.Fatal(err)
		}
		if i%3 < 2 { // more than one page of the list
			valid = append(valid, who)
		}
	}
	db := faults.NewFaulty(w.store)
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.List && c.Nth > 10 {
			return faults.Fail(errors.New("the list does not go on"))
		}
		return faults.Outcome{}
	})
	w.store = db
	w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/16")}})
	w.load("", map[string]Attachment{"10.0.200.1": {Container: "c3"}, "10.0.200.2": {Container: "c5"}})
	freed, err := w.GC(ctx, GCArgs{Valid: valid})
	if err != nil || len(freed) != 1001 {
		t.Fatal(len(freed), err)
	}
	if err := w.Verify(ctx, Attachment{"c3", ""}, addrs("10.0.200.1")...); err != nil {
		t.Fatal("an attachment without interface whose container is valid:", err)
	}
	if freed, err = w.GC(ctx, GCArgs{Valid: valid}); err != nil || len(freed) != 0 {
		t.Fatal(len(freed), err)
	}
	if freed, err = w.GC(ctx, GCArgs{}); err != nil || len(freed) != 2001 {
		t.Fatal(len(freed), err)
	}
	if s, err := w.Export(ctx); err != nil || len(s.Holdings) != 0 {
		t.Fatal(s.Holdings, err)
	}
}

func TestLeases(t *testing.T) {
	w := newWorld(t)
	open := func(boot string, leases bool) {
		w.open(Config{Sets: []RangeSet{subnets("10.0.0.0/24")}, Boot: boot, Leases: leases})
	}
	open("", false)
	w.add(eth0("unknown"), nil, "10.0.0.2")
	open("b1", true) // what was added in an unknown boot may be alive
	w.add(eth0("a"), nil, "10.0.0.3")
	if err := w.Verify(ctx, eth0("unknown")); err != nil {
		t.Fatal(err)
	}
	open("b2", false) // without leases a reboot releases nothing
	w.add(eth0("b"), nil, "10.0.0.4")
	if err := w.Verify(ctx, eth0("a")); err != nil {
		t.Fatal(err)
	}
	w.load("", map[string]Attachment{"10.0.0.99": eth0("imported")})
	open("b2", true) // and what was added since is alive
	for _, c := range []string{"b", "imported"} {
		if err := w.Verify(ctx, eth0(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Verify(ctx, eth0("a")); !errors.Is(err, ipalloc.ErrNotFound) {
		t.Fatal(err)
	}
	w.check()
	open("b3", true)
	w.add(eth0("a"), nil, "10.0.0.5") // rested addresses first
	if s, err := w.Export(ctx); err != nil || len(s.Holdings) != 1 || fmt.Sprint(s.Holdings[0].Attachment, s.Holdings[0].Addresses) != "a/eth0 [10.0.0.5]" {
		t.Fatal(s, err)
	}
	w.check()
}

// holderOf returns which attachment holds an address, as an Export has it.
func holderOf(t testing.TB, e *Engine, a string) (who Attachment, held bool) {
	t.Helper()
	s, err := e.Export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Holdings {
		if slices.Contains(h.Addresses, netip.MustParseAddr(a)) {
			return h.Attachment, true
		}
	}
	return who, false
}
