package nodeipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/selector"
)

// byLabels returns an allocator with two entries that overlap, and its configuration.
func byLabelsForTest(t testing.TB, opts ...Option) *Allocator {
	t.Helper()
	a := mustNew(t, Config{ByLabels: true}, opts...)
	for _, e := range []Entry{
		{Name: "x", IPv4: pfx("10.0.0.0/20"), HostBits: 8, Selector: []selector.Term{{Labels: []selector.Requirement{{Key: "a", Op: selector.Exists}}}}},
		{Name: "y", IPv4: pfx("10.0.0.0/16"), HostBits: 6},
	} {
		if err := a.AddEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// A receiver that panics loses the changes of no other caller, in either policy.
func TestPanicInTheReceiverLosesNoOtherChange(t *testing.T) {
	for _, labels := range []bool{false, true} {
		var told []string
		entered, others := make(chan struct{}), make(chan struct{})
		receiver := OnChange(func(c Change) {
			if len(c.Nodes) == 0 {
				return
			}
			told = append(told, c.Nodes[0].Name)
			if c.Nodes[0].Name == "a" {
				close(entered)
				<-others
				panic("receiver")
			}
		})
		var a *Allocator
		if labels {
			a = byLabelsForTest(t, receiver)
		} else {
			a = mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}}, receiver)
		}
		var group sync.WaitGroup
		run := func(name string) {
			group.Add(1)
			go func() {
				defer group.Done()
				defer func() {
					if (recover() != nil) != (name == "a") {
						t.Errorf("%s: wrong caller panics", name)
					}
				}()
				_, _ = a.Allocate(Node{Name: name})
			}()
		}
		run("a")
		<-entered
		run("b")
		run("c")
		for a.Stats().Nodes < 3 {
			time.Sleep(time.Millisecond)
		}
		close(others)
		group.Wait()
		slices.Sort(told)
		if !slices.Equal(told, []string{"a", "b", "c"}) {
			t.Errorf("labels %v: told %v", labels, told)
		}
	}
}

// Allocate of a node that holds something answers after the receiver has seen the
// change that gave it.
func TestAllocateAnswersAfterTheDelivery(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var delivered atomic.Bool
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}}, OnChange(func(Change) {
		close(entered)
		<-leave
		delivered.Store(true)
	}))
	go func() { _, _ = a.Allocate(Node{Name: "n"}) }()
	<-entered
	answered := make(chan bool)
	go func() {
		_, _ = a.Allocate(Node{Name: "n"})
		answered <- delivered.Load()
	}()
	select {
	case <-answered:
		t.Fatal("answered while the change was with the receiver")
	case <-time.After(20 * time.Millisecond): // long enough for a call that does not wait
	}
	close(leave)
	if !<-answered {
		t.Fatal("answered before the delivery")
	}
}

