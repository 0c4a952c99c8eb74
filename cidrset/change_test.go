package cidrset_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cidrset"
)

// The receiver's prefixes are its own, whatever the caller does with the slice.
func TestOnChangeOwnsItsPrefixes(t *testing.T) {
	var told []cidrset.Change
	s := newSet(t, "10.0.0.0/24", 28, cidrset.OnChange(func(c cidrset.Change) { told = append(told, c) }))
	batch := make([]netip.Prefix, 2)
	if err := s.AllocateN(batch); err != nil {
		t.Fatal(err)
	}
	batch[0] = netip.Prefix{}
	if err := s.AllocateN(batch); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(told); got != "[{allocate [10.0.0.0/28 10.0.0.16/28]} {allocate [10.0.0.32/28 10.0.0.48/28]}]" {
		t.Fatal(got)
	}
}

// parallel runs f in n goroutines and waits for all.
func parallel(n int, f func(worker int)) {
	var wg sync.WaitGroup
	for w := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(w)
		}()
	}
	wg.Wait()
}

// While the receiver runs, changes of others are made but not told; they are
// told before their calls return.
func TestOneReceiverAtATime(t *testing.T) {
	var s *cidrset.Set
	var told []netip.Prefix
	inside := atomic.Int32{}
	first, second := pfx("10.0.0.0/28"), pfx("10.0.0.64/28")
	entered := make(chan struct{})
	s = newSet(t, "10.0.0.0/24", 28, cidrset.OnChange(func(c cidrset.Change) {
		inside.Add(1)
		defer inside.Add(-1)
		if c.Prefixes[0] == first {
			close(entered)
			for !s.Has(second) { // the other call has changed the set
				runtime.Gosched()
			}
			for range 1000 {
				runtime.Gosched()
				if inside.Load() != 1 {
					t.Error("two receivers at a time")
					return
				}
			}
		}
		told = append(told, c.Prefixes...)
	}))
	parallel(2, func(w int) {
		if w == 0 {
			_, _ = s.Occupy(first)
			return
		}
		<-entered
		_, _ = s.Occupy(second)
		if !slices.Equal(told, []netip.Prefix{first, second}) {
			t.Errorf("when the second call returns, %v were told", told)
		}
	})
}

// A receiver that panics does so in its caller, has been told what it was
// called with, and gets the rest later in its order; the set is neither locked nor
// behind.
func TestReceiverPanics(t *testing.T) {
	var s *cidrset.Set
	var told []netip.Prefix
	ps := prefixes("10.0.0.0/28 10.0.0.64/28 10.0.0.128/28 10.0.0.192/28")
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	s = newSet(t, "10.0.0.0/24", 28, cidrset.OnChange(func(c cidrset.Change) {
		told = append(told, c.Prefixes...)
		wait := [][]netip.Prefix{ps[1:3], ps[3:]} // what is queued while the first two are told
		n := len(told) - 1
		if n >= len(wait) {
			return
		}
		close(gates[n])
		for _, p := range wait[n] {
			for !s.Has(p) {
				runtime.Gosched()
			}
		}
		panic(n)
	}))
	var recovered atomic.Int32
	parallel(len(ps), func(w int) {
		defer func() {
			if recover() != nil {
				recovered.Add(1)
			}
		}()
		if w > 0 {
			<-gates[w/3]
		}
		_, _ = s.Occupy(ps[w])
	})
	if told[0] == ps[0] && told[1] == ps[2] { // the second and the third are in any order
		ps[1], ps[2] = ps[2], ps[1]
	}
	if !slices.Equal(told, ps) || recovered.Load() != 2 {
		t.Fatalf("told %v, %d panics", told, recovered.Load())
	}
	used(t, s, 4)
	check(t, s)
}

// A source or a clock of the caller's that panics leaves the set unlocked and as
// it was.
func TestCallersCodePanics(t *testing.T) {
	armed := false
	opts := []cidrset.Option{
		cidrset.Random(sourceFunc(func() uint64 {
			if armed {
				panic("source")
			}
			return 7
		})),
		cidrset.Cooldown(time.Minute, func() time.Time { return time.Unix(1000, 0) }),
	}
	s := newSet(t, "10.0.0.0/24", 28, opts...)
	if _, err := s.AllocateNext(); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, s)
	armed = true
	for _, call := range []func(){
		func() { _, _ = s.AllocateNext() },
		func() { _ = s.AllocateN(make([]netip.Prefix, 1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic came out")
				}
			}()
			call()
		}()
		done := make(chan []byte, 1)
		go func() { data, _ := s.MarshalBinary(); done <- data }()
		select {
		case data := <-done:
			if string(data) != string(before) {
				t.Error("the set has changed")
			}
		case <-time.After(time.Minute):
			t.Fatal("the set stays locked")
		}
	}
}

type sourceFunc func() uint64

func (f sourceFunc) Uint64() uint64 { return f() }

// No change is lost or told twice, however many come at once.
func TestEveryChangeIsToldOnce(t *testing.T) {
	const workers, calls = 8, 3000
	told := 0
	s := newSet(t, "10.0.0.0/16", 28, cidrset.OnChange(func(cidrset.Change) { told++ }))
	parallel(workers, func(int) {
		for range calls {
			p, err := s.AllocateNext()
			if n, err2 := s.Release(p); err != nil || err2 != nil || n != 1 {
				t.Error(n, err, err2)
			}
		}
	})
	if told != 2*workers*calls {
		t.Fatalf("%d changes told of %d", told, 2*workers*calls)
	}
}

