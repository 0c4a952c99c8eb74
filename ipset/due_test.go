package ipset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// answered writes what a call returned.
func answered(v any, err error) string { return fmt.Sprintf("%+v %v", v, err) }

// endedWorlds are states in which more has ended than a commit of a store with limits can write: 64 leases of one block, 64
// cooldowns, and 12 of both in each of 8 blocks of one host and one more address that is held.
var endedWorlds = map[string]func(w *world){
	"leases": func(w *world) {
		for i := range 64 {
			a := want("a", 1, fmt.Sprint("p", i))
			a.TTL = 10 * time.Second
			w.assign(a)
		}
	},
	"cooldowns": func(w *world) {
		for i := range 64 {
			w.assign(want("a", 1, fmt.Sprint("p", i)))
		}
		for i := range 64 {
			w.releaseHandle(fmt.Sprint("p", i))
		}
	},
	"both in many blocks": func(w *world) {
		for i := range 32 {
			a := want("b", 1, fmt.Sprint("p", i))
			if i%4 != 3 {
				a.TTL = 10 * time.Second
			}
			w.assign(a)
		}
		for i := range 32 {
			if i%4 == 1 {
				w.releaseHandle(fmt.Sprint("p", i))
			}
		}
	},
}

// What has ended by the clock has ended for every call, whatever number of records the store takes in a commit and whatever the
// engine has in its cache: each call answers as on a store without limits.
func TestEndedWhateverTheLimits(t *testing.T) {
	ttl := func(a alloc.AssignArgs, d time.Duration) alloc.AssignArgs { a.TTL = d; return a }
	all := func(a alloc.AssignArgs) alloc.AssignArgs { a.Partial = false; return a }
	at, last := ip("10.0.0.62"), ip("10.0.0.63")
	calls := map[string]func(ctx context.Context, e *Engine) string{
		"Assign": func(ctx context.Context, e *Engine) string {
			return answered(e.Assign(ctx, alloc.HostOwner("a"), "p60"))
		},
		"AutoAssign": func(ctx context.Context, e *Engine) string {
			return answered(e.AutoAssign(ctx, all(want("a", 4, "x"))))
		},
		"AutoAssign, other": func(ctx context.Context, e *Engine) string { return answered(e.AutoAssign(ctx, want("c", 4, "x"))) },
		"Offer": func(ctx context.Context, e *Engine) string {
			return answered(e.Offer(ctx, ttl(want("a", 1, "p5"), time.Minute)))
		},
		"in a row": func(ctx context.Context, e *Engine) string {
			return answered(e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 4, Choose: alloc.Aligned(), Handle: "x"}))
		},
		"AssignIP": func(ctx context.Context, e *Engine) string {
			return answered(e.AssignIP(ctx, alloc.AssignIPArgs{Address: last, Owner: alloc.HostOwner("a"), Handle: "y"}))
		},
		"named": func(ctx context.Context, e *Engine) string {
			return answered(e.AssignIPs(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("a"), Handle: "y"}, last, at))
		},
		"Renew": func(ctx context.Context, e *Engine) string {
			return answered(e.Renew(ctx, "p61", alloc.RenewArgs{TTL: time.Minute}))
		},
		"RenewIP": func(ctx context.Context, e *Engine) string {
			return answered(e.RenewIP(ctx, at, alloc.Guard{Handle: "p62"}, alloc.RenewArgs{TTL: time.Minute}))
		},
		"Decline": func(ctx context.Context, e *Engine) string {
			return answered(e.Decline(ctx, alloc.DeclineArgs{Address: at, Guard: alloc.Guard{Handle: "p62"}, For: time.Minute}))
		},
		"Update": func(ctx context.Context, e *Engine) string {
			return answered(0, e.Update(ctx, alloc.UpdateArgs{Address: at, Swap: true}))
		},
		"Lookup": func(ctx context.Context, e *Engine) string { return answered(e.Lookup(ctx, at)) },
		"ReleaseIPs": func(ctx context.Context, e *Engine) string {
			return answered(e.ReleaseIPs(ctx, alloc.Release{Address: at}, alloc.Release{Address: last}, alloc.Release{Address: ip("10.0.0.3")}))
		},
		"Release": func(ctx context.Context, e *Engine) string {
			return answered(e.Release(ctx, alloc.ReleaseArgs{Handle: "p3", Addresses: []alloc.Release{{Address: at}}}))
		},
		"ReleaseByHandle": func(ctx context.Context, e *Engine) string { return answered(e.ReleaseByHandle(ctx, "p7")) },
		"RemoveHost": func(ctx context.Context, e *Engine) string {
			as, blocks, err := e.RemoveHost(ctx, alloc.HostOwner("b"))
			return answered(fmt.Sprint(as, blocks), err)
		},
		"RenameHost": func(ctx context.Context, e *Engine) string {
			as, blocks, err := e.Operator().RenameHost(ctx, alloc.RenameArgs{From: alloc.HostOwner("b"), To: alloc.HostOwner("new")})
			return answered(fmt.Sprint(as, blocks), err)
		},
		"Transfer": func(ctx context.Context, e *Engine) string {
			return answered(e.Transfer(ctx, alloc.TransferArgs{From: "p7", To: "new"}))
		},
		"DisownBlocks": func(ctx context.Context, e *Engine) string {
			return answered(e.DisownBlocks(ctx, alloc.DisownArgs{Owner: alloc.HostOwner("a"), OnlyEmpty: true}))
		},
		"Utilization": func(ctx context.Context, e *Engine) string {
			us, err := e.Utilization(ctx)
			return answered(fmt.Sprint(us[0].Used, us[0].Cooling, us[0].Available), err)
		},
	}
	for state, build := range endedWorlds {
		p := poolOf("p", "10.0.0.0/26", 26)
		if state == "cooldowns" {
			p.Cooldown = 10 * time.Second
		} else if state != "leases" {
			p = poolOf("p", "10.0.0.0/26", 29)
			p.Cooldown = 5 * time.Second
		}
		made := newWorld(t, alloc.Config{}, p)
		build(made)
		data, err := made.store.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			want := ""
			for _, limit := range []int{0, 19, 48, 127, 1024} {
				for _, how := range []string{"cold", "warm", "dry", "after a failure", "together"} {
					if how == "together" && limit > 0 && limit < 127 {
						continue // the call itself may be more than a commit there
					}
					m, err := store.RestoreMemory(data)
					if err != nil {
						t.Fatal(err)
					}
					w := &world{t: t, store: m, clock: &clock{t: made.clock.now()}}
					db := faults.NewLimited(w.store, store.Limits{Ops: limit})
					w.Engine = w.engine(db)
					full := alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 65, Handle: "nobody"}
					if _, err := w.AutoAssign(bg, full); !errors.Is(err, ipalloc.ErrFull) && !errors.Is(err, ipalloc.ErrCooling) {
						t.Fatal(err)
					}
					w.clock.add(time.Hour)
					e := w.Engine
					switch how {
					case "cold":
						e = w.engine(db)
					case "dry":
						e = e.DryRun()
					case "after a failure":
						if _, err := e.AutoAssign(bg, full); !errors.Is(err, ipalloc.ErrFull) {
							t.Fatal(err)
						}
					}
					var got string
					if how != "together" {
						got = call(bg, e)
					} else if err := store.Together(bg, db, func(tx store.Store) error {
						in, err := New(tx, Options{Now: w.clock.now}) // a wrapper would hide the store below
						if err == nil {
							got = call(bg, in)
						}
						return err
					}); err != nil {
						got = answered("together", err)
					}
					if want == "" {
						want = got
					}
					if got != want {
						t.Errorf("%s, %s, %d records, %s:\ngot  %s\nwant %s", state, name, limit, how, got, want)
					}
					w.check()
				}
			}
		}
	}
}