// Apply refuses what it does not know, what belongs to the other policy and what no
// allocator says, and then changes nothing.
func TestApplyRefuses(t *testing.T) {
	slots := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	labels := byLabelsForTest(t)
	two := []Node{{Name: "m", Prefixes: pfxs("10.0.3.0/24")}, {Name: "n"}}
	for _, c := range []struct {
		a    *Allocator
		c    Change
		want error
	}{
		{slots, Change{}, ipalloc.ErrVersion},
		{labels, Change{}, ipalloc.ErrVersion},
		{slots, Change{Op: OpDeleteEntry + 1, Nodes: two[:1]}, ipalloc.ErrVersion},
		{labels, Change{Op: 255, Nodes: two[:1]}, ipalloc.ErrVersion},
		{slots, Change{Op: OpAddEntry, Added: Entry{Name: "e", IPv4: pfx("10.1.0.0/16"), HostBits: 8}}, ipalloc.ErrMismatch},
		{slots, Change{Op: OpDeleteEntry, Entry: "x"}, ipalloc.ErrMismatch},
		{labels, Change{Op: OpAddPool, Prefix: pfx("10.1.0.0/16")}, ipalloc.ErrMismatch},
		{labels, Change{Op: OpRemovePool, Prefix: pfx("10.1.0.0/16")}, ipalloc.ErrMismatch},
		{slots, Change{Op: OpOccupy, Nodes: two}, ipalloc.ErrCorrupt},
		{labels, Change{Op: OpAllocate, Nodes: []Node{two[0], {Name: "n", Prefixes: pfxs("10.0.0.0/24", "10.0.0.0/24")}}}, ipalloc.ErrCorrupt},
		{slots, Change{Op: OpOccupy, Nodes: []Node{{Name: "n", Prefixes: pfxs("10.0.0.1/24")}}}, ipalloc.ErrCorrupt},
		{slots, Change{Op: OpReserve, Prefix: pfx("10.0.0.1/24")}, ipalloc.ErrCorrupt},
		{slots, Change{Op: OpAddPool, Slot: 1, Prefix: pfx("10.1.0.0/16")}, ipalloc.ErrInvalid},
		{slots, Change{Op: OpAddPool, Prefix: pfx("10.1.0.0/25")}, ipalloc.ErrInvalid},
		{slots, Change{Op: OpGrowPool, Prefix: pfx("10.0.0.0/16")}, ipalloc.ErrInvalid},
		{slots, Change{Op: OpGrowPool, Prefix: pfx("10.0.0.0/16"), Grown: pfx("10.0.0.0/17")}, ipalloc.ErrInvalid},
		{labels, Change{Op: OpAddEntry, Nodes: two[:1]}, ipalloc.ErrInvalid},
	} {
		before := snapshot(t, c.a)
		err := c.a.Apply(c.c)
		var e *ipalloc.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Op != "apply" || snapshot(t, c.a) != before {
			t.Errorf("%+v: %v, want %v and no change", c.c, err, c.want)
		}
	}
}

// A journal of pools that come, grow, drain and go, and of nodes, may be replayed from
// any point on the snapshot that was made at its end: no pool comes back, and they stay
// in their order with their cursors.
func TestApplyOverASnapshotOfPools(t *testing.T) {
	for seed := range seeds.Each(t, 60, 60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		cfg := Config{Slots: []Slot{{26, pfxs("192.168.0.0/24")}, {28, pfxs("172.16.0.0/26")}}}
		var journal []Change
		a := mustNew(t, cfg, OnChange(func(c Change) { journal = append(journal, c) }))
		pool := func() netip.Prefix {
			p, _ := netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(8)), 0}).Prefix(21 + rnd.IntN(4))
			return p
		}
		for range 40 {
			p, q := pool(), pool()
			switch rnd.IntN(9) {
			case 0, 1, 2:
				_ = a.AddPool(rnd.IntN(2), p)
			case 3:
				_ = a.GrowPool(p, q)
			case 4:
				_ = a.RemovePool(p)
			case 5:
				_ = a.DrainPool(p, rnd.IntN(2) == 0)
			case 6:
				a.Release(fmt.Sprint("n", rnd.IntN(6)))
			default:
				_, _ = a.Allocate(Node{Name: fmt.Sprint("n", rnd.IntN(6))})
			}
		}
		want := snapshot(t, a)
		for from := range journal {
			b, err := Restore([]byte(want))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range journal[from:] {
				if err := b.Apply(c); err != nil {
					t.Fatalf("seed %d, %v: %v", seed, c.Op, err)
				}
			}
			if err := b.Check(); err != nil || snapshot(t, b) != want {
				t.Fatalf("seed %d: the replay from change %d gives another state (%v): %+v, want %+v", seed, from, err, b.Stats().Pools, a.Stats().Pools)
			}
		}
	}
}

