package claims

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/ipalloc/ipalloc/internal/addr"
)

type owner struct{ name string }

// worlds are 8 addresses each, at the edges of the two address spaces and in them.
var worlds = []string{"0.0.0.0/29", "10.0.0.8/29", "255.255.255.248/29", "::/125", "fd00::7:ffff:ffff:ffff:fff8/125", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125"}

// blocksOf returns every block of a world of 8 addresses, 15 of them.
func blocksOf(world netip.Prefix) (bs []Block) {
	w := BlockOf(world)
	bs = append(bs, w)
	for i := 0; len(bs) < 15; i++ {
		bs = append(bs, bs[i].half(0), bs[i].half(1))
	}
	return bs
}

func (b Block) overlaps(o Block) bool {
	return b.Contains(o.Key) && b.Bits <= o.Bits || o.Contains(b.Key) && o.Bits <= b.Bits
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

// least returns 2^order, or 2^64-1 if that is less.
func least(order int) uint64 {
	if order >= 64 {
		return 1<<64 - 1
	}
	return 1 << order
}

func exhaust(t *testing.T, all []Block, set int) {
	var s Space[owner]
	var claimed, reserved []Block
	claims := make([]Claim[owner], len(all))
	for i, b := range all {
		if set>>i&1 == 1 {
			if claims[i].Owner = new(owner); i%3 == 0 {
				claims[i].Owner = nil
				reserved = append(reserved, b)
			}
			want := !slices.ContainsFunc(claimed, b.overlaps)
			if alone := s.Put(b, &claims[i]); alone != want {
				t.Errorf("putting %v: alone %v, want %v", b, alone, want)
			}
			claimed = append(claimed, b)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	var free [15]bool
	for i, b := range all {
		free[i] = !slices.ContainsFunc(claimed, b.overlaps)
	}
	for _, pool := range all {
		for size := pool.Bits; size <= all[0].Bits+3; size++ {
			var want []addr.U128 // free blocks, ascending
			barred := uint64(0)
			var places []addr.U128
			for i, b := range all {
				if b.Bits == size && pool.Contains(b.Key) {
					places = append(places, b.Key)
					if slices.ContainsFunc(reserved, b.overlaps) {
						barred++
					}
					if free[i] {
						want = append(want, b.Key)
					}
				}
			}
			c := s.Tally(pool, size)
			used, inReserve, free := c.Used, c.Reserved, c.Free
			if free != uint64(len(want)) || inReserve != barred || used != uint64(len(places))-free-barred {
				t.Errorf("%d used, %d reserved, %d free /%d in %v, want %d free of %d and %d reserved", used, inReserve, free, size, pool, len(want), len(places), barred)
			}
			for _, from := range places {
				at := slices.IndexFunc(want, func(k addr.U128) bool { return k.Cmp(from) >= 0 })
				got, ok := s.Next(pool, size, from)
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
			s.Remove(all[j], &claims[j])
			if err := s.Check(); err != nil {
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
	var s Space[owner]
	b := BlockOf(netip.MustParsePrefix("10.0.0.0/24"))
	held := []Claim[owner]{{Owner: &owner{"b"}}, {Owner: &owner{"a"}}, {}}
	for i := range held {
		s.Put(b, &held[i])
	}
	if s.Reservation(b) != &held[2] {
		t.Error("the reservation is not found")
	}
	for i := range held {
		n := 0
		s.Overlapping(b.half(1), func(q Block, c *Claim[owner]) bool {
			for ; c != nil; c = c.Next() {
				n++
			}
			return true
		})
		if _, ok := s.Next(b, 25, b.Key); ok || n != len(held)-i {
			t.Errorf("after %d removals: free %v, %d claims", i, ok, n)
		}
		s.Remove(b, &held[i])
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	if got, ok := s.Next(b, 25, b.Key); !ok || got != b.Key || s.Reservation(b) != nil {
		t.Error("not free again")
	}
}

// The reservations of a prefix come before its other claims, whatever came first and
// whatever went: a search for them looks at the first claim only.
func TestReservationsComeFirst(t *testing.T) {
	var s Space[owner]
	b := BlockOf(netip.MustParsePrefix("10.0.0.0/24"))
	cs := make([]Claim[owner], 8)
	for i := range cs {
		if i%3 != 2 {
			cs[i].Owner = new(owner)
		}
		s.Put(b, &cs[i])
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		remove int
		want   *Claim[owner]
	}{{7, &cs[5]}, {5, &cs[2]}, {0, &cs[2]}, {2, nil}} {
		s.Remove(b, &cs[step.remove])
		if got := s.Reservation(b); got != step.want {
			t.Errorf("after removing claim %d: reservation %p, want %p", step.remove, got, step.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	// The latest of the others is the first of them.
	s.Overlapping(b, func(_ Block, c *Claim[owner]) bool {
		if c != &cs[6] || c.Next() != &cs[4] {
			t.Error("the other claims are not in reverse order")
		}
		return true
	})
}

// Pools and children of every length, in both families.
func TestSpaceLengths(t *testing.T) {
	for _, f := range []string{"IPv4", "IPv6"} {
		v4 := f == "IPv4"
		lengths := []int{0, 1, 31, 32}
		if !v4 {
			lengths = append(lengths, 63, 64, 65, 127, 128)
		}
		for _, pool := range lengths {
			for _, size := range lengths {
				if size < pool {
					continue
				}
				var s Space[owner]
				p := Block{Bits: uint8(pool)}
				first, ok := s.Next(p, uint8(size), p.Key)
				if !ok || s.Tally(p, uint8(size)).Free != least(size-pool) {
					t.Errorf("%v /%d in /%d: not free", f, size, pool)
				}
				got := Block{first, uint8(size)}
				if got.Prefix(v4).Bits() != size || BlockOf(got.Prefix(v4)) != got {
					t.Errorf("%v: %v does not come back", f, got.Prefix(v4))
				}
				s.Put(got, &Claim[owner]{})
				second, ok := s.Next(p, uint8(size), p.Key)
				if ok != (size > pool) {
					t.Errorf("%v /%d in /%d: a second one: %v", f, size, pool, ok)
				}
				if want := got.Last().Add(addr.U128{Lo: 1}); ok && second != want {
					t.Errorf("%v /%d in /%d: the second is %v", f, size, pool, second)
				}
				want := least(size - pool)
				if size-pool < 64 { // of 2^64 there are 2^64-1 left
					want--
				}
				if free := s.Tally(p, uint8(size)).Free; free != want {
					t.Errorf("%v /%d in /%d: %d free, want %d", f, size, pool, free, want)
				}
				last, ok := s.Next(p, uint8(size), truncate(p.Last(), uint8(size)))
				if ok != (size > pool) || ok && (Block{last, uint8(size)}).Last() != p.Last() {
					t.Errorf("%v /%d in /%d: the last one: %v, %v", f, size, pool, last, ok)
				}
			}
		}
	}
}

// Of a full space of 2^128 blocks nothing is free.
func TestTallyOfAFullSpace(t *testing.T) {
	var s Space[owner]
	all := Block{}
	for _, half := range []Block{all.half(0), all.half(1)} {
		s.Put(half, &Claim[owner]{Owner: new(owner)})
	}
	if free := s.Tally(all, 128).Free; free != 0 {
		t.Errorf("%d free", free)
	}
}

// The package comment says what a claim costs.
func TestSizeOfTheIndex(t *testing.T) {
	if size := unsafe.Sizeof(node[owner]{}); size > 40 {
		t.Errorf("a node takes %d bytes", size)
	}
	var s Space[owner]
	for i := range uint64(1000) {
		s.Put(Block{addr.U128{Hi: i * 0x9E3779B97F4A7C15}, 64}, &Claim[owner]{})
	}
	if n := len(s.nodes); n > 2*1000 {
		t.Errorf("%d nodes for 1,000 claims", n)
	}
}

// Random claims of all lengths against a list.
func TestSpaceAgainstList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var s Space[owner]
		type held struct {
			b Block
			c *Claim[owner]
		}
		var list []held
		world := BlockOf(netip.MustParsePrefix("fd00::8000:0:0:0/63"))
		for range 300 {
			if len(list) > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(len(list))
				s.Remove(list[i].b, list[i].c)
				list = slices.Delete(list, i, i+1)
			} else {
				bits := uint8(63 + rng.IntN(10))
				if rng.IntN(4) == 0 {
					bits = uint8(100 + rng.IntN(29))
				}
				key := world.Key.Or(addr.U128{Hi: rng.Uint64() & 1, Lo: rng.Uint64() & 0xff << 56})
				b := Block{truncate(key, bits), bits}
				c := &Claim[owner]{}
				s.Put(b, c)
				list = append(list, held{b, c})
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			got, ok := s.Next(world, 71, world.Key)
			var want addr.U128
			wok := false
			for k := world; ; k.Key = (Block{k.Key, 71}).Last().Add(addr.U128{Lo: 1}) {
				want = k.Key
				if !slices.ContainsFunc(list, func(h held) bool { return h.b.overlaps(Block{k.Key, 71}) }) {
					wok = true
					break
				}
				if (Block{k.Key, 71}).Last() == world.Last() {
					break
				}
			}
			if ok != wok || ok && got != want {
				t.Fatalf("%v %v, want %v %v", got, ok, want, wok)
			}
		}
	}
}
