package nodeipam

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/selector"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what, op string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Op: op, Is: is, Field: field, Err: err})
	}
	refuseConfig(t, add)
	refuseNodes(t, add)
	refusePools(t, add)
	refuseEntries(t, add)
	refuseChanges(t, add)
	refusal.Check(t, "nodeipam", rows)
}

type addRow func(call, what, op string, is error, field string, err error)

func refused(t *testing.T, c Config) *Allocator {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func oneSlot(pool string) Config {
	return Config{Slots: []Slot{{Bits: 24, Pools: []netip.Prefix{netip.MustParsePrefix(pool)}}}}
}

func refuseConfig(t *testing.T, add addRow) {
	p := netip.MustParsePrefix
	pools := func(ps ...netip.Prefix) Config { return Config{Slots: []Slot{{Bits: 24, Pools: ps}}} }
	for field, c := range map[string]Config{
		"Slots":             {},
		"Slots[0].Pools[0]": pools(netip.Prefix{}),
		"Slots[0].Bits":     {Slots: []Slot{{Bits: 33, Pools: []netip.Prefix{p("10.0.0.0/16")}}}},
		"Reserved[0]":       {Slots: oneSlot("10.0.0.0/16").Slots, Reserved: []netip.Prefix{{}}},
		"Families":          {Slots: oneSlot("10.0.0.0/16").Slots, Families: []Family{"IPv4"}},
		"Families[0]":       {ByLabels: true, Families: []Family{"IPv5"}},
	} {
		_, err := New(c)
		add("New", field, "new", ipalloc.ErrInvalid, field, err)
	}
	_, err := New(pools(p("10.0.0.0/16"), p("10.0.0.0/17")))
	add("New", "overlap", "new", ipalloc.ErrExists, "Slots[0]", err)
	for field, opt := range map[string]Option{"LowestFirst": LowestFirst(), "OnChange": OnChange(func(Change) {})} {
		_, err := New(oneSlot("10.0.0.0/16"), opt, opt)
		add("New", "twice", "new", ipalloc.ErrInvalid, field, err)
		_, err = Restore(nil, opt, opt)
		add("Restore", "twice", "restore", ipalloc.ErrInvalid, field, err)
	}
	a := refused(t, oneSlot("10.0.0.0/16"))
	data, err := a.MarshalBinary()
	add("Allocator.MarshalBinary", "never", "", nil, "", err)
	for i := range data {
		_, err := Restore(data[:i])
		add("Restore", "cut", "restore", ipalloc.ErrCorrupt, "", err)
	}
	a.terminating++
	add("Allocator.Check", "a wrong count", "check", ipalloc.ErrCorrupt, "", a.Check())
}

func refuseNodes(t *testing.T, add addRow) {
	p := netip.MustParsePrefix
	a := refused(t, oneSlot("10.0.0.0/24"))
	_, err := a.Allocate(Node{})
	add("Allocator.Allocate", "no name", "allocate", ipalloc.ErrInvalid, "Name", err)
	add("Allocator.Occupy", "no name", "occupy", ipalloc.ErrInvalid, "Name", a.Occupy(Node{}))
	add("Allocator.Occupy", "none", "occupy", ipalloc.ErrInvalid, "Prefixes", a.Occupy(Node{Name: "a"}))
	for what, q := range map[string]netip.Prefix{"zero": {}, "host bits": p("10.0.0.1/24"), "4-in-6": p("::ffff:10.0.0.0/120")} {
		add("Allocator.Occupy", what, "occupy", ipalloc.ErrInvalid, "Prefixes[0]", a.Occupy(Node{Name: "a", Prefixes: []netip.Prefix{q}}))
		add("Allocator.Reserve", what, "reserve", ipalloc.ErrInvalid, "prefix", a.Reserve(q))
		add("Allocator.Unreserve", what, "unreserve", ipalloc.ErrInvalid, "prefix", a.Unreserve(q))
	}
	add("Allocator.Occupy", "elsewhere", "occupy", ipalloc.ErrOutOfRange, "Prefixes[0]", a.Occupy(Node{Name: "a", Prefixes: []netip.Prefix{p("10.1.0.0/24")}}))
	add("Allocator.Unreserve", "none", "unreserve", ipalloc.ErrNotFound, "", a.Unreserve(p("10.0.0.0/24")))
	if _, err := a.Allocate(Node{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	add("Allocator.Occupy", "taken", "occupy", ipalloc.ErrOccupied, "Prefixes[0]", a.Occupy(Node{Name: "b", Prefixes: []netip.Prefix{p("10.0.0.0/24")}}))
	_, err = a.Allocate(Node{Name: "b"})
	add("Allocator.Allocate", "full", "allocate", ipalloc.ErrFull, "Slots[0]", err)
	l := refused(t, Config{ByLabels: true})
	_, err = l.Allocate(Node{Name: "a"})
	add("Allocator.Allocate", "no entry", "allocate", ipalloc.ErrNotFound, "", err)
}

func refusePools(t *testing.T, add addRow) {
	p := netip.MustParsePrefix
	a, l := refused(t, oneSlot("10.0.0.0/24")), refused(t, Config{ByLabels: true})
	pool, none := p("10.0.0.0/24"), p("10.9.0.0/24")
	add("Allocator.AddPool", "slot", "add pool", ipalloc.ErrInvalid, "slot", a.AddPool(1, none))
	add("Allocator.AddPool", "zero", "add pool", ipalloc.ErrInvalid, "pool", a.AddPool(0, netip.Prefix{}))
	around := netip.PrefixFrom(pool.Addr(), pool.Bits()-1).Masked()
	add("Allocator.AddPool", "around", "add pool", ipalloc.ErrExists, "", a.AddPool(0, around))
	add("Allocator.AddPool", "labels", "add pool", ipalloc.ErrMismatch, "", l.AddPool(0, pool))
	add("Allocator.GrowPool", "none", "grow pool", ipalloc.ErrNotFound, "", a.GrowPool(none, p("10.9.0.0/16")))
	add("Allocator.GrowPool", "elsewhere", "grow pool", ipalloc.ErrInvalid, "to", a.GrowPool(pool, none))
	add("Allocator.GrowPool", "zero", "grow pool", ipalloc.ErrInvalid, "to", a.GrowPool(pool, netip.Prefix{}))
	add("Allocator.DrainPool", "none", "drain pool", ipalloc.ErrNotFound, "", a.DrainPool(none, true))
	add("Allocator.DrainPool", "none", "undrain pool", ipalloc.ErrNotFound, "", a.DrainPool(none, false))
	add("Allocator.RemovePool", "none", "remove pool", ipalloc.ErrNotFound, "", a.RemovePool(none))
	_, _ = a.Allocate(Node{Name: "a"})
	add("Allocator.RemovePool", "in use", "remove pool", ipalloc.ErrInUse, "", a.RemovePool(pool))
}

func refuseEntries(t *testing.T, add addRow) {
	p := netip.MustParsePrefix
	a, l := refused(t, oneSlot("10.0.0.0/24")), refused(t, Config{ByLabels: true, Families: []Family{"IPv4"}})
	right := Entry{Name: "x", IPv4: p("10.0.0.0/24"), HostBits: 8}
	for field, spoil := range map[string]func(*Entry){
		"Name":        func(e *Entry) { e.Name = "" },
		"IPv4":        func(e *Entry) { e.IPv4 = p("10.0.0.1/24") },
		"IPv6":        func(e *Entry) { e.IPv6 = p("10.0.0.0/24") },
		"HostBits":    func(e *Entry) { e.HostBits = -1 },
		"MaskIPv4":    func(e *Entry) { e.MaskIPv4 = 23 },
		"Selector[0]": func(e *Entry) { e.Selector = make(selector.Selector, 1) },
	} {
		e := right
		spoil(&e)
		add("Allocator.AddEntry", field, "add entry", ipalloc.ErrInvalid, field, l.AddEntry(e))
	}
	add("Allocator.AddEntry", "slots", "add entry", ipalloc.ErrMismatch, "", a.AddEntry(right))
	if err := l.AddEntry(right); err != nil {
		t.Fatal(err)
	}
	other := right
	other.HostBits = 7
	add("Allocator.AddEntry", "another", "add entry", ipalloc.ErrExists, "HostBits", l.AddEntry(other))
	_, err := l.DeleteEntry("y")
	add("Allocator.DeleteEntry", "none", "delete entry", ipalloc.ErrNotFound, "", err)
	_, err = a.DeleteEntry("x")
	add("Allocator.DeleteEntry", "slots", "delete entry", ipalloc.ErrMismatch, "", err)
}

// A call that only the other policy has names the allocator's policy.
func TestRefusalNamesThePolicy(t *testing.T) {
	s, l := refused(t, oneSlot("10.0.0.0/24")), refused(t, Config{ByLabels: true})
	_, err := s.DeleteEntry("x")
	for policy, errs := range map[string][]error{
		"slots":  {err, s.AddEntry(Entry{Name: "e", IPv4: netip.MustParsePrefix("10.1.0.0/16"), HostBits: 8}), s.Apply(Change{Op: OpDeleteEntry, Entry: "x"})},
		"labels": {l.AddPool(0, netip.MustParsePrefix("10.1.0.0/16")), l.Apply(Change{Op: OpRemovePool, Prefix: netip.MustParsePrefix("10.1.0.0/16")})},
	} {
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), policy) {
				t.Errorf("%v does not name %s", err, policy)
			}
		}
	}
}

