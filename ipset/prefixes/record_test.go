package prefixes

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// allocator returns a new allocator on a store.
func allocator(t *testing.T, s store.Store) *Allocator {
	t.Helper()
	a, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// put writes records behind the allocator's back.
func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
}

// TestBounds: owners and attributes of the greatest length, pools of the shortest and longest lengths, survive a round trip by
// another allocator.
func TestBounds(t *testing.T) {
	owner, attributes := strings.Repeat("o", MaxOwner), strings.Repeat("a", MaxAttributes)
	for _, pool := range []Pool{{prefix("0.0.0.0/0"), Sizes{1, 32}}, {prefix("10.0.0.0/31"), Sizes{32, 32}}, {prefix("::/0"), Sizes{1, 127}}, {prefix("fd00::/1"), Sizes{2, 128}}} {
		if pool.Prefix = pool.Prefix.Masked(); pool.Prefix.Bits() == 1 {
			pool.Prefix = prefix("8000::/1")
		}
		s := store.NewMemory()
		if err := allocator(t, s).AddPool(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		for _, bits := range []int{pool.Sizes.Shortest, pool.Sizes.Longest} {
			h, err := allocator(t, s).Allocate(t.Context(), Request{Pool: pool.Prefix, Owner: owner, Bits: bits, Attributes: attributes})
			if pool.Sizes.Shortest == 32 && errors.Is(err, ipalloc.ErrFull) {
				continue
			}
			if err != nil {
				t.Fatalf("%+v, /%d: %v", pool, bits, err)
			}
			got, err := allocator(t, s).Get(t.Context(), h.Prefix)
			if err != nil || got != h || got.Owner != owner || got.Attributes != attributes {
				t.Errorf("%+v, /%d: %v", pool, bits, err)
			}
			if _, err := allocator(t, s).SetAttributes(t.Context(), h.Prefix, owner, attributes[1:]+"b"); err != nil {
				t.Error(err)
			}
			if held, err := allocator(t, s).Owned(t.Context(), owner); err != nil || len(held) == 0 || held[len(held)-1].Attributes == attributes {
				t.Errorf("%+v, /%d: %d held, %v", pool, bits, len(held), err)
			}
		}
		if rep, err := allocator(t, s).Check(t.Context()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("%+v: %+v, %v", pool, rep, err)
		}
		if _, err := allocator(t, s).ReleaseByOwner(t.Context(), owner); err != nil || len(records(t, s)) != 1 {
			t.Errorf("%+v: %v, %d records left", pool, err, len(records(t, s)))
		}
	}
}

// TestKeysCutShort: a key that names nothing is damage to Check and to the calls that list it, and Repair removes it or leaves
// everything as it is.
func TestKeysCutShort(t *testing.T) {
	s, _ := furnished(t)
	for _, rec := range records(t, s) {
		for n := 1; n < len(rec.Key); n++ {
			key := rec.Key[:n]
			s, a := furnished(t)
			put(t, s, key, rec.Value)
			rep, err := a.Check(t.Context())
			if err != nil || !slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool { return p.Key == key }) {
				t.Fatalf("%q: %v, %v", key, rep, err)
			}
			if strings.HasPrefix(key, kindHolding) {
				if err := drain(allocator(t, s).All(t.Context(), netip.Prefix{})); !errors.Is(err, ipalloc.ErrCorrupt) {
					t.Errorf("%q: %v", key, err)
				}
			}
			if _, err := a.Repair(t.Context()); err != nil && !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("%q: %v", key, err)
			}
			if _, err := a.Get(t.Context(), prefix("10.0.0.0/20")); err != nil {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
	for _, id := range []string{"", "4", "4\x0a", "4\x0a\x00\x00\x00", "4\x0a\x00\x00\x00\x08\x00", "5\x0a\x00\x00\x00\x08", "6\x0a\x00\x00\x00\x08"} {
		if p, ok := parseHoldingKey(kindHolding + id); ok {
			t.Errorf("%q is %v", id, p)
		}
	}
}

// TestDamagedEntries: a damaged record of the index, of the pages or of a holding fails the calls that read it, and an index entry
// of another owner's prefix releases nothing.
func TestDamagedEntries(t *testing.T) {
	ctx := t.Context()
	at := prefix("10.0.0.0/20")
	byOwner := func(a *Allocator) error { return second(a.ReleaseByOwner(ctx, "owner1")) }
	byOther := func(a *Allocator) error { return second(a.ReleaseByOwner(ctx, "owner3")) }
	owned := func(a *Allocator) error { return second(a.Owned(ctx, "owner1")) }
	assign := func(a *Allocator) error {
		return second(a.Assign(ctx, Request{Pool: prefix("10.0.0.0/16"), Owner: "owner1", Bits: 20}))
	}
	utilization := func(a *Allocator) error { return second(a.Utilization(ctx, prefix("10.0.0.0/16"))) }
	levels := func(a *Allocator) error { return second(a.Levels(ctx, prefix("10.0.0.0/8"))) }
	tree := func(a *Allocator) error { return second(a.ReleaseTree(ctx, prefix("10.0.0.0/16"), "owner0")) }
	get := func(a *Allocator) error { return second(a.Get(ctx, at)) }
	entry, root := ownerKey("owner1", at), tree16.key()
	for _, c := range []struct {
		name, key, value string
		calls            []func(*Allocator) error
	}{
		{"entry without a value", entry, "", []func(*Allocator) error{byOwner, owned, assign}},
		{"longer entry", entry, "\x10\x00", []func(*Allocator) error{byOwner, owned, assign}},
		{"key of an entry cut short", kindOwner + "owner1\x00", "\x10", []func(*Allocator) error{owned}},
		{"key of an entry cut short", kindOwner + "owner3\x00", "\x10", []func(*Allocator) error{byOther}},
		{"page", root, "\x01", []func(*Allocator) error{utilization, levels, assign}},
		{"key of a page cut short", kindPage + "4\x0a\x00\x00\x00\x10", "\x01", []func(*Allocator) error{utilization, levels}},
		{"holding", holdingKey(at), "\x01", []func(*Allocator) error{byOwner, owned, levels, tree, get}},
		{"key of a holding cut short", kindHolding + "4\x0a\x00\x00\x01", "\x01", []func(*Allocator) error{levels, tree}},
	} {
		for i, call := range c.calls {
			s, _ := furnished(t)
			put(t, s, c.key, c.value)
			before := fmt.Sprint(records(t, s))
			if err := call(allocator(t, s)); !errors.Is(err, ipalloc.ErrCorrupt) || fmt.Sprint(records(t, s)) != before {
				t.Errorf("%s, call %d: %v", c.name, i, err)
			}
		}
	}

	s, _ := furnished(t)
	put(t, s, ownerKey("nobody", at), "\x10")
	released, err := allocator(t, s).ReleaseByOwner(ctx, "nobody")
	if err != nil || len(released) > 0 {
		t.Errorf("an index entry alone: released %v, %v", released, err)
	}
	if h, err := allocator(t, s).Get(ctx, at); err != nil || h.Owner != "owner1" {
		t.Errorf("%v, %v", h, err)
	}
}

// tree16 is the first page of 10.0.0.0/16.
var tree16 = tree{pool: prefix("10.0.0.0/16")}.root()

// TestPoolsOfAHolding: the lengths of the pools that a holding is in ascend, and none but that of a whole root pool is its own.
func TestPoolsOfAHolding(t *testing.T) {
	for _, c := range []struct {
		above string
		good  bool
	}{
		{"\x08", true}, {"\x08\x10", true}, {"\x00\x08\x13", true}, {"\x14", true},
		{"", false}, {"\x08\x08", false}, {"\x10\x08", false}, {"\x08\x14", false}, {"\x15", false}, {"\x08\x10\x10", false},
	} {
		r := record{Holding{Owner: "o"}, c.above}
		w := wire.Write(nil)
		r.code(w)
		got, err := decodeHolding(prefix("10.0.0.0/20"), string(w.B))
		if c.good != (err == nil) || !c.good && !errors.Is(err, ipalloc.ErrCorrupt) || c.good && got.Level != len(c.above) {
			t.Errorf("%q: %+v, %v", c.above, got, err)
		}
	}
}

// TestChildrenOfAHolding: the lengths of a holding's children are longer than its own, and a whole root pool has none.
func TestChildrenOfAHolding(t *testing.T) {
	for _, c := range []struct {
		above    string
		children Sizes
		good     bool
	}{
		{"\x08", Sizes{21, 32}, true}, {"\x14", Sizes{}, true},
		{"\x08", Sizes{20, 32}, false}, {"\x08", Sizes{21, 33}, false}, {"\x08", Sizes{22, 21}, false}, {"\x14", Sizes{21, 32}, false},
	} {
		r := record{Holding{Owner: "o", Children: c.children}, c.above}
		w := wire.Write(nil)
		r.code(w)
		if _, err := decodeHolding(prefix("10.0.0.0/20"), string(w.B)); c.good != (err == nil) || !c.good && !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%+v in %q: %v", c.children, c.above, err)
		}
	}
}

// TestOwnersOfAHolding: a record without an owner, or with more than one can have, is damaged.
func TestOwnersOfAHolding(t *testing.T) {
	for _, c := range []struct {
		owner, attributes int
		good              bool
	}{{1, 0, true}, {MaxOwner, MaxAttributes, true}, {0, 0, false}, {MaxOwner + 1, 0, false}, {1, MaxAttributes + 1, false}} {
		r := record{Holding{Owner: strings.Repeat("o", c.owner), Attributes: strings.Repeat("a", c.attributes)}, "\x08"}
		w := wire.Write(nil)
		r.code(w)
		if _, err := decodeHolding(prefix("10.0.0.0/20"), string(w.B)); c.good != (err == nil) || !c.good && !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("an owner of %d bytes and attributes of %d: %v", c.owner, c.attributes, err)
		}
	}
}