// A change whose pools are not what its kind says, or cannot be, is refused.
func TestApplyRefusesPools(t *testing.T) {
	a := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16")}}})
	good := PoolState{0, pfx("10.0.0.0/16"), false, netip.MustParseAddr("10.0.3.0")}
	for i, c := range []Change{
		{Op: OpAddPool, Prefix: pfx("10.1.0.0/16"), Pools: []PoolState{good}},
		{Op: OpAddPool, Prefix: good.Prefix, Slot: 1, Pools: []PoolState{good}},
		{Op: OpDrainPool, Prefix: good.Prefix, Pools: []PoolState{good}},
		{Op: OpUndrainPool, Prefix: good.Prefix, Pools: []PoolState{{0, good.Prefix, true, good.Cursor}}},
		{Op: OpGrowPool, Prefix: pfx("10.0.0.0/15"), Grown: good.Prefix, Pools: []PoolState{good}},
		{Op: OpRemovePool, Prefix: good.Prefix, Pools: []PoolState{{1, good.Prefix, false, good.Cursor}}},
		{Op: OpRemovePool, Prefix: good.Prefix, Pools: []PoolState{{0, good.Prefix, false, netip.MustParseAddr("10.0.3.1")}}},
		{Op: OpRemovePool, Prefix: good.Prefix, Pools: []PoolState{{0, good.Prefix, false, netip.MustParseAddr("10.9.0.0")}}},
		{Op: OpRemovePool, Prefix: good.Prefix, Pools: []PoolState{{Prefix: good.Prefix}}},
		{Op: OpRemovePool, Prefix: good.Prefix, Pools: []PoolState{good, good}},
	} {
		before := snapshot(t, a)
		if err := a.Apply(c); err == nil || snapshot(t, a) != before {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// A follower whose changes begin before its snapshot is right at the end of the overlap,
// with the bytes of that snapshot. Amid the overlap Check objects to a terminating entry
// without nodes; what is restored from a snapshot made then lacks it for good, and the node
// keeps what it holds of it.
func TestSnapshotAmidAReplay(t *testing.T) {
	var log []Change
	a := mustNew(t, Config{ByLabels: true}, OnChange(func(c Change) { log = append(log, c) }))
	err := a.AddEntry(Entry{Name: "e", IPv4: pfx("10.0.0.0/20"), HostBits: 8})
	for range 2 {
		a.Release("n")
		_, again := a.Allocate(Node{Name: "n"})
		err = errors.Join(err, again)
	}
	_, late := a.DeleteEntry("e")
	if err = errors.Join(err, late, a.Check()); err != nil {
		t.Fatal(err)
	}
	first, _ := a.MarshalBinary()
	restored := func(data []byte) (*Allocator, []string) {
		b, err := Restore(data)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for e := range b.Entries() {
			names = append(names, e.Name)
		}
		return b, names
	}
	f, _ := restored(first)
	for i, c := range log[2:] { // from the release on, which the snapshot has already
		if err := f.Apply(c); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		amid, _ := f.MarshalBinary()
		b, names := restored(amid)
		if err := b.Check(); err != nil || len(names) != 0 {
			t.Errorf("restored amid the replay: entries %q, %v", names, err)
		}
		for _, c := range log[3:] {
			if err := b.Apply(c); err != nil {
				t.Fatal(err)
			}
		}
		if n, held := b.Lookup("n"); !held || n.Entry != "e" || b.Check() != nil {
			t.Errorf("restored amid the replay, at its end: %+v, %v", n, b.Check())
		}
		if _, again := b.Allocate(Node{Name: "m"}); !errors.Is(again, ipalloc.ErrNotFound) || !errors.Is(f.Check(), ipalloc.ErrCorrupt) {
			t.Errorf("%v; amid the replay: %v", again, f.Check())
		}
	}
	if data, _ := f.MarshalBinary(); string(data) != string(first) || f.Check() != nil {
		t.Errorf("at the end of the overlap the follower has not the state of its snapshot: %v", f.Check())
	}
}