func refuseChanges(t *testing.T, add addRow) {
	a, l := refused(t, oneSlot("10.0.0.0/24")), refused(t, Config{ByLabels: true})
	add("Allocator.Apply", "kind", "apply", ipalloc.ErrVersion, "", a.Apply(Change{Op: 99}))
	add("Allocator.Apply", "prefix", "apply", ipalloc.ErrCorrupt, "", a.Apply(Change{Op: OpReserve}))
	add("Allocator.Apply", "nodes", "apply", ipalloc.ErrCorrupt, "Nodes[0]", a.Apply(Change{Op: OpOccupy, Nodes: []Node{{Name: "a", Prefixes: make([]netip.Prefix, 1)}}}))
	add("Allocator.Apply", "pools", "apply", ipalloc.ErrInvalid, "Pools", a.Apply(Change{Op: OpDrainPool, Prefix: netip.MustParsePrefix("10.0.0.0/24")}))
	add("Allocator.Apply", "entries of slots", "apply", ipalloc.ErrMismatch, "", a.Apply(Change{Op: OpDeleteEntry, Entry: "x"}))
	add("Allocator.Apply", "pools of labels", "apply", ipalloc.ErrMismatch, "", l.Apply(Change{Op: OpDrainPool, Prefix: netip.MustParsePrefix("10.0.0.0/24")}))
}