// TestPageOfHalfAddresses: in a page whose slots are smaller than an address, a prefix takes whole addresses.
func TestPageOfHalfAddresses(t *testing.T) {
	for bits := 24; bits <= 31; bits++ {
		pool := netip.PrefixFrom(prefix("10.0.0.0/24").Addr(), bits)
		id := tree{pool: pool}.root()
		of := max(bits+pageBits-32, 0) // log2 of the slots of an address
		for order := range pageBits {
			for slot := 0; slot < 64; slot += 1 << order {
				var p page
				if !p.hold(slot, order) {
					t.Fatal(slot, order)
				}
				_, err := decodePage(p.value(), id)
				if good := order >= of; good != (err == nil) || !good && !errors.Is(err, ipalloc.ErrCorrupt) {
					t.Errorf("/%d: 2^%d slots from %d: %v", bits, order, slot, err)
				}
			}
		}
	}
}

// TestRoomSaturates: a number of prefixes that does not fit is the greatest there is.
func TestRoomSaturates(t *testing.T) {
	oneOfEach := map[int]int{} // 2^64-1 of length 64 in all
	for l := 1; l <= 64; l++ {
		oneOfEach[l] = 1
	}
	for _, c := range []struct {
		free   map[int]int
		length int
		want   uint64
	}{
		{map[int]int{1: 1}, 64, 1 << 63}, {map[int]int{1: 1, 2: 1}, 64, 3 << 62}, {map[int]int{1: 1, 2: 2}, 64, math.MaxUint64},
		{map[int]int{1: 2}, 64, math.MaxUint64}, {map[int]int{0: 1}, 64, math.MaxUint64}, {map[int]int{0: 1}, 63, 1 << 63},
		{map[int]int{1: 1, 64: 1}, 64, 1<<63 + 1}, {map[int]int{1: 1, 2: 1, 3: 1, 4: 2}, 64, math.MaxUint64}, {map[int]int{65: 1}, 64, 0},
		{oneOfEach, 64, math.MaxUint64},
	} {
		var u Utilization
		for l, n := range c.free {
			u.Free[l] = n
		}
		if n := u.Room(c.length); n != c.want {
			t.Errorf("%v, /%d: %d, want %d", c.free, c.length, n, c.want)
		}
	}
}

