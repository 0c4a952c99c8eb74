package nodeipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/internal/invariant"
)

// worlds are 8 addresses each, at the edges of the two address spaces and in them.
var worlds = []string{"0.0.0.0/29", "10.0.0.8/29", "255.255.255.248/29", "::/125", "fd00::7:ffff:ffff:ffff:fff8/125", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125"}

// blocksOf returns every block of a world of 8 addresses, 15 of them.
func blocksOf(world netip.Prefix) (bs []block) {
	w := blockOf(world)
	bs = append(bs, w)
	for i := 0; len(bs) < 15; i++ {
		bs = append(bs, bs[i].half(0), bs[i].half(1))
	}
	return bs
}

func (b block) overlaps(o block) bool {
	return b.contains(o.key) && b.bits <= o.bits || o.contains(b.key) && o.bits <= b.bits
}

// Every set of claims of a world of 8 addresses, each asked for every block of every
// size in every pool from every place: 2^15 sets.
func TestSpaceExhaustively(t *testing.T) {
	for i, world := range worlds {
		step := 1
		if i > 0 || testing.Short() {
			step = 37 // the arithmetic of the edges does not need every set
		}
		all := blocksOf(netip.MustParsePrefix(world))
		for set := 0; set < 1<<15; set += step {
			exhaust(t, all, set)
			if t.Failed() {
				t.Fatalf("in %s, claims %015b", world, set)
			}
		}
	}
}

func (s *space) free(pool block, size uint8) uint64 {
	_, _, free := s.tally(pool, size)
	return free
}

func exhaust(t *testing.T, all []block, set int) {
	var s space
	var claimed, reserved []block
	claims := make([]claim, len(all))
	for i, b := range all {
		if set>>i&1 == 1 {
			if claims[i].owner = new(owner); i%3 == 0 {
				claims[i].owner = nil
				reserved = append(reserved, b)
			}
			want := !slices.ContainsFunc(claimed, b.overlaps)
			if alone := s.put(b, &claims[i]); alone != want {
				t.Errorf("putting %v: alone %v, want %v", b, alone, want)
			}
			claimed = append(claimed, b)
		}
	}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	var free [15]bool
	for i, b := range all {
		free[i] = !slices.ContainsFunc(claimed, b.overlaps)
	}
	for _, pool := range all {
		for size := pool.bits; size <= all[0].bits+3; size++ {
			var want []addr.U128 // free blocks, ascending
			barred := uint64(0)
			var places []addr.U128
			for i, b := range all {
				if b.bits == size && pool.contains(b.key) {
					places = append(places, b.key)
					if slices.ContainsFunc(reserved, b.overlaps) {
						barred++
					}
					if free[i] {
						want = append(want, b.key)
					}
				}
			}
			used, inReserve, free := s.tally(pool, size)
			if free != uint64(len(want)) || inReserve != barred || used != uint64(len(places))-free-barred {
				t.Errorf("%d used, %d reserved, %d free /%d in %v, want %d free of %d and %d reserved", used, inReserve, free, size, pool, len(want), len(places), barred)
			}
			for _, from := range places {
				at := slices.IndexFunc(want, func(k addr.U128) bool { return k.Cmp(from) >= 0 })
				got, ok := s.next(pool, size, from)
				if ok != (at >= 0) || ok && got != want[at] {
					t.Errorf("next /%d in %v from %v: %v %v, want %v", size, pool, from, got, ok, want)
				}
			}
		}
	}
	// Taken out again in another order, everything is as before.
	for i := range all {
		j := (i*7 + 3) % len(all)
		if set>>j&1 == 1 {
			s.remove(all[j], &claims[j])
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.root != 0 {
		t.Error("the last claim is gone and there is still a node")
	}
}

// Claims may repeat: only the last one of a prefix frees it.
func TestSpaceCountsClaims(t *testing.T) {
	var s space
	b := blockOf(netip.MustParsePrefix("10.0.0.0/24"))
	a, c := &owner{name: "b"}, &owner{name: "a"}
	claims := []claim{{owner: a}, {owner: c}, {}}
	for i := range claims {
		s.put(b, &claims[i])
	}
	for i, want := range []string{"a", "a", "none"} {
		got := "none"
		if r := s.rival(b.half(1), a); r != nil {
			got = r.name
		}
		if _, ok := s.next(b, 25, b.key); ok || got != want {
			t.Errorf("after %d removals: free %v, rival %s, want %s", i, ok, got, want)
		}
		s.remove(b, &claims[[]int{0, 1, 2}[i]])
		if err := s.check(); err != nil {
			t.Error(err)
		}
		_, c := s.inside(b)
		for ; c != nil; c = c.next {
			if c == &claims[i] {
				t.Error("the claim is still there")
			}
		}
	}
	if got, ok := s.next(b, 25, b.key); !ok || got != b.key {
		t.Error("not free again")
	}
}

// Pools and children of every length, in both families.
func TestSpaceLengths(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		lengths := []int{0, 1, 31, 32}
		if f == IPv6 {
			lengths = append(lengths, 63, 64, 65, 127, 128)
		}
		for _, pool := range lengths {
			for _, size := range lengths {
				if size < pool {
					continue
				}
				var s space
				p := block{bits: uint8(pool)}
				first, ok := s.next(p, uint8(size), p.key)
				if !ok || s.free(p, uint8(size)) != saturate(size-pool) {
					t.Errorf("%v /%d in /%d: not free", f, size, pool)
				}
				got := block{first, uint8(size)}
				if got.prefix(f == IPv4).Bits() != size || blockOf(got.prefix(f == IPv4)) != got {
					t.Errorf("%v: %v does not come back", f, got.prefix(f == IPv4))
				}
				s.put(got, &claim{})
				second, ok := s.next(p, uint8(size), p.key)
				if ok != (size > pool) {
					t.Errorf("%v /%d in /%d: a second one: %v", f, size, pool, ok)
				}
				if want := got.last().Add(addr.U128{Lo: 1}); ok && second != want {
					t.Errorf("%v /%d in /%d: the second is %v", f, size, pool, second)
				}
				want := saturate(size - pool)
				if size-pool < 64 { // of 2^64 there are 2^64-1 left
					want--
				}
				if free := s.free(p, uint8(size)); free != want {
					t.Errorf("%v /%d in /%d: %d free, want %d", f, size, pool, free, want)
				}
				last, ok := s.next(p, uint8(size), truncate(p.last(), uint8(size)))
				if ok != (size > pool) || ok && (block{last, uint8(size)}).last() != p.last() {
					t.Errorf("%v /%d in /%d: the last one: %v, %v", f, size, pool, last, ok)
				}
			}
		}
	}
}

// Of a full space of 2^128 blocks nothing is free.
func TestTallyOfAFullSpace(t *testing.T) {
	var s space
	all := block{}
	for _, half := range []block{all.half(0), all.half(1)} {
		s.put(half, &claim{owner: new(owner)})
	}
	if free := s.free(all, 128); free != 0 {
		t.Errorf("%d free", free)
	}
}

// The package comment says what a claim costs.
func TestSizeOfTheIndex(t *testing.T) {
	if size := unsafe.Sizeof(spaceNode{}); size > 40 {
		t.Errorf("a node takes %d bytes", size)
	}
	var s space
	for i := range uint64(1000) {
		s.put(block{addr.U128{Hi: i * 0x9E3779B97F4A7C15}, 64}, &claim{})
	}
	if n := len(s.nodes); n > 2*1000 {
		t.Errorf("%d nodes for 1,000 claims", n)
	}
}

// Random claims of all lengths against a list.
func TestSpaceAgainstList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var s space
		type held struct {
			b block
			c *claim
		}
		var list []held
		world := blockOf(netip.MustParsePrefix("fd00::8000:0:0:0/63"))
		for range 300 {
			if len(list) > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(len(list))
				s.remove(list[i].b, list[i].c)
				list = slices.Delete(list, i, i+1)
			} else {
				bits := uint8(63 + rng.IntN(10))
				if rng.IntN(4) == 0 {
					bits = uint8(100 + rng.IntN(29))
				}
				key := world.key.Or(addr.U128{Hi: rng.Uint64() & 1, Lo: rng.Uint64() & 0xff << 56})
				b := block{truncate(key, bits), bits}
				c := &claim{}
				s.put(b, c)
				list = append(list, held{b, c})
			}
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			got, ok := s.next(world, 71, world.key)
			var want addr.U128
			wok := false
			for k := world; ; k.key = (block{k.key, 71}).last().Add(addr.U128{Lo: 1}) {
				want = k.key
				if !slices.ContainsFunc(list, func(h held) bool { return h.b.overlaps(block{k.key, 71}) }) {
					wok = true
					break
				}
				if (block{k.key, 71}).last() == world.last() {
					break
				}
			}
			if ok != wok || ok && got != want {
				t.Fatalf("%v %v, want %v %v", got, ok, want, wok)
			}
		}
	}
}