// Many change one set; iterators and hooks read it meanwhile. Each change
// has been told when its call returns, one receiver runs at a time, and the journal,
// replayed in its order, gives the same set.
func TestHammer(t *testing.T) {
	const workers, calls = 8, 300
	var (
		s       *cidrset.Set
		journal []cidrset.Change // unguarded: one call at a time is the promise
		inside  atomic.Int32
		mu      sync.Mutex
		told    = map[netip.Prefix]int{} // how often each was told as allocated
	)
	s = newSet(t, "10.0.0.0/20", 28, cidrset.OnChange(func(c cidrset.Change) {
		if inside.Add(1) != 1 {
			t.Error("two receivers at a time")
		}
		defer inside.Add(-1)
		journal = append(journal, c)
		if c.Op == cidrset.OpAllocate {
			mu.Lock()
			for _, p := range c.Prefixes {
				told[p]++
			}
			mu.Unlock()
		}
		_ = s.Stats()
		for range s.FreePrefixes() {
			break
		}
	}))
	parallel(workers, func(w int) {
		rng := rand.New(rand.NewPCG(uint64(w), 9))
		var held []netip.Prefix
		took := func(ps ...netip.Prefix) {
			mu.Lock()
			defer mu.Unlock()
			for _, p := range ps {
				if told[p] == 0 {
					t.Errorf("%v was not told when the call returned", p)
				}
			}
			held = append(held, ps...)
		}
		for range calls {
			switch rng.IntN(7) {
			case 0, 1:
				if p, err := s.AllocateNext(); err == nil {
					took(p)
				}
			case 2:
				if p, err := s.AllocatePrefix(28 - rng.IntN(4)); err == nil {
					took(p)
				}
			case 3:
				if batch := make([]netip.Prefix, 1+rng.IntN(5)); s.AllocateN(batch) == nil {
					took(batch...)
				}
			case 4, 5:
				for range min(len(held), 1+rng.IntN(3)) {
					i := rng.IntN(len(held))
					if n, err := s.Release(held[i]); err != nil || n != capacity(28-held[i].Bits()) {
						t.Errorf("Release(%v) = %d, %v: someone else had it", held[i], n, err)
					}
					held = slices.Delete(held, i, i+1)
				}
			case 6:
				for p := range s.All() {
					if p.Bits() != 28 {
						t.Errorf("%v is no child", p)
					}
					if rng.IntN(40) == 0 {
						break
					}
				}
			}
		}
		if n, err := s.ReleaseN(held[:len(held)/2]); err != nil || len(held) > 1 && n == 0 {
			t.Error(n, err)
		}
	})
	check(t, s)
	again := newSet(t, "10.0.0.0/20", 28)
	for i, c := range journal {
		for _, p := range c.Prefixes {
			n, err := again.Occupy(p)
			if c.Op == cidrset.OpRelease {
				_, _ = again.Release(p)
				n = capacity(28-p.Bits()) - n // it was wholly taken
			}
			if err != nil || n != capacity(28-p.Bits()) {
				t.Fatalf("change %d, %v %v, is out of order: %d, %v", i, c.Op, p, n, err)
			}
		}
	}
	if !slices.Equal(slices.Collect(again.UsedPrefixes()), slices.Collect(s.UsedPrefixes())) {
		t.Fatal("the journal gives another set")
	}
}

// The same with cooldown and random picks, where the paths are others.
func TestHammerCooling(t *testing.T) {
	var second atomic.Int64
	s := newSet(t, "10.0.0.0/22", 28, cidrset.Random(rand.NewPCG(5, 1)),
		cidrset.Cooldown(3*time.Second, func() time.Time { return time.Unix(second.Load(), 0) }))
	var taken sync.Map
	parallel(6, func(int) {
		var held []netip.Prefix
		for i := range 500 {
			second.Add(1)
			if p, err := s.AllocateNext(); err == nil {
				if _, twice := taken.LoadOrStore(p, true); twice {
					t.Errorf("%v twice", p)
				}
				held = append(held, p)
			}
			if i%2 == 1 && len(held) > 0 {
				taken.Delete(held[0])
				if n, err := s.Release(held[0]); n != 1 || err != nil {
					t.Errorf("Release(%v) = %d, %v", held[0], n, err)
				}
				held = held[1:]
			}
			if i%100 == 0 {
				_, _ = s.MarshalBinary()
				for range s.All() {
					_ = s.Stats()
				}
			}
		}
	})
	check(t, s)
}

// A receiver that panics loses the change it was called with and no other.
func TestPanicInTheReceiverLosesNoOtherChange(t *testing.T) {
	var seen []netip.Prefix
	bad := netip.MustParsePrefix("10.0.1.0/24")
	set, err := cidrset.New(netip.MustParsePrefix("10.0.0.0/16"), 24, cidrset.OnChange(func(c cidrset.Change) {
		if c.Prefixes[0] == bad {
			panic("receiver")
		}
		seen = append(seen, c.Prefixes...)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		func() {
			defer func() { _ = recover() }()
			_, _ = set.AllocateNext()
		}()
	}
	if len(seen) != 3 || seen[1] != netip.MustParsePrefix("10.0.2.0/24") {
		t.Errorf("seen %v, want all but %v", seen, bad)
	}
}