// TestErrorsNameTheRecord: an error about a damaged record names the prefix of the record, and any other that of the call.
func TestErrorsNameTheRecord(t *testing.T) {
	at := prefix("10.0.0.0/20")
	for _, c := range []struct {
		name, key, value string
		call             func(a *Allocator) error
		want             error
		prefix, pool     netip.Prefix
	}{
		{"a damaged holding", holdingKey(at), "\x01", func(a *Allocator) error { _, err := a.Path(t.Context(), prefix("10.0.0.0/32")); return err }, ipalloc.ErrCorrupt, at, netip.Prefix{}},
		{"another version", holdingKey(at), "\x02", func(a *Allocator) error {
			_, err := a.Allocate(t.Context(), Request{Pool: at, Owner: "o", Bits: 28})
			return err
		}, ipalloc.ErrVersion, at, netip.Prefix{}},
		{"no holding", "Z", "", func(a *Allocator) error { _, err := a.Get(t.Context(), prefix("10.9.0.0/16")); return err }, ipalloc.ErrNotFound, prefix("10.9.0.0/16"), netip.Prefix{}},
		{"no room", "Z", "", func(a *Allocator) error { _, err := a.Fits(t.Context(), prefix("10.0.0.0/8"), 25); return err }, ipalloc.ErrOutOfRange, netip.Prefix{}, prefix("10.0.0.0/8")},
	} {
		s, _ := furnished(t)
		put(t, s, c.key, c.value)
		a := allocator(t, s)
		var e *ipalloc.Error
		if err := c.call(a); !errors.As(err, &e) || !errors.Is(err, c.want) || e.Prefix != c.prefix || e.Pool != c.pool || e.Op == "" {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
}

// TestBytes pins the bytes of the records: a released form may change only under another version.
func TestBytes(t *testing.T) {
	s := store.NewMemory()
	a := allocator(t, s)
	for _, pool := range []Pool{{prefix("10.0.0.0/8"), Sizes{9, 32}}, {prefix("fd00::/40"), Sizes{41, 128}}} {
		if err := a.AddPool(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Request{
		{Pool: prefix("10.0.0.0/8"), Owner: "region", Bits: 16, Children: Sizes{20, 32}, Attributes: "eu"},
		{Pool: prefix("10.0.0.0/16"), Owner: strings.Repeat("n", 130), Bits: 24},
		{Pool: prefix("fd00::/40"), Owner: "six", Bits: 128},
	} {
		if _, err := a.Allocate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("testdata/records.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range records(t, s) {
		fmt.Fprintf(&got, "%x %x\n", r.Key, r.Value)
	}
	if got.String() != string(file) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), file)
	}
	old := store.NewMemory()
	for line := range strings.Lines(string(file)) {
		var key, value []byte
		if _, err := fmt.Sscanf(line, "%x %x", &key, &value); err != nil {
			t.Fatal(err)
		}
		put(t, old, string(key), string(value))
	}
	if rep, err := allocator(t, old).Check(t.Context()); err != nil || len(rep.Problems) > 0 || rep.Holdings != 3 || rep.Pools != 2 {
		t.Errorf("%+v, %v", rep, err)
	}
}
