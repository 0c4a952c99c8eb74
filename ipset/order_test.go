package ipset

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// ordered returns a pool of one block with an order.
func ordered(name, prefix string, bits int, o alloc.Order) alloc.Pool {
	p := poolOf(name, prefix, bits)
	p.Order = o
	return p
}

// TestRandomFollowsFromState: the same calls on two stores give the same addresses, from whichever engine and dry or not; another seed
// of the pool gives others.
func TestRandomFollowsFromState(t *testing.T) {
	run := func(seed uint64) (got []string) {
		p := ordered("a", "10.0.0.0/24", 24, alloc.Random)
		p.Seed = seed
		w := newWorld(t, alloc.Config{}, p)
		engines := []*Engine{w.Engine, w.engine(w.store)}
		for i := range 60 {
			e := engines[i%2]
			a := want("h", 1+i%3, fmt.Sprint("p", i%7))
			dry, err := e.DryRun().AutoAssign(bg, a)
			if err != nil {
				t.Fatal(err)
			}
			real, err := e.AutoAssign(bg, a)
			if err != nil || !slices.EqualFunc(dry.V4, real.V4, func(x, y alloc.Allocation) bool { return x.Address == y.Address }) {
				t.Fatalf("dry %v, then %v, %v", dry, real, err)
			}
			for _, al := range real.V4 {
				got = append(got, al.Address.String())
			}
			if i%5 == 4 {
				w.releaseHandle(fmt.Sprint("p", i%7))
			}
		}
		w.check()
		return got
	}
	one, again, other := run(1), run(1), run(2)
	if !slices.Equal(one, again) || slices.Equal(one, other) || slices.IsSorted(one) {
		t.Errorf("%v, %v, %v", one, again, other)
	}
}

// TestOrderChanges: the order of a pool can change at any time; its first-in first-out queue goes on where it was.
func TestOrderChanges(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29))
	w.assign(want("h", 6, "p"))
	w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.4")})
	w.ReleaseIPs(bg, alloc.Release{Address: ip("10.0.0.1")})
	for _, o := range []alloc.Order{alloc.Lowest, alloc.Random, alloc.FIFO} {
		if err := w.UpdatePool(bg, ordered("a", "10.0.0.0/29", 29, o)); err != nil {
			t.Fatal(err)
		}
		got := w.assign(want("h", 1, "q")).V4[0].Address
		if o == alloc.Lowest && got != ip("10.0.0.1") {
			t.Errorf("lowest is %s", got)
		}
		w.check()
	}
	w.refuses("unknown order", w.UpdatePool(bg, ordered("a", "10.0.0.0/29", 29, 3)), ipalloc.ErrInvalid, "Order", "order 3")
	if err := w.AddPool(bg, ordered("b", "10.0.1.0/29", 29, 9)); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