// A lease that has ended is not given to its holder again: two callers never have one address.
func TestEndedLeaseIsNotKept(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/26", 26))
	endedWorlds["leases"](w)
	w.clock.add(time.Hour)
	db := faults.NewLimited(w.store, store.Limits{Ops: 127})
	had, err := w.engine(db).Assign(bg, alloc.HostOwner("a"), "p60")
	if err != nil || !had.Until.IsZero() {
		t.Fatalf("%+v, %v", had, err)
	}
	e := w.engine(db)
	for i := range 64 {
		al, err := e.Assign(bg, alloc.HostOwner("a"), fmt.Sprint("new", i))
		if i == 63 && errors.Is(err, ipalloc.ErrFull) {
			break
		}
		if err != nil || al.Address == had.Address {
			t.Fatalf("%d: %+v, %v; p60 has %+v", i, al, err, had)
		}
	}
}

// An address whose lease has ended is found by a call that has looked at its block already: for a wish, for what a sticky handle had, for
// an offer; and beside a call of the same commit that named a held address there.
func TestEndedLeaseIsFoundByEveryOption(t *testing.T) {
	b := alloc.HostOwner("b")
	for name, call := range map[string]func(e *Engine) (alloc.Assigned, error){
		"plain": func(e *Engine) (alloc.Assigned, error) {
			return e.AutoAssign(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Hour})
		},
		"wish": func(e *Engine) (alloc.Assigned, error) {
			return e.AutoAssign(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Hour, Choose: alloc.Prefer(ip("10.0.0.2"))})
		},
		"sticky": func(e *Engine) (alloc.Assigned, error) {
			return e.AutoAssign(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Hour, Sticky: true})
		},
		"offer": func(e *Engine) (alloc.Assigned, error) {
			return e.Offer(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Hour})
		},
		"beside": func(e *Engine) (got alloc.Assigned, err error) {
			done := make(chan error)
			go func() { _, err := e.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.2"), Owner: b}); done <- err }()
			got, err = e.AutoAssign(bg, alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Hour})
			if err := <-done; !errors.Is(err, ipalloc.ErrOccupied) {
				return got, fmt.Errorf("a held address: %v", err)
			}
			return got, err
		},
	} {
		w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/30", 30))
		a := alloc.AssignArgs{Owner: b, Num4: 1, Handle: "x", TTL: time.Second, Sticky: true}
		w.assign(a)
		w.releaseHandle("x")
		for i := range 4 {
			a := alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: 1, Handle: fmt.Sprint("p", i), TTL: 24 * time.Hour}
			if i == 3 {
				a.TTL = time.Second
			}
			w.assign(a)
		}
		w.clock.add(time.Hour)
		if got, err := call(w.Engine); err != nil || len(got.V4) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What is due in pools that a call does not try is written by the first call that lists much of it, so that the next calls do not list it.
func TestDueElsewhereIsListedOnce(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("four", "10.0.0.0/26", 30), poolOf("six", "fd00::/120", 126))
	for i := range 20 {
		a := alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("h", i)), Num6: 1, Handle: "six", TTL: time.Minute}
		if _, err := w.AutoAssign(bg, a); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.add(time.Hour)
	db := &listing{Store: w.store}
	w.Engine = w.engine(db)
	for i := range 16 { // each claims a block, mostly not the first of its search
		w.assign(want(fmt.Sprint("h", i), 1, fmt.Sprint("four", i)))
	}
	if db.records > 2*20 {
		t.Errorf("%d records were listed", db.records)
	}
}

// listing counts the records that are listed.
type listing struct {
	store.Store
	records int
}

func (l *listing) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	recs, rev, err := l.Store.List(ctx, r)
	l.records += len(recs)
	return recs, rev, err
}
