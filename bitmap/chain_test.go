package bitmap

import (
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/seeds"
)

// chains counts the inner nodes that hold one child and nothing else: the rest of
// their slot, inside them and outside, is in one state, so that the child could
// stand in it by itself.
func chains(up, nd *node) (n int) {
	kids, state, other := 0, false, 0
	var only *node
	for c := range uint64(fan) {
		switch {
		case c < uint64(len(nd.kid)) && nd.kid[c] != nil:
			kids++
			only = nd.kid[c]
		case nd.some>>c&1 != 0:
			other |= 2
		default:
			other |= 1
		}
	}
	if up != nil && kids == 1 && other != 3 && only.spare == 0 {
		state = other == 2
		if (!up.smaller(nd) || nd.outer == state) && (!nd.smaller(only) || only.outer == state) {
			n++
		}
	}
	for _, kid := range nd.kid {
		if kid != nil && kid.kid != nil {
			n += chains(nd, kid)
		}
	}
	return n
}

// The paths to isolated ordinals are compressed, not only when they are made
// but also when what forked from them goes away.
func TestNoChainIsKept(t *testing.T) {
	for seed := range seeds.Each(t, 40, 40) {
		rng := rand.New(rand.NewPCG(seed, 16))
		b := NewPow2(64 - int(seed%3)*20)
		holes := seed%2 == 1 // in a full set
		if holes {
			b.SetRange(0, b.last)
		}
		var xs []uint64
		for step := range 600 {
			if len(xs) > 0 && rng.UintN(5) < 2 {
				i := rng.IntN(len(xs))
				if holes {
					b.Set(xs[i])
				} else {
					b.Clear(xs[i])
				}
				xs[i] = xs[len(xs)-1]
				xs = xs[:len(xs)-1]
			} else {
				x := rng.Uint64() >> rng.UintN(60) & b.last
				if len(xs) > 0 && rng.UintN(3) != 0 { // forks off another at any level
					x = xs[rng.IntN(len(xs))] ^ 1<<rng.UintN(64)&b.last
				}
				if holes {
					b.Clear(x)
				} else {
					b.Set(x)
				}
				xs = append(xs, x)
			}
			if n := chains(nil, &b.root); n != 0 {
				t.Fatalf("seed %d, step %d: %d chains: %v", seed, step, n, b)
			}
		}
	}
}
