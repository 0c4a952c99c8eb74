package ipset

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/internal/txn"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// emptied returns an engine on a store with limits, and one of its spaces, which has no pool left and much to remove.
func emptied(t *testing.T, mem store.Store) (f *faults.Faulty, e, red *Engine) {
	t.Helper()
	f = faults.NewLimited(mem, store.Limits{Ops: 20, Key: 1000, Value: 1 << 16, Bytes: 1 << 18})
	e, err := New(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	red = inSpace(t, e, "red")
	if err := red.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		a := want(fmt.Sprint("h", i), 1, "pod")
		a.Request = fmt.Sprint("request", i)
		if _, err := red.AutoAssign(bg, a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := red.ReleaseByHandle(bg, "pod"); err != nil {
		t.Fatal(err)
	}
	if err := red.RemovePool(bg, "p"); err != nil {
		t.Fatal(err)
	}
	return f, e, red
}

// TestRemoveSpaceOfManyHosts: the empty blocks of more hosts than are read at a time are given back.
func TestRemoveSpaceOfManyHosts(t *testing.T) {
	root := newWorld(t, alloc.Config{})
	e, err := root.InSpace("many")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(bg, poolOf("a", "10.0.0.0/16", 31)); err != nil {
		t.Fatal(err)
	}
	for i := range txn.ReadMost + 100 {
		if _, err := e.EnsureBlock(bg, want(fmt.Sprint("h", i), 1, "")); err != nil {
			t.Fatal(err)
		}
	}
	for range e.Operator().Blocks(bg, netip.Prefix{}) { // a loop that is left reads no more of them
		break
	}
	if err := e.RemovePool(bg, "a"); err != nil {
		t.Fatal(err)
	}
	if err := root.Operator().RemoveSpace(bg, "many"); err != nil {
		t.Error(err)
	}
	if left := root.list(store.Range{}); len(left) > 2 { // the catalog of the space without a name
		t.Errorf("%d records are left, %q first", len(left), left[0].Key)
	}
}

// A removal that fails at any call of the store, or loses the answer of any commit, which may be made late, leaves a space in order,
// in which a pool may be added, and is completed by the next one.
func TestRemoveSpaceInterrupted(t *testing.T) {
	for way := range 4 {
		for _, again := range []bool{true, false} {
			for k, met := 1, true; met; k++ {
				mem := store.NewMemory()
				f, e, red := emptied(t, mem)
				late := make(chan struct{})
				script := faults.AtCommit(k, []faults.Outcome{{}, faults.Unknown(true), faults.Unknown(false), faults.Late(late)}[way])
				if way == 0 {
					script = faults.At(k, faults.Fail(faults.ErrInjected))
				}
				f.Script(script)
				err := e.Operator().RemoveSpace(bg, "red")
				if met = err != nil; met && !errors.Is(err, faults.ErrInjected) {
					t.Fatalf("fault %d: %v", k, err)
				}
				f.Script(nil)
				if again {
					if err := e.Operator().RemoveSpace(bg, "red"); err != nil {
						t.Fatalf("after fault %d: %v", k, err)
					}
				} else {
					if err := red.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)); err != nil {
						t.Fatal(err)
					}
					if _, err := red.AutoAssign(bg, want("h1", 3, "pod")); err != nil {
						t.Fatal(err)
					}
				}
				close(late)
				f.Settle()
				if recs, _, err := mem.List(bg, store.Range{}); again && (err != nil || len(recs) > 0) {
					t.Fatalf("after fault %d: %v are left, %v", k, recs, err)
				}
				if rep, err := red.Operator().Check(bg, nil); err != nil || len(rep.Problems) > 0 || !again && rep.Allocations != 3 {
					t.Fatalf("way %d, after fault %d: %+v, %v", way, k, rep, err)
				}
			}
		}
	}
}

// A removal succeeds, whenever another engine begins and ends one meanwhile, and nothing is left.
func TestRemoveSpaceBesideAnother(t *testing.T) {
	for n, more := 1, true; more; n++ {
		mem := store.NewMemory()
		f, e, _ := emptied(t, mem)
		other, err := New(mem, Options{})
		if err != nil {
			t.Fatal(err)
		}
		more = false
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.N == n {
				more = true
				if err := other.Operator().RemoveSpace(bg, "red"); err != nil {
					t.Errorf("before call %d: the other: %v", n, err)
				}
			}
			return faults.Outcome{}
		})
		if err := e.Operator().RemoveSpace(bg, "red"); err != nil {
			t.Errorf("before call %d: %v", n, err)
		}
		if recs, _, err := mem.List(bg, store.Range{}); err != nil || len(recs) > 0 {
			t.Errorf("before call %d: %v are left, %v", n, recs, err)
		}
	}
}

