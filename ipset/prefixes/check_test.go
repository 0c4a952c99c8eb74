package prefixes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// furnished returns a store with holdings of three levels in pools of both families.
func furnished(t *testing.T) (*store.Memory, *Allocator) {
	t.Helper()
	ctx := context.Background()
	s := store.NewMemory()
	a, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix
	for _, pool := range []Pool{{p("10.0.0.0/8"), Sizes{12, 24}}, {p("fd00::/40"), Sizes{41, 64}}} {
		if err := a.AddPool(ctx, pool); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range []Request{
		{Pool: p("10.0.0.0/8"), Bits: 16, Children: Sizes{20, 28}},
		{Pool: p("10.0.0.0/16"), Bits: 20, Children: Sizes{21, 32}},
		{Pool: p("10.0.0.0/20"), Bits: 32},
		{Pool: p("10.0.0.0/20"), Bits: 25},
		{Pool: p("10.0.0.0/16"), Bits: 27},
		{Pool: p("10.0.0.0/8"), Bits: 24},
		{Pool: p("10.0.0.0/8"), Bits: 12},
		{Pool: p("fd00::/40"), Bits: 64},
		{Pool: p("fd00::/40"), Bits: 48},
		{Pool: p("fd00::/40"), Bits: 63},
	} {
		r.Owner, r.Attributes = fmt.Sprint("owner", i%4), fmt.Sprint("a", i)
		if _, err := a.Allocate(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	return s, a
}

func records(t *testing.T, s store.Store) []store.Record {
	t.Helper()
	recs, _, err := s.List(context.Background(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		recs[i].Rev = 0
	}
	return recs
}

// Every derived record that is lost, changed or added is found, and Repair restores it. A
// holding or the root pools that cannot be read are found, and Repair touches nothing.
func TestRepair(t *testing.T) {
	ctx := context.Background()
	s, _ := furnished(t)
	whole := records(t, s)
	values := []string{"", "\x01", "\x07"}
	for _, rec := range append(whole, store.Record{Key: "Xo" + "nobody\x004\x0a\x00\x00\x00\x18"}, store.Record{Key: kindPage + "4\x0a\x00\x00\x00\x08\x01\x0a\x04\x00\x00"}) {
		for _, value := range append(values, rec.Value+"x", "deleted") {
			if value == rec.Value && rec.Value != "" {
				continue
			}
			s, a := furnished(t)
			op := store.Op{Kind: store.Put, Key: rec.Key, Value: value, Expect: store.AnyRevision}
			if value == "deleted" {
				op.Kind = store.Delete
			}
			if _, err := s.Commit(ctx, []store.Op{op}); err != nil {
				t.Fatal(err)
			}
			damaged := fmt.Sprint(records(t, s))
			if damaged == fmt.Sprint(whole) {
				continue
			}
			rep, err := a.Check(ctx)
			if err != nil {
				t.Fatalf("%q = %q: %v", rec.Key, value, err)
			}
			attributes := rec.Key[:2] == kindHolding && value == rec.Value+"x"
			if (len(rep.Problems) == 0) != attributes {
				t.Errorf("%q = %q: problems %v", rec.Key, value, rep.Problems)
			}
			_, err = a.Repair(ctx)
			switch kind := rec.Key[:2]; {
			case attributes:
			case kind == kindHolding && value == "deleted":
				// It is as if it had never been, unless others are held from it.
				if err != nil && !errors.Is(err, ipalloc.ErrCorrupt) {
					t.Errorf("%q deleted: %v", rec.Key, err)
				}
			case kind == kindHolding || kind == keyRoots:
				if !errors.Is(err, ipalloc.ErrCorrupt) || fmt.Sprint(records(t, s)) != damaged {
					t.Errorf("%q = %q: repaired, %v", rec.Key, value, err)
				}
			case err != nil || fmt.Sprint(records(t, s)) != fmt.Sprint(whole):
				t.Errorf("%q = %q: not as it was after Repair: %v\n%q\nwant\n%q", rec.Key, value, err, records(t, s), whole)
			}
			if err == nil {
				if rep, err := a.Check(ctx); err != nil || len(rep.Problems) > 0 {
					t.Errorf("%q = %q: %+v, %v after Repair", rec.Key, value, rep, err)
				}
			}
		}
	}
}

// TestRepairOfManyRecords: Repair restores all entries of the index and all pages in one round, however many are lost.
func TestRepairOfManyRecords(t *testing.T) {
	s, a := furnished(t)
	whole, lost := records(t, s), 0
	for _, rec := range whole {
		if kind := rec.Key[:2]; kind == kindOwner || kind == kindPage {
			lost++
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: rec.Key, Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lost <= 16 { // rounds that Repair begins
		t.Fatalf("%d records are derived", lost)
	}
	if _, err := a.Repair(t.Context()); err != nil || fmt.Sprint(records(t, s)) != fmt.Sprint(whole) {
		t.Errorf("%v: %q, want %q", err, records(t, s), whole)
	}
}

// Whatever record is damaged, no call hands out what is held, and none panics.
func TestDamageGivesNothingTwice(t *testing.T) {
	ctx := context.Background()
	s, _ := furnished(t)
	for _, rec := range records(t, s) {
		for cut := range len(rec.Value) + 1 {
			s, a := furnished(t)
			op := store.Op{Kind: store.Put, Key: rec.Key, Expect: store.AnyRevision}
			switch {
			case cut < len(rec.Value):
				op.Value = rec.Value[:cut]
			default:
				op.Value = rec.Value + "\x00"
			}
			held := map[netip.Prefix]bool{}
			for h, err := range a.All(ctx, netip.Prefix{}) {
				if err != nil {
					t.Fatal(err)
				}
				held[h.Prefix] = true
			}
			if _, err := s.Commit(ctx, []store.Op{op}); err != nil {
				t.Fatal(err)
			}
			a, err := New(s, Options{Attempts: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, pool := range []string{"10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/20", "fd00::/40"} {
				p := netip.MustParsePrefix(pool)
				for bits := p.Bits() + 4; bits <= p.Bits()+12; bits++ {
					h, err := a.Allocate(ctx, Request{Pool: p, Owner: "new", Bits: bits})
					if err != nil {
						continue
					}
					for other := range held {
						if other.Overlaps(h.Prefix) && other.Bits() > p.Bits() {
							t.Fatalf("%q = %q: %v was given, %v is held", rec.Key, op.Value, h.Prefix, other)
						}
					}
				}
			}
		}
	}
}

// A page below a slot that the page above calls free is damage, not room.
func TestStrayPage(t *testing.T) {
	ctx := context.Background()
	s, _ := furnished(t)
	pool := netip.MustParsePrefix("10.0.0.0/20")
	root := tree{pool: pool}.root().key()
	if _, err := s.Commit(ctx, []store.Op{{Kind: store.Delete, Key: root, Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	a, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for bits := 27; bits <= 32; bits++ {
		if h, err := a.Allocate(ctx, Request{Pool: pool, Owner: "new", Bits: bits}); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("10.0.0.0/32 is held, /%d: %v, %v", bits, h.Prefix, err)
		}
	}
	beside := prefix("10.0.0.1/32") // the stray page has room for it
	if h, err := a.Occupy(ctx, beside, Request{Pool: pool, Owner: "new"}); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%v beside a stray page: %v, %v", beside, h, err)
	}
	if _, err := a.Repair(ctx); err != nil {
		t.Fatal(err)
	}
	if h, err := a.Allocate(ctx, Request{Pool: pool, Owner: "new", Bits: 32}); err != nil || h.Prefix.String() != "10.0.0.1/32" {
		t.Errorf("after Repair: %v, %v", h, err)
	}
}

// TestReport: each kind of problem is found, alone, with the key of its record and its prefix, and the report counts what there is.
// What is damaged or in two places stops Repair, which changes nothing then; what follows from the holdings is restored.
func TestReport(t *testing.T) {
	p := netip.MustParsePrefix
	whole, _ := furnished(t)
	want := fmt.Sprint(records(t, whole))
	holding := func(at, pool netip.Prefix, above string) string {
		w := wire.Write(nil)
		(&record{Holding: Holding{Prefix: at, Owner: "other", Pool: pool}, above: above}).code(w)
		return string(w.B)
	}
	in20 := tree{pool: p("10.0.0.0/20")}.root().key()
	for name, c := range map[string]struct {
		key, value string
		remove     bool
		problems   []audit.Problem
		holdings   int
		mends      bool
	}{
		"nothing":            {key: "Z", holdings: 10, mends: true},
		"roots":              {key: keyRoots, value: "\x01", problems: []audit.Problem{}, holdings: 10},
		"holding":            {key: holdingKey(p("10.0.0.0/32")), value: "\x01", problems: []audit.Problem{{Kind: audit.Damaged, Key: holdingKey(p("10.0.0.0/32")), Prefix: p("10.0.0.0/32")}}, holdings: 9},
		"unknown key":        {key: "Xz", problems: []audit.Problem{{Kind: audit.Damaged, Key: "Xz", Prefix: netip.Prefix{}}}, holdings: 10},
		"another pool":       {key: holdingKey(p("11.0.0.0/16")), value: holding(p("11.0.0.0/16"), p("11.0.0.0/8"), "\x08"), problems: []audit.Problem{{Kind: audit.NoPool, Key: holdingKey(p("11.0.0.0/16")), Prefix: p("11.0.0.0/16")}}, holdings: 11},
		"overlapping inside": {key: holdingKey(p("10.0.0.128/26")), value: holding(p("10.0.0.128/26"), p("10.0.0.0/20"), "\x08\x10\x14"), problems: []audit.Problem{{Kind: audit.Overlapping, Key: holdingKey(p("10.0.0.128/26")), Prefix: p("10.0.0.128/26")}}, holdings: 11},
		"stale":              {key: ownerKey("nobody", p("10.0.0.0/32")), value: "\x14", problems: []audit.Problem{{Kind: audit.StaleIndex, Key: ownerKey("nobody", p("10.0.0.0/32")), Prefix: p("10.0.0.0/32")}}, holdings: 10, mends: true},
		"missing":            {key: ownerKey("owner2", p("10.0.0.0/32")), remove: true, problems: []audit.Problem{{Kind: audit.MissingIndex, Key: ownerKey("owner2", p("10.0.0.0/32")), Prefix: p("10.0.0.0/32")}}, holdings: 10, mends: true},
		"wrong":              {key: ownerKey("owner2", p("10.0.0.0/32")), value: "\x08", problems: []audit.Problem{{Kind: audit.MissingIndex, Key: ownerKey("owner2", p("10.0.0.0/32")), Prefix: p("10.0.0.0/32")}}, holdings: 10, mends: true},
		"page":               {key: in20, remove: true, problems: []audit.Problem{{Kind: audit.WrongPage, Key: in20, Prefix: p("10.0.0.0/20")}}, holdings: 10, mends: true},
	} {
		s, a := furnished(t)
		op := store.Op{Kind: store.Put, Key: c.key, Value: c.value, Expect: store.AnyRevision}
		if c.remove {
			op.Kind = store.Delete
		}
		if _, err := s.Commit(t.Context(), []store.Op{op}); err != nil {
			t.Fatal(err)
		}
		damaged := fmt.Sprint(records(t, s))
		rep, err := a.Check(t.Context())
		if err != nil || rep.Holdings != c.holdings || name != "roots" && rep.Pools != 2 {
			t.Fatalf("%s: %+v, %v", name, rep, err)
		}
		// What a holding adds to the index and to the pages is missing, too.
		got := slices.DeleteFunc(slices.Clone(rep.Problems), func(p audit.Problem) bool {
			return !c.mends && (p.Kind == audit.MissingIndex || p.Kind == audit.WrongPage || p.Kind == audit.StaleIndex || name == "roots")
		})
		if !slices.Equal(got, c.problems) && len(got)+len(c.problems) > 0 {
			t.Errorf("%s: %v, want %v", name, got, c.problems)
		}
		_, err = a.Repair(t.Context())
		after := fmt.Sprint(records(t, s))
		switch {
		case !c.mends && (!errors.Is(err, ipalloc.ErrCorrupt) || after != damaged):
			t.Errorf("%s: repaired, %v", name, err)
		case c.mends && c.key != "Z" && (err != nil || after != want):
			t.Errorf("%s: %v, not as it was", name, err)
		}
	}
}
