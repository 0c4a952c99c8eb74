package block

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// churn returns a block after n random operations: with leases, cooling, equal and own handles.
func churn(t testing.TB, r *rand.Rand, prefix string, n int, leases bool) *Block {
	b := mustBlock(t, prefix, Options{Owner: alloc.Owner{Kind: alloc.OwnerKind(1 + r.IntN(2)), Name: "o"}, Head: r.Uint64N(2), Tail: r.Uint64N(2), Claimed: t0, Seq: r.Uint64N(1 << 40)})
	now := t0
	for range n {
		now = now.Add(time.Second)
		b.Advance(now, 5*time.Second)
		attrs, _ := alloc.NewAttributes(map[string]string{"k": fmt.Sprint(r.IntN(2))})
		c := alloc.Claim{Handle: fmt.Sprint("h", r.IntN(9)), Attributes: attrs}
		if leases && r.IntN(2) == 0 {
			c.TTL = time.Duration(r.IntN(40)) * time.Second
		}
		switch r.IntN(4) {
		case 0:
			b.AutoAssign(nil, 1+r.IntN(4), c, now, nil)
		case 1:
			b.Assign(b.Addr(r.Uint64N(b.last+1)), c, now)
		case 2:
			b.Release(b.Addr(r.Uint64N(b.last+1)), alloc.Guard{}, now, time.Duration(r.IntN(2)*10)*time.Second)
		case 3:
			b.SetAttributes(b.Addr(r.Uint64N(b.last+1)), alloc.Guard{}, attrs, c.Attributes)
		}
		mustCheck(t, b)
	}
	return b
}

// records returns the records of a block: its own, and those of its addresses by ordinal.
func records(b *Block) (string, map[uint64]string) {
	addrs := make(map[uint64]string)
	for x, a := range b.Each() {
		addrs[x] = string(a.Append(nil, b.prefix.Bits()))
	}
	return string(b.Append(nil)), addrs
}

// decoded returns the block of some records.
func decoded(p netip.Prefix, data string, addrs map[uint64]string) (*Block, error) {
	b, err := Decode(p, data)
	for x, s := range addrs {
		if err == nil {
			err = b.LoadRecord(x, s)
		}
	}
	return b, err
}

func TestBlockCodecRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, prefix := range []string{"10.0.0.0/30", "10.0.0.64/26", "10.0.0.0/24", "2001:db8::100/121", "2001:db8::/104"} {
		for i := range 30 {
			b := churn(t, r, prefix, 60, i%2 == 0)
			data, addrs := records(b)
			c, err := decoded(b.prefix, data, addrs)
			if err != nil {
				t.Fatalf("%s: %v", prefix, err)
			}
			mustCheck(t, c)
			if again, addrsAgain := records(c); again != data || !maps.Equal(addrs, addrsAgain) {
				t.Fatalf("%s: coded again:\n%x\n%x", prefix, data, again)
			}
			now := t0.Add(time.Hour)
			b.Advance(now, 0)
			c.Advance(now, 0)
			if d := cmp.Diff(b.AutoAssign(nil, 300, alloc.Claim{}, now, nil), c.AutoAssign(nil, 300, alloc.Claim{}, now, nil), cmp.Comparer(func(a, b alloc.Allocation) bool { return a == b })); d != "" {
				t.Fatalf("%s: goes on differently:\n%s", prefix, d)
			}
		}
	}
}

func TestBlockDecodeRefusesDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 40 {
		b := churn(t, r, [...]string{"10.0.0.0/27", "10.0.0.0/24"}[r.IntN(2)], 40, true)
		data := b.Append(nil)
		for i := range data {
			if _, err := Decode(b.prefix, string(data[:i])); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("cut at %d: %v", i, err)
			}
			bad := append([]byte(nil), data...)
			bad[i] ^= byte(1 << r.IntN(8))
			if c, err := Decode(b.prefix, string(bad)); err == nil {
				mustCheck(t, c)
				if again := c.Append(nil); string(again) != string(bad) {
					t.Fatalf("byte %d changed: a second form of one block:\n%x\n%x", i, bad, again)
				}
			} else if !errors.Is(err, refusal(i)) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
		}
		if _, err := Decode(b.prefix, string(data)+"x"); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("followed by more: %v", err)
		}
	}
}