// A commit of unknown outcome in a space without pools is not made after the engine has answered again, and the space has been removed.
func TestNothingLandsLateInARemovedSpace(t *testing.T) {
	for name, write := range map[string]func(*Engine) error{
		"a record of the caller": func(e *Engine) error {
			_, err := e.Release(bg, alloc.ReleaseArgs{Handle: "nobody", Also: []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "x"}}})
			return err
		},
		"the first pool": func(e *Engine) error { return e.AddPool(bg, poolOf("p", "10.0.0.0/24", 28)) },
	} {
		for k, met := 1, true; met; k++ {
			mem := store.NewMemory()
			f := faults.NewFaulty(mem)
			e, err := New(f, Options{Retry: Retry{Sleep: noSleep}})
			if err != nil {
				t.Fatal(err)
			}
			red, late := inSpace(t, e, "red"), make(chan struct{})
			f.Script(faults.AtCommit(k, faults.Late(late)))
			if err := write(red); err == nil {
				met = false
				close(late)
				continue
			} else if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			if _, _, err := red.RemoveHost(bg, alloc.HostOwner("h")); err != nil {
				t.Fatal(err)
			}
			other, err := New(mem, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Operator().RemoveSpace(bg, "red"); err != nil {
				t.Fatal(err)
			}
			close(late)
			f.Settle()
			recs, err := inSpace(t, other, "red").core.Store.Get(bg, nil, "Machine/1")
			pools, bad := inSpace(t, other, "red").Pools(bg)
			if err != nil || bad != nil || recs[0].Rev != 0 || len(pools) > 0 {
				t.Errorf("%s, commit %d: %v and %v after the space was removed: %v, %v", name, k, recs, pools, err, bad)
			}
			if err := other.Operator().RemoveSpace(bg, "red"); err != nil { // of a catalog without pools that came late
				t.Fatal(err)
			}
			for name, err := range other.Operator().Spaces(bg) {
				t.Errorf("%s, commit %d: the space %q is left: %v", name, k, name, err)
			}
		}
	}
}

// A record of the caller or of another program that is written before the n-th call of a removal is kept, for every n, and the
// removal says that the space is in use if it could see the record.
func TestRemoveSpaceKeepsForeign(t *testing.T) {
	write := map[string]func(*Engine) error{
		"with a release": func(e *Engine) error {
			_, err := e.Release(bg, alloc.ReleaseArgs{Handle: "nobody", Also: []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "x"}}})
			return err
		},
		"alone": func(e *Engine) error {
			_, err := e.core.Store.Commit(bg, []store.Op{{Kind: store.Put, Key: "Machine/1", Value: "x"}})
			return err
		},
	}
	for how, do := range write {
		for n, more := 1, true; more; n++ {
			mem := store.NewMemory()
			f, e, _ := emptied(t, mem)
			other, err := New(mem, Options{})
			if err != nil {
				t.Fatal(err)
			}
			in, calls := inSpace(t, other, "red"), 0
			more = false
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if calls = c.N; c.N == n {
					more = true
					if err := do(in); err != nil {
						t.Error(err)
					}
				}
				return faults.Outcome{}
			})
			err = e.Operator().RemoveSpace(bg, "red")
			if !more {
				break
			}
			if seen := n < calls; seen && !errors.Is(err, ipalloc.ErrInUse) {
				t.Errorf("%s, before call %d of %d: %v", how, n, calls, err)
			}
			if recs, err := in.core.Store.Get(bg, nil, "Machine/1"); err != nil || recs[0].Value != "x" {
				t.Errorf("%s, before call %d of %d: the record is gone", how, n, calls)
			}
			rep, err := in.Operator().Check(bg, nil)
			if err != nil || slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool { return p.Kind != audit.NoPool }) {
				t.Errorf("%s, before call %d of %d: %v, %v", how, n, calls, rep.Problems, err)
			}
		}
	}
}

// A removal that was cut off at any commit never lets a sequence number come again, so a guard of before frees nobody's address.
func TestRemoveSpaceThatWasCutOffRepeatsNoSequenceNumber(t *testing.T) {
	for nth := 1; ; nth++ {
		mem := store.NewMemory()
		f := faults.NewFaulty(mem)
		e, err := New(f, Options{Retry: Retry{Attempts: 1, Sleep: noSleep}})
		if err != nil {
			t.Fatal(err)
		}
		red := inSpace(t, e, "red")
		assign := func() alloc.Allocation {
			if err := red.AddPool(bg, poolOf("p", "10.0.0.0/29", 29)); err != nil {
				t.Fatal(err)
			}
			got, err := red.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.1"), Owner: alloc.HostOwner("h")})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		was := assign()
		if _, err := red.ReleaseIPs(bg, alloc.Release{Address: was.Address}); err != nil {
			t.Fatal(err)
		}
		if err := red.RemovePool(bg, "p"); err != nil {
			t.Fatal(err)
		}
		f.Reset()
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if c.Kind == faults.Commit && c.Nth == nth {
				return faults.Fail(errors.New("disk full"))
			}
			return faults.Outcome{}
		})
		err = e.Operator().RemoveSpace(bg, "red")
		f.Script(nil)
		if err == nil {
			if nth < 4 {
				t.Errorf("%d commits", nth-1)
			}
			return
		}
		if is := assign(); is.Seq <= was.Seq {
			t.Errorf("cut off at commit %d: sequence number %d after %d", nth, is.Seq, was.Seq)
		}
	}
}
