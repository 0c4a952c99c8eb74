package record

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/block"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// numbered returns n blocks of both families, in address order.
func numbered(n int) (blocks []netip.Prefix) {
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 64}), 26)
		if i >= n/2 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 14: byte(i)}), 122)
		}
		blocks = append(blocks, p)
	}
	return blocks
}

// TestOwnerBytes: the record of an owner has one form, and every other one is refused. Few blocks are listed, many are counted.
func TestOwnerBytes(t *testing.T) {
	for _, n := range []int{1, 2, MaxListed - 1, MaxListed, MaxListed + 1, 1 << 20} {
		o := Owned{N: n}
		if n < 100 {
			o = OwnedOf(numbered(n))
		}
		whole := string(o.Append(nil))
		if o = o.Settled(); o.Listed() != (n <= MaxListed) {
			t.Errorf("%d blocks: %+v", n, o)
		}
		got, err := DecodeOwned(store.Record{Rev: 1, Value: whole})
		if err != nil || got.N != n || !slices.Equal(got.Blocks, o.Blocks) {
			t.Errorf("%d: %+v, %v", n, got, err)
		}
		for i := range whole {
			if _, err := DecodeOwned(store.Record{Rev: 1, Value: whole[:i]}); err == nil {
				t.Errorf("%d of %d bytes are taken for %d blocks", i, len(whole), n)
			}
		}
		if _, err := DecodeOwned(store.Record{Rev: 1, Value: whole + "x"}); err == nil {
			t.Error("bytes after the blocks are passed over")
		}
		for i := range whole {
			for bit := range 8 {
				b := []byte(whole)
				b[i] ^= 1 << bit
				if got, err := DecodeOwned(store.Record{Rev: 1, Value: string(b)}); err == nil && string(got.Append(nil)) != string(b) {
					t.Fatalf("%d blocks, bit %d of byte %d: %+v", n, bit, i, got)
				}
			}
		}
	}
	twice := OwnedOf([]netip.Prefix{numbered(1)[0], numbered(1)[0]})
	for _, bad := range []string{"", "\x01", "\x02\x01", "\x01\x00", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", string(twice.Append(nil))} {
		if o, err := DecodeOwned(store.Record{Rev: 1, Value: bad}); err == nil {
			t.Errorf("%q is %+v", bad, o)
		}
	}
	if o, err := DecodeOwned(store.Record{}); o.N != 0 || err != nil {
		t.Errorf("no record: %+v, %v", o, err)
	}
}

// TestOwnerKeys: the key of a number and the keys of the blocks of an owner are told apart, whatever bytes the name and the block have.
func TestOwnerKeys(t *testing.T) {
	blocks := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.1.0/32"), netip.MustParsePrefix("fd00::/122"), netip.MustParsePrefix("fd34:3400::/64")}
	for _, name := range []string{"a", "h4\x0a\x01\x01\x01", "4aaaa", "6aaaaaaaaaaaaaaaaaaaaa", "\xff", strings.Repeat("n", 1024)} {
		o := alloc.Owner{Kind: alloc.Host, Name: name}
		if got, ok := ParseOwnerKey(OwnerKey(o)); !ok || got != o {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
		recs := []store.Record{{Key: OwnerKey(o), Value: "\x01\x80\x01"}}
		var own, had []netip.Prefix
		r := CodeRange(KindOwner, o)
		for i, p := range blocks {
			x := BlockIndex{owner: o}
			if own = append(own, p); i%2 == 1 {
				x, own, had = BlockIndex{former: block.OwnerCode(o) + "\x00"}, own[:len(own)-1], append(had, p)
			}
			for _, e := range x.Entries(nil) {
				key := string(e.AppendKey(nil, p))
				if _, ok := ParseOwnerKey(key); ok || key <= r.From || key >= r.To {
					t.Errorf("%q of %s: key %q, a number's %v, not in %+v", name, p, key, ok, r)
				}
				recs = append(recs, store.Record{Key: key, Value: IndexValue(e.Value)})
			}
		}
		gotOwn, gotHad, err := BlocksOf(o, recs)
		if err != nil || !slices.Equal(gotOwn, own) || !slices.Equal(gotHad, had) {
			t.Errorf("%q: %v, %v, %v, want %v and %v", name, gotOwn, gotHad, err, own, had)
		}
	}
	if _, _, err := BlocksOf(alloc.Owner{Kind: alloc.Host, Name: "a"}, []store.Record{{Key: "o1a\x00bad"}}); err == nil {
		t.Error("a key that names no block is taken")
	}
}

// TestIndexOfOwners: an owner that loses a block and one that gets it change one record each, never one twice.
func TestIndexOfOwners(t *testing.T) {
	a, b := alloc.Owner{Kind: alloc.Host, Name: "a"}, alloc.Owner{Kind: alloc.Host, Name: "b"}
	key := func(e IndexEntry) string { return string(e.AppendKey(nil, netip.MustParsePrefix("10.0.0.0/26"))) }
	states := []BlockIndex{{}, {owner: a}, {owner: b, former: block.OwnerCode(a) + "\x00"}, {former: block.OwnerCode(a) + "\x00" + block.OwnerCode(b) + "\x00"}, {owner: a, former: block.OwnerCode(b) + "\x00"}}
	for _, was := range states {
		for _, is := range states {
			for _, x := range was.Entries(nil) {
				for _, y := range is.Entries(nil) {
					if x.SameKey(&y) != (key(x) == key(y)) {
						t.Errorf("%+v and %+v: same key %v, keys %q and %q", x, y, x.SameKey(&y), key(x), key(y))
					}
				}
			}
		}
	}
}

// TestOwned compares values that blocks come to and go from with a set, around the number up to which they are listed; the store has the
// set as it was when the value was read or written last.
func TestOwned(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := numbered(3 * MaxListed)
	slices.SortFunc(all, ComparePrefix)
	var o Owned
	var stored []netip.Prefix
	is := make(map[netip.Prefix]bool)
	list := func() []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !is[p] })
	}
	for step := range 4000 {
		p, was, before := all[r.IntN(len(all))], o, slices.Clone(o.Blocks)
		grow := step/500%2 == 0
		switch {
		case is[p] && (!grow || r.IntN(3) == 0):
			if o.N == MaxListed+1 {
				o = OwnedOf(o.All(stored))
			}
			o = o.Without(p)
			delete(is, p)
		case !is[p] && (grow || r.IntN(3) == 0):
			o, is[p] = o.With(p), true
		}
		if !slices.Equal(was.Blocks, before) {
			t.Fatalf("step %d changed the former value", step)
		}
		want := list()
		if o.N != len(want) || o.N <= MaxListed && !o.Listed() || !slices.Equal(o.All(stored), want) {
			t.Fatalf("step %d: %+v, want %d %v", step, o, len(want), want)
		}
		if r.IntN(20) == 0 {
			if o, stored = o.Settled(), want; o.Listed() != (o.N <= MaxListed) {
				t.Fatalf("step %d: settled %+v", step, o)
			}
		}
	}
	if none := (Owned{}).Without(all[0]); none.N != 0 {
		t.Errorf("%+v", none)
	}
	if twice := (Owned{}).With(all[0]).With(all[0]); twice.N != 1 || !twice.Listed() {
		t.Errorf("%+v", twice)
	}
}