// What the nodes of the index cost is bounded: a search looks at no more nodes than
// the trie is deep, twice. Steps are the contract, not nanoseconds; they are counted
// with the tag "invariants".
func TestStepsGrowWithTheLogarithm(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("steps are counted with the tag invariants only")
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		a, err := New(Config{ByLabels: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, bits := range map[string]int{"large": 8, "small": 5} {
			r := Requirement{Key: "size", Op: In, Values: []string{name}}
			if err := a.AddEntry(Entry{Name: name, IPv4: netip.MustParsePrefix("10.0.0.0/8"), HostBits: bits, Selector: []Term{{Labels: []Requirement{r}}}}); err != nil {
				t.Fatal(err)
			}
		}
		var most uint64
		sizes := []map[string]string{{"size": "large"}, {"size": "small"}}
		for i := range n {
			before := invariant.Steps()
			// Seven small nodes for each large one, so that 100,000 fit.
			if _, err := a.Allocate(Node{Name: fmt.Sprint(i), Labels: sizes[min(i%8, 1)]}); err != nil {
				t.Fatal(err)
			}
			most = max(most, invariant.Steps()-before)
		}
		log := 0
		for 1<<log < n {
			log++
		}
		t.Logf("%d nodes: at most %d steps for one allocation", n, most)
		if most > uint64(8*log) {
			t.Errorf("%d nodes: %d steps, more than 8 log2(n) = %d", n, most, 8*log)
		}
	}
}
