package ipset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// held returns the addresses that are held for a host, as text.
func (w *world) heldFor(host string) string {
	w.t.Helper()
	als, err := w.IPsByHost(bg, alloc.HostOwner(host))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, al := range als {
		if al.Host != alloc.HostOwner(host) || al.Cooling {
			w.t.Errorf("%+v is not held for %s", al, host)
		}
	}
	return lastBytes(als)
}

func TestReleaseByHost(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, alloc.Config{Strict: strict}, poolOf("a", "10.0.0.0/28", 29))
		w.assign(want("a", 5, "p"))
		w.assign(want("b", 8, "q"))
		if !strict {
			w.assign(want("b", 2, "q")) // of a's block
		}
		if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner("a")}); err != nil {
			t.Fatal(err)
		}
		a := w.heldFor("a")
		if w.assign(want("c", 1, "p")); len(a) != len("0 1 2 3 4") {
			t.Fatalf("strict %v: held for a: %s", strict, a)
		}
		if w.heldFor("a") != a {
			t.Errorf("strict %v: once another has the block or a part of it, %s are held for a, before %s", strict, w.heldFor("a"), a)
		}
		w.check()
		as, err := w.ReleaseByHost(bg, alloc.HostOwner("a"))
		if err != nil || len(as) != 5 || w.heldFor("a") != "" {
			t.Errorf("strict %v: released %v, %v, left %s", strict, as, err, w.heldFor("a"))
		}
		w.check()
		as, blocks, err := w.RemoveHost(bg, alloc.HostOwner("b"))
		if n := map[bool]int{false: 10, true: 8}[strict]; err != nil || len(as) != n || len(blocks) != 1 || w.heldFor("b") != "" {
			t.Errorf("strict %v: removing b released %v and %v, %v", strict, as, blocks, err)
		}
		if w.heldFor("c") == "" || w.records(record.KindHandle) != 1 {
			t.Errorf("strict %v: c has %q", strict, w.heldFor("c"))
		}
		if as, err := w.ReleaseByHost(bg, alloc.HostOwner("b")); err != nil || len(as) != 0 {
			t.Errorf("strict %v: again: %v, %v", strict, as, err)
		}
	}
	w := newWorld(t, alloc.Config{})
	if _, err := w.ReleaseByHost(bg, alloc.Owner{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
	if _, err := w.IPsByHost(bg, alloc.HostOwner("")); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}

// TestHostMoves: a virtual machine is migrated, so that the removal of the host it left does not take its address.
func TestHostMoves(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	al := w.assign(want("a", 1, "vm")).V4[0]
	to := alloc.HostOwner("b")
	for _, tt := range []struct {
		to   alloc.Owner
		want error
	}{{alloc.Owner{}, ipalloc.ErrInvalid}, {to, nil}, {to, nil}} {
		err := w.Update(bg, alloc.UpdateArgs{Address: al.Address, Guard: alloc.Guard{Handle: "vm"}, Active: &al.Attributes, Host: &tt.to})
		if !errors.Is(err, tt.want) {
			t.Errorf("to %v: %v", tt.to, err)
		}
		w.check()
	}
	if a, b := w.heldFor("a"), w.heldFor("b"); a != "" || b == "" {
		t.Errorf("a has %q, b %q", a, b)
	}
	if as, _, err := w.RemoveHost(bg, alloc.HostOwner("a")); err != nil || len(as) != 0 {
		t.Errorf("%v, %v", as, err)
	}
	if got, err := w.Lookup(bg, al.Address); err != nil || got.Host != to || got.Seq != al.Seq {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHostsAtRandom compares who every address is held for with a map, while blocks change their owners.
func TestHostsAtRandom(t *testing.T) {
	r, steps := rand.New(rand.NewPCG(7, 8)), 1500
	if testing.Short() {
		steps = 300
	}
	for _, strict := range []bool{false, true} {
		p := poolOf("a", "10.0.0.0/26", 29)
		p.Cooldown = 10 * time.Second
		w := newWorld(t, alloc.Config{Strict: strict}, p)
		held := make(map[netip.Addr]string)
		ended := make(map[netip.Addr]time.Time)
		for n := range steps {
			w.clock.add(time.Second)
			host := fmt.Sprint("h", r.IntN(4))
			switch r.IntN(9) {
			case 0, 1, 2, 3:
				a := want(host, 1+r.IntN(4), fmt.Sprint("p", r.IntN(6)))
				if r.IntN(3) == 0 {
					a.TTL = 20 * time.Second
				}
				for _, al := range w.assign(a).V4 {
					held[al.Address] = host
					delete(ended, al.Address)
					if a.TTL > 0 {
						ended[al.Address] = al.Until
					}
				}
			case 4, 5:
				for _, a := range w.releaseHandle(fmt.Sprint("p", r.IntN(6))) {
					delete(held, a)
				}
			case 6:
				if _, err := w.DisownBlocks(bg, alloc.DisownArgs{Owner: alloc.HostOwner(host)}); err != nil {
					t.Fatal(err)
				}
			case 7:
				as, err := w.ReleaseByHost(bg, alloc.HostOwner(host))
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range as {
					if held[a] != host {
						t.Fatalf("step %d: %s was released for %s, and is held for %q", n, a, host, held[a])
					}
					delete(held, a)
				}
			case 8:
				if as := slices.SortedFunc(maps.Keys(held), netip.Addr.Compare); len(as) > 0 {
					a, to := as[r.IntN(len(as))], alloc.HostOwner(host)
					if err := w.Update(bg, alloc.UpdateArgs{Address: a, Host: &to}); err == nil {
						held[a] = host
					}
				}
			}
			for a, until := range ended {
				if !until.After(w.clock.now()) {
					delete(held, a)
					delete(ended, a)
				}
			}
			w.check()
			for i := range 4 {
				w.compareHost(fmt.Sprint("h", i), held)
			}
		}
	}
}

// compareHost compares the addresses that are held for a host with a map of who each is held for.
func (w *world) compareHost(host string, held map[netip.Addr]string) {
	w.t.Helper()
	want := map[netip.Addr]bool{}
	for a, h := range held {
		if h == host {
			want[a] = true
		}
	}
	als, err := w.IPsByHost(bg, alloc.HostOwner(host))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, al := range als {
		if !want[al.Address] {
			w.t.Fatalf("%+v is not held for %s", al, host)
		}
		delete(want, al.Address)
	}
	if len(want) > 0 {
		w.t.Fatalf("%v are held for %s, too", want, host)
	}
}

// TestRemovalOfAHostGoesInSteps: more addresses than one commit takes, each with a handle of its own, and an interruption at
// every commit.
func TestRemovalOfAHostGoesInSteps(t *testing.T) {
	const n = 100
	for interrupted := 1; ; interrupted++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/25", 26))
		for i := range n {
			w.assign(want("a", 1, fmt.Sprint("p", i)))
		}
		w.assign(want("b", 10, "q"))
		w.assign(want("b", 128, "r")) // of all that is left
		ctx, cancel := context.WithCancel(bg)
		commits := 0
		e := w.engine(onCommit(limited(w.store, 32), func(context.Context, []store.Op) faults.Outcome {
			if commits++; commits == interrupted {
				cancel()
			}
			return faults.Outcome{}
		}))
		as, blocks, err := e.RemoveHost(ctx, alloc.HostOwner("a"))
		cancel()
		w.check()
		if err == nil {
			if commits < n/16 || len(as) != n || len(blocks) != 2 {
				t.Fatalf("%d commits for %d addresses and blocks %v", commits, len(as), blocks)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		more, _, err := e.RemoveHost(bg, alloc.HostOwner("a"))
		if err != nil || len(as)+len(more) != n {
			t.Fatalf("interrupted at commit %d: %d and %d addresses, %v", interrupted, len(as), len(more), err)
		}
		if w.heldFor("a") != "" || len(w.blocksOf("a")) != 0 {
			t.Fatalf("interrupted at commit %d: left %q and %v", interrupted, w.heldFor("a"), w.blocksOf("a"))
		}
	}
}

// TestManyLeasesEndInSteps: the leases of a large block end at once, and one commit cannot take all their handles.
func TestManyLeasesEndInSteps(t *testing.T) {
	const n = 300
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/23", 23))
	for i := range n {
		a := want("a", 1, fmt.Sprint("p", i))
		a.TTL = time.Minute
		w.assign(a)
	}
	w.clock.add(2 * time.Minute)
	e := w.engine(limited(w.store, 64))
	if got, err := e.AutoAssign(bg, want("a", 1, "new")); err != nil || len(got.V4) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	w.check()
	if _, err := e.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	w.check()
	if h, d := w.records(record.KindHandle), w.records(record.KindDue); h != 1 || d != 0 {
		t.Errorf("%d handles are left, %d blocks due", h, d)
	}
}

// A block that comes back to its host while the host's addresses are looked for is in none of the lists that are read one after the
// other. Its addresses were held for the host all the while, so they are found.
func TestBlockComesBackToItsHost(t *testing.T) {
	calls := map[string]func(e *Engine, o alloc.Owner) (int, error){
		"IPsByHost": func(e *Engine, o alloc.Owner) (int, error) { als, err := e.IPsByHost(bg, o); return len(als), err },
		"ReleaseByHost": func(e *Engine, o alloc.Owner) (int, error) {
			as, err := e.ReleaseByHost(bg, o)
			return len(as), err
		},
		"RemoveHost": func(e *Engine, o alloc.Owner) (int, error) { as, _, err := e.RemoveHost(bg, o); return len(as), err },
	}
	for name, call := range calls {
		for nth := range 6 {
			for _, leaves := range []bool{false, true} {
				w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
				o := alloc.HostOwner("o")
				at := w.assign(want("o", 2, "pod")).V4[0].Block
				change := func() (err error) {
					if leaves {
						_, err = w.DisownBlocks(bg, alloc.DisownArgs{Owner: o})
					} else {
						_, _, err = w.ClaimAffinity(bg, at, o)
					}
					return err
				}
				if leaves = !leaves; change() != nil { // the other one first
					t.Fatal(name)
				}
				leaves = !leaves
				f := faults.NewFaulty(w.store)
				e := w.engine(f)
				f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
					if c.N == nth+1 {
						if err := change(); err != nil {
							t.Error(err)
						}
					}
					return faults.Outcome{}
				})
				if n, err := call(e, o); err != nil || n != 2 {
					t.Errorf("%s, before call %d, leaves %v: %d addresses, %v", name, nth+1, leaves, n, err)
				}
				f.Script(nil)
			}
		}
	}
}
