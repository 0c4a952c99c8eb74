package hook_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipalloc/ipalloc/internal/hook"
)

// counter is an allocator in miniature: it numbers its changes under its lock.
type counter struct {
	mu   sync.Mutex
	n    int
	hook *hook.Queue[int]
}

func newCounter(f func(int)) *counter {
	c := &counter{}
	c.hook = hook.New(&c.mu, f)
	return c
}

// next makes one change and returns its number.
func (c *counter) next() int {
	c.mu.Lock()
	n := c.n
	c.n++
	c.hook.Add(n)
	c.mu.Unlock()
	c.hook.Deliver()
	return n
}

func spawn(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
}

func TestNilQueue(t *testing.T) {
	var q *hook.Queue[int]
	q.Add(1)
	q.Deliver()
}

// Every change arrives once, in order, and before the call that made it returns.
func TestOrder(t *testing.T) {
	var seen []int
	var highest atomic.Int64
	highest.Store(-1)
	c := newCounter(func(n int) { seen = append(seen, n); highest.Store(int64(n)) })
	var wg sync.WaitGroup
	for range 16 {
		spawn(&wg, func() {
			for range 500 {
				if n := c.next(); int64(n) > highest.Load() {
					t.Errorf("change %d returned before it was delivered", n)
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != 8000 || !slices.IsSorted(seen) {
		t.Errorf("%d changes delivered, sorted %v", len(seen), slices.IsSorted(seen))
	}
}

// A receiver that panics, or ends its goroutine, loses no change.
func TestPanicLosesNothing(t *testing.T) {
	for _, end := range []func(){func() { panic("disk full") }, runtime.Goexit} {
		var seen []int
		c := newCounter(func(n int) {
			seen = append(seen, n)
			if n%3 == 0 {
				end()
			}
		})
		var wg sync.WaitGroup
		for range 8 {
			for range 100 {
				spawn(&wg, func() {
					defer func() { _ = recover() }()
					c.next()
				})
			}
		}
		wg.Wait()
		if len(seen) != 800 || !slices.IsSorted(seen) {
			t.Errorf("%d of 800 changes delivered, sorted %v", len(seen), slices.IsSorted(seen))
		}
	}
}

// When a panic leaves Deliver, the changes that waited with the one that panicked
// have been delivered, the caller's own included.
func TestPanicDeliversTheRest(t *testing.T) {
	var seen []int
	c := newCounter(func(n int) {
		seen = append(seen, n)
		if n == 0 {
			panic("first")
		}
	})
	c.mu.Lock()
	for n := range 3 {
		c.hook.Add(n)
	}
	c.mu.Unlock()
	func() {
		defer func() {
			if recover() != "first" {
				t.Error("the panic did not reach the caller")
			}
		}()
		c.hook.Deliver()
	}()
	if !slices.Equal(seen, []int{0, 1, 2}) {
		t.Errorf("delivered %v", seen)
	}
}

// A caller delivers the changes that wait when its turn begins. A change that is added
// while the receiver runs is left to the call that made it.
func TestTurnIsBounded(t *testing.T) {
	var c *counter
	calls := 0
	c = newCounter(func(int) {
		calls++
		if calls > 1000 {
			t.Fatal("the first caller still delivers")
		}
		c.mu.Lock() // another goroutine's change, made while the receiver runs
		c.hook.Add(c.n)
		c.n++
		c.mu.Unlock()
	})
	c.next()
	if calls != 1 {
		t.Errorf("one call delivered %d changes", calls)
	}
}

// A caller that only confirms waits for the change in flight.
func TestConfirmationWaits(t *testing.T) {
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	c := newCounter(func(int) { close(inFlight); <-goOn; done.Store(true) })
	go c.next()
	<-inFlight
	confirmed := make(chan bool)
	go func() { c.hook.Deliver(); confirmed <- done.Load() }()
	select {
	case <-confirmed:
		t.Fatal("confirmed a change in flight")
	default:
	}
	close(goOn)
	if !<-confirmed {
		t.Error("confirmed before the receiver returned")
	}
}

// Steady state does not allocate.
func TestAllocations(t *testing.T) {
	c := newCounter(func(int) {})
	if n := testing.AllocsPerRun(1000, func() { c.next() }); n != 0 {
		t.Errorf("%v allocations a change", n)
	}
}

// A receiver that panics at each change of a long turn is called at the same depth each
// time, and the first panic reaches the caller.
func TestPanicsDoNotNest(t *testing.T) {
	var depths []int
	c := newCounter(func(n int) {
		depths = append(depths, runtime.Callers(0, make([]uintptr, 1000)))
		panic(n)
	})
	c.mu.Lock()
	for n := range 200 {
		c.hook.Add(n)
	}
	c.mu.Unlock()
	func() {
		defer func() {
			if p := recover(); p != 0 {
				t.Errorf("recovered %v", p)
			}
		}()
		c.hook.Deliver()
	}()
	if len(depths) != 200 || depths[199] != depths[1] {
		t.Errorf("%d calls, at depths %v", len(depths), depths)
	}
}

// TryDeliver delivers what waits, but not from within the receiver.
func TestTryDeliver(t *testing.T) {
	var q *hook.Queue[int]
	q.TryDeliver()
	var seen []int
	var c *counter
	c = newCounter(func(n int) {
		c.hook.TryDeliver()
		seen = append(seen, n)
	})
	c.next()
	c.mu.Lock()
	c.hook.Add(7)
	c.mu.Unlock()
	c.hook.TryDeliver()
	if !slices.Equal(seen, []int{0, 7}) {
		t.Errorf("delivered %v", seen)
	}
}