// The queue has one form: no part of a span is announced that is zero, no distance is larger than the block, no span goes on where the one
// before ends, and nothing is said of cooling ordinals if there are none.
func TestBlockDecodeRefusesAnotherFormOfTheQueue(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/29", Options{Claimed: t0})
	b.free.spans = []Span{{3, 3}, {1, 2}, {6, 6}}
	data, form := string(b.Append(nil)), "\x03\x18\x15\x01\x18"
	head := strings.TrimSuffix(data, form)
	if _, err := Decode(b.prefix, data); err != nil || head == data {
		t.Fatalf("%x, %v", data, err)
	}
	for what, bad := range map[string]string{
		"a length of 1":                  head + "\x03\x19\x00\x15\x01\x18",
		"the rest of a distance, 0":      head + "\x03\x1a\x00\x15\x01\x18",
		"a distance from the other side": head + "\x03\x24\x15\x01\x18",
		"a distance beyond the block":    head + "\x03\x1a\x01\x15\x01\x18",
		"a distance of 70 bits":          head + "\x03\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x15\x01\x18",
		"a span beyond the block":        head + "\x03\x19\x07\x15\x01\x18",
		"two spans for one":              head + "\x04\x18\x14\x00\x18",
		"nothing that cools":             head[:1] + string(rune(data[1]|flagCooling)) + head[2:] + form + "\x00",
		"more spans than bytes":          head + "\x05\x18\x15\x01\x18",
	} {
		if _, err := Decode(b.prefix, bad); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A block of which more is held than one may is refused.
func TestBlockDecodeRefusesTooManyHeld(t *testing.T) {
	for more, want := range []error{nil, ipalloc.ErrCorrupt} {
		b := mustBlock(t, "2001:db8::/103", Options{Head: maxHeld - 1 - uint64(more)})
		b.free.spans = []Span{{1<<24 + 99, 1<<24 + 99}}
		if _, err := Decode(b.prefix, string(b.Append(nil))); !errors.Is(err, want) {
			t.Errorf("%d more: %v", more, err)
		}
	}
}

// A block does not take the record of another of its addresses, which says that it is held where the block says that it cools.
func TestRecordOfAnotherState(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/28", Options{})
	b.Hold(0, Identity{}, 1, 0)
	b.Hold(1, Identity{}, 1, 0)
	b.Drop(1, 1, 1000)
	data, addrs := records(b)
	if _, err := decoded(b.prefix, data, addrs); err != nil || len(addrs) != 2 {
		t.Fatalf("%d addresses, %v", len(addrs), err)
	}
	for x := range addrs {
		if _, err := decoded(b.prefix, data, map[uint64]string{x: addrs[1-x]}); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("ordinal %d: %v", x, err)
		}
	}
}

// refusal returns the error for a record of which byte i differs: the first is the version.
func refusal(i int) error {
	if i == 0 {
		return ipalloc.ErrVersion
	}
	return ipalloc.ErrCorrupt
}

// A damaged address record is refused, or is another record that is written as it was read.
func TestAddressDecodeRefusesDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 40 {
		for _, data := range func() map[uint64]string { _, a := records(churn(t, r, "10.0.0.0/27", 40, true)); return a }() {
			for i := range data {
				if _, _, err := DecodeAddress(data[:i]); !errors.Is(err, ipalloc.ErrCorrupt) {
					t.Fatalf("cut at %d: %v", i, err)
				}
				bad := []byte(data)
				bad[i] ^= byte(1 << r.IntN(8))
				if a, length, err := DecodeAddress(string(bad)); err == nil {
					if again := a.Append(nil, length); string(again) != string(bad) {
						t.Fatalf("byte %d changed: a second form of one address:\n%x\n%x", i, bad, again)
					}
				} else if !errors.Is(err, refusal(i)) {
					t.Fatalf("byte %d changed: %v", i, err)
				}
			}
			if _, _, err := DecodeAddress(data + "x"); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Fatalf("followed by more: %v", err)
			}
		}
	}
}

// An address cools until some time, and has no holders beside the last.
func TestRecordOfAnAddressThatCannotCool(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/28", Options{})
	b.AutoAssign(nil, 1, alloc.Claim{Handle: "h"}, t0, nil)
	b.AutoAssign(nil, 1, alloc.Claim{Handle: "h", TTL: time.Hour, Share: alloc.Share{Max: 2}}, t0, nil)
	for x, a := range b.Each() {
		cools := *a
		cools.Cooling = true
		for cooling, want := range map[*Address]error{a: nil, &cools: ipalloc.ErrCorrupt} {
			if _, _, err := DecodeAddress(string(cooling.Append(nil, 28))); !errors.Is(err, want) {
				t.Errorf("%d: %+v: %v", x, cooling, err)
			}
		}
	}
}

// The holders of an address differ in their handles, have one each, and came one after the other.
func TestRecordOfHoldersThatCannotBe(t *testing.T) {
	holder := func(handle string, seq uint64) Holder { return Holder{Identity: Identity{Handle: handle}, Seq: seq} }
	for want, lists := range map[error][][]Holder{
		nil: {{holder("a", 5)}, {holder("a", 5), holder("b", 6)}, {holder("a", 5), holder("b", 6), holder("c", 8)}},
		ipalloc.ErrCorrupt: {
			{holder("", 5)}, {holder("a", 5), holder("", 6)}, {holder("a", 5), holder("a", 6)}, {holder("a", 5), holder("b", 5)}, {holder("a", 5), holder("b", 4)},
			{holder("a", 5), holder("b", 6), holder("b", 7)}, {holder("a", 5), holder("b", 6), holder("c", 6)}, {holder("a", 5), holder("b", 6), holder("c", 7), holder("d", 8)},
		},
	} {
		for _, list := range lists {
			a := Address{Holder: list[0]}
			a.allow(alloc.Share{Max: 3})
			for _, h := range list[1:] {
				a.shared += string(appendHolder(nil, h))
			}
			if _, _, err := DecodeAddress(string(a.Append(nil, 28))); !errors.Is(err, want) {
				t.Errorf("%+v: %v, want %v", list, err, want)
			}
		}
	}
}

// The record of a block of 64 addresses stays small however many are held and in whatever order the free ones are.
func TestBlockRecordIsSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	b := mustBlock(t, "10.0.0.0/26", Options{Owner: alloc.HostOwner("node-with-a-name-of-32-characters"), Claimed: t0, Seq: 1 << 60})
	most := 0
	for range 4000 {
		x := b.Addr(r.Uint64N(64))
		if o, _ := b.Release(x, alloc.Guard{}, t0.Add(time.Hour), time.Duration(r.IntN(2))*time.Hour); o == alloc.WasFree {
			b.Assign(x, alloc.Claim{Handle: "h"}, t0)
		}
		most = max(most, len(b.Append(nil)))
	}
	t.Logf("at most %d bytes", most)
	if most > 130 {
		t.Error("more than 130 bytes")
	}
}
