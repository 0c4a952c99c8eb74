package ipset

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// Blocks in which a cooldown has ended are read 64 at a time, not each by itself, and count as what they are by now.
func TestUtilizationReadsDueBlocksTogether(t *testing.T) {
	p := poolOf("p", "10.0.0.0/20", 28)
	p.Cooldown = time.Minute
	w := newWorld(t, alloc.Config{}, p)
	const blocks = 200
	for i := range blocks {
		host, handle := fmt.Sprint("h", i), fmt.Sprint("p", i)
		w.assign(want(host, 2, handle))
		if i%2 == 0 {
			w.releaseHandle(handle)
		}
	}
	w.clock.add(time.Hour)
	counted := faults.NewFaulty(w.store)
	use, err := w.engine(counted).Utilization(bg)
	if err != nil {
		t.Fatal(err)
	}
	if u := use[0]; u.Used.Lo != blocks || u.Cooling.Lo != 0 || len(u.Blocks) != blocks {
		t.Errorf("%d used, %d cooling, %d blocks", u.Used.Lo, u.Cooling.Lo, len(u.Blocks))
	}
	if n := counted.Counts().Calls(); n > 8 {
		t.Errorf("%d round trips for %d blocks, half of them due", n, blocks)
	}
}

// A block without owner in which the last lease has ended counts as no block, because the next call deletes it: the ends that were reserved
// in it are available.
func TestUtilizationOfABlockThatTimeEmpties(t *testing.T) {
	w := newWorld(t, alloc.Config{Strict: true}, poolOf("p", "10.0.0.0/29", 30))
	a := want("a", 1, "lease")
	a.Blocks, a.TTL = alloc.BlockArgs{Head: 1, Tail: 2}, time.Minute
	w.assign(a)
	if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
		t.Fatal(err)
	}
	w.clock.add(time.Hour)
	use, err := w.Utilization(bg)
	if err != nil {
		t.Fatal(err)
	}
	if u := use[0]; u.Available.Lo != 8 || u.Reserved.Lo != 0 || len(u.Blocks) != 0 {
		t.Errorf("%v available, %v reserved, blocks %v", u.Available, u.Reserved, u.Blocks)
	}
	if got := w.assign(want("b", 8, "x")); len(got.V4) != 8 {
		t.Errorf("%d addresses are assigned", len(got.V4))
	}
}
