package block

import (
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// checked returns a block with an ordinal in every state: 0 and 1 and the last one reserved, 2 with a lease, 3 and 4 without, 4 of a former
// owner, 5 and 6 cooling, the others free.
func checked(t *testing.T) *Block {
	t.Helper()
	b := mustBlock(t, "10.0.0.0/28", Options{Owner: alloc.HostOwner("host"), Head: 2, Tail: 1})
	b.AutoAssign(nil, 1, alloc.Claim{Handle: "lease", TTL: time.Hour}, t0, nil)
	b.AutoAssign(nil, 4, alloc.Claim{Handle: "h"}, t0, nil)
	for i, a := range []string{"10.0.0.5", "10.0.0.6"} {
		if _, err := b.Release(ip(a), alloc.Guard{}, t0, time.Duration(i+1)*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	b.Give(alloc.HostOwner("next"), wire.Stamp(t0))
	mustCheck(t, b)
	return b
}

// TestCheckSeesEachField: a block in which one field of its own, or of one address, is off does not pass.
func TestCheckSeesEachField(t *testing.T) {
	address := func(b *Block, x uint64) *Address { _, a := b.Look(x); return a }
	for name, damage := range map[string]func(*Block){
		"one held less":              func(b *Block) { b.used-- },
		"one held more":              func(b *Block) { b.used++ },
		"one absent":                 func(b *Block) { b.absent++ },
		"an address absent":          func(b *Block) { b.page(2, true).at[2] = nil },
		"no lease":                   func(b *Block) { b.lease = 0 },
		"the lease ends later":       func(b *Block) { b.lease++ },
		"one lease less":             func(b *Block) { b.leases-- },
		"one lease more":             func(b *Block) { b.leases++ },
		"fewer leases than loaded":   func(b *Block) { b.leases--; b.absent++; b.page(3, true).at[3] = nil },
		"leases that end never":      func(b *Block) { b.lease, b.leases, b.absent, b.page(2, true).at[2] = 0, 1, 1, nil },
		"an address later":           func(b *Block) { address(b, 3).Seq = b.seq + 1 },
		"an address without number":  func(b *Block) { address(b, 3).Seq = 0 },
		"shared by damaged bytes":    func(b *Block) { address(b, 3).shared = "\x00" },
		"held, and cooling by it":    func(b *Block) { address(b, 3).Cooling = true },
		"cooling, and held by it":    func(b *Block) { address(b, 5).Cooling = false },
		"held and cooling":           func(b *Block) { b.page(5, true).held |= 1 << 5 },
		"free with an address":       func(b *Block) { b.page(7, true).at[7] = &Address{Holder: Holder{Seq: 1}} },
		"free and held":              func(b *Block) { b.page(7, true).held |= 1 << 7; b.used++; b.absent++ },
		"reserved and held":          func(b *Block) { b.page(1, true).held |= 1 << 1; b.used++; b.absent++ },
		"reserved at the end, held":  func(b *Block) { b.page(15, true).held |= 1 << 15; b.used++; b.absent++ },
		"in no state":                func(b *Block) { b.page(3, true).held &^= 1 << 3; b.page(3, true).at[3] = nil; b.used-- },
		"the last in no state":       func(b *Block) { b.free.spans = []Span{{7, 13}} },
		"queue with a reserved one":  func(b *Block) { b.free.spans = []Span{{7, 15}} },
		"queue with one twice":       func(b *Block) { b.free.spans = []Span{{7, 14}, {9, 9}} },
		"queue with a span reversed": func(b *Block) { b.free.spans = []Span{{7, 6}, {7, 14}} },
		"queue without one":          func(b *Block) { b.free.spans = []Span{{7, 9}, {11, 14}} },
		"cooling queue without one":  func(b *Block) { b.cool = b.cool[:1] },
		"one cools twice":            func(b *Block) { b.cool[1] = b.cool[0] },
		"a held one cools":           func(b *Block) { b.cool[1].x = 3 },
		"cools until another time":   func(b *Block) { b.cool[0].until++ },
		"out of order":               func(b *Block) { b.cool[0], b.cool[1] = b.cool[1], b.cool[0] },
		"the first is unknown":       func(b *Block) { b.absent, b.page(5, true).at[5], b.cool[0].until = 1, nil, 0 },
		"the last is unknown":        func(b *Block) { b.absent, b.page(6, true).at[6], b.cool[1].until = 1, nil, 0 },
		"its owner is a former one":  func(b *Block) { b.former += OwnerCode(b.owner) + "\x00" },
		"a former owner twice":       func(b *Block) { b.former += b.former },
		"a former owner cut short":   func(b *Block) { b.former = b.former[:len(b.former)-1] },
		"a former owner of nothing":  func(b *Block) { b.former = "x" },
	} {
		b := checked(t)
		if damage(b); b.Check() == nil {
			t.Errorf("%s: Check sees nothing", name)
		}
	}
}

// TestCheckOfWhatIsNotLoaded: an address that is not loaded may have a lease, and may cool until any time between its neighbours.
func TestCheckOfWhatIsNotLoaded(t *testing.T) {
	b := checked(t)
	b.absent, b.page(2, true).at[2] = 1, nil
	mustCheck(t, b)
	if x := b.AppendAbsent(nil); len(x) != 1 || x[0] != 2 {
		t.Errorf("absent: %v", x)
	}
	b.lease-- // earlier than what is loaded says
	mustCheck(t, b)
}
