package block

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// recordBlocks are blocks whose records have every field: of a few addresses, of 64, and of 2^64.
func recordBlocks(t *testing.T) map[string]*Block {
	attrs, err := alloc.NewAttributes(map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	blocks := make(map[string]*Block)
	for name, prefix := range map[string]string{"small": "10.0.0.0/28", "full": "10.0.0.0/26", "wide": "fd00::/64"} {
		b := mustBlock(t, prefix, Options{Owner: alloc.Owner{Kind: alloc.Host, Name: "a"}, Head: 1, Tail: 2, Claimed: t0, Seq: 7})
		b.AutoAssign(nil, 9, alloc.Claim{Handle: "h", Attributes: attrs, TTL: time.Hour}, t0, nil)
		for i, x := range []uint64{2, 5, 9, 3} {
			b.Release(b.Addr(x), alloc.Guard{}, t0.Add(time.Second), time.Duration(i)*time.Second)
		}
		if name != "full" {
			b.Give(alloc.VirtualOwner("v"), wire.Stamp(t0.Add(time.Minute)))
		}
		mustCheck(t, b)
		blocks[name] = b
	}
	return blocks
}

// TestRecordBytes pins the bytes of the records: a released form may change only under another version.
func TestRecordBytes(t *testing.T) {
	want := map[string]string{
		"small": "013e0176010280a8eccd82c0e58631ffdfba84bf031080a08a8787ce010503316100022d032003050903ff8f8e91b003ffbfe19da103",
		"full":  "012d0161010280c8b1c9c3bce5863100108080c58bc6d10105025133200305090380d0acf30e80a0d9e61d",
		"wide":  "013e0176010280a8eccd82c0e58631ffdfba84bf031080a08a8787ce0105033161000251f3ffffffffffffffff012003050903ff8f8e91b003ffbfe19da103",
	}
	for name, b := range recordBlocks(t) {
		if got := hex.EncodeToString(b.Append(nil)); got != want[name] {
			t.Errorf("%s: %s", name, got)
		}
	}
	h := sha256.New()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		b := churn(t, r, [...]string{"10.0.0.0/29", "10.0.0.0/27", "10.0.0.0/26", "10.0.0.0/25", "10.0.0.0/23"}[i%5], 5+i%60, i%2 == 0)
		data, addrs := records(b)
		h.Write([]byte(data))
		for _, x := range slices.Sorted(maps.Keys(addrs)) {
			h.Write([]byte(addrs[x]))
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)[:8]); got != "43f30ba55fef517f" {
		t.Errorf("400 blocks: %s", got)
	}
}

// A block whose record was read knows when its first and last cooling address is free. Of each other one only the address says it.
func TestKnowsCoolingWhenAllAreLoaded(t *testing.T) {
	b := recordBlocks(t)["small"]
	data, addrs := records(b)
	c, err := Decode(b.Prefix(), data)
	if err != nil {
		t.Fatal(err)
	}
	var inner []uint64 // between the first and the last that cools
	for x, until := range c.EachCooling() {
		if until == 0 {
			inner = append(inner, x)
		}
	}
	if len(inner) != 1 || c.KnowsCooling() {
		t.Fatalf("%v of %d, known: %v", inner, c.Cooling(), c.KnowsCooling())
	}
	for x, record := range addrs {
		if x != inner[0] {
			if err := c.LoadRecord(x, record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.Absent() != 1 || c.KnowsCooling() {
		t.Errorf("%d absent, known: %v", c.Absent(), c.KnowsCooling())
	}
	if err := c.LoadRecord(inner[0], addrs[inner[0]]); err != nil || !c.KnowsCooling() {
		t.Errorf("known: %v, %v", c.KnowsCooling(), err)
	}
}

// Count agrees with a look at each ordinal, for every part of a block of several words.
func TestCountOfParts(t *testing.T) {
	b := mustBlock(t, "10.0.0.0/24", Options{Claimed: t0, Head: 3, Tail: 70})
	b.AutoAssign(nil, 150, alloc.Claim{Handle: "h"}, t0, nil)
	for x := uint64(3); x < 150; x += 7 {
		b.Release(b.Addr(x), alloc.Guard{}, t0, time.Duration(x%2)*time.Second)
	}
	for lo := uint64(0); lo <= b.last; lo++ {
		var want [4]uint64
		for hi := lo; hi <= b.last+3; hi++ {
			if hi <= b.last {
				st, _ := b.Look(hi)
				want[st]++
			}
			held, cooling, reserved := b.Count(Span{lo, hi})
			if got := fmt.Sprint(held, cooling, reserved); got != fmt.Sprint(want[Held], want[Cooling], want[Reserved]) {
				t.Fatalf("%d to %d: %s, want %v", lo, hi, got, want)
			}
		}
	}
}

// A record may lack the time since when the address is held: an imported holder has none.
func TestRecordWithoutSince(t *testing.T) {
	data, _ := hex.DecodeString("01281c0104676f6e650171")
	a, length, err := DecodeAddress(string(data))
	if err != nil || length != 28 || a.Since != 0 || string(a.Append(nil, length)) != string(data) {
		t.Fatalf("%+v, %d, %v", a, length, err)
	}
	if al := a.Allocation(netip.MustParseAddr("10.0.0.96"), length); !al.Since.IsZero() || al.Handle != "q" {
		t.Errorf("%+v", al)
	}
	a.Since = 0x695735a5
	al, size := a.Allocation(netip.MustParseAddr("10.0.0.96"), length), len(a.Append(nil, length))
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !al.Since.Equal(want) || size != len(data)+5 {
		t.Errorf("since %v, want %v; %d bytes more, want 5", al.Since, want, size-len(data))
	}
}
