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
