//go:build go1.25 || goexperiment.synctest

package ipset_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/synctest"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/block"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/numbers"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// blocked is a store of which one call blocks until its context ends.
type blocked struct {
	store.Store
	at    int64 // 0: none blocks
	calls atomic.Int64
	lost  bool // the answer of the next commit is
}

func (b *blocked) wait(ctx context.Context) error {
	if b.calls.Add(1) != b.at {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (b *blocked) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if err := b.wait(ctx); err != nil {
		return dst, err
	}
	return b.Store.Get(ctx, dst, keys...)
}

func (b *blocked) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	if err := b.wait(ctx); err != nil {
		return nil, 0, err
	}
	return b.Store.List(ctx, r)
}

func (b *blocked) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := b.wait(ctx); err != nil {
		return 0, err
	}
	rev, err := b.Store.Commit(ctx, ops)
	if b.lost {
		b.lost, err = false, ipalloc.ErrUnknownOutcome
	}
	return rev, err
}

func (b *blocked) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if err := b.wait(ctx); err != nil {
			yield(store.Event{}, err)
			return
		}
		b.Store.Watch(ctx, after, prefixes...)(yield)
	}
}

// waiters are what works on a store.
type waiters struct {
	db           *blocked
	engine       *ipset.Engine
	operator     ipset.Operator
	collector    *ipset.Collector
	prefixes     *prefixes.Allocator
	hostlocal    *hostlocal.Engine
	numbers      *numbers.Numbers
	space, local store.Store
}

func newWaiters(t *testing.T) *waiters {
	ctx, w := t.Context(), &waiters{db: &blocked{Store: store.NewMemory()}}
	errs := make([]error, 20)
	in := func(name string) store.Store {
		db, err := store.Space(w.db, name)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	w.engine, errs[0] = ipset.New(w.db, ipset.Options{})
	w.operator = w.engine.Operator()
	w.collector = w.operator.NewCollector(0)
	w.prefixes, errs[1] = prefixes.New(in("prefixes"), prefixes.Options{})
	w.hostlocal, errs[2] = hostlocal.New(in("local"), hostlocal.Config{Network: "n", Scope: "s", Keys: true, Sets: []hostlocal.RangeSet{{{Subnet: netip.MustParsePrefix("10.2.0.0/24")}}}})
	w.numbers, errs[3] = numbers.New(ctx, in("numbers"), "vlan", numbers.Range{First: 1, Last: 99}, ipset.Options{})
	w.space, w.local = in("space"), in("local")
	errs[5] = w.engine.AddPool(ctx, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28})
	errs[4] = w.engine.AddPool(ctx, alloc.Pool{Name: "empty", Prefix: netip.MustParsePrefix("10.8.0.0/24")})
	_, errs[6] = w.engine.AssignIP(ctx, alloc.AssignIPArgs{Address: netip.MustParseAddr("10.0.0.9"), Owner: alloc.HostOwner("a"), Handle: "a"})
	errs[7] = w.prefixes.AddPool(ctx, prefixes.Pool{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Sizes: prefixes.Sizes{Shortest: 20, Longest: 28}})
	_, errs[8] = w.prefixes.Occupy(ctx, netip.MustParsePrefix("10.1.2.0/24"), prefixes.Request{Pool: netip.MustParsePrefix("10.1.0.0/16"), Owner: "a"})
	_, errs[9] = w.hostlocal.Add(ctx, hostlocal.Attachment{Container: "a", Interface: "i"})
	errs[10] = w.numbers.Occupy(ctx, "a", 7)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	w.db.lost = true // so that the next call waits until that commit is settled
	if _, err := w.engine.Assign(ctx, alloc.HostOwner("a"), "a"); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	return w
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var (
	claim       = alloc.Claim{Handle: "a", TTL: time.Hour}
	guard       = alloc.Guard{Handle: "a"}
	held        = alloc.Release{Address: addr("10.0.0.9"), Guard: guard}
	imported, _ = block.New(netip.MustParsePrefix("10.0.0.64/28"), block.Options{Owner: alloc.HostOwner("b")})
	super       = netip.MustParsePrefix("10.1.0.0/16")
)

// waitArgs are the arguments of each type, with which a call has work. Everything is called "a".
var waitArgs = map[reflect.Type]any{}

func init() {
	for _, v := range []any{"a", 26, uint32(7), time.Minute, held.Address, netip.MustParsePrefix("10.1.2.0/24"), alloc.HostOwner("a"), guard, held, alloc.ReleaseArgs{Handle: "a"},
		alloc.AssignArgs{Owner: alloc.HostOwner("a"), Handle: claim.Handle, TTL: claim.TTL, Num4: 1}, alloc.AssignIPArgs{Address: addr("10.0.0.10"), Owner: alloc.HostOwner("a"), Handle: claim.Handle, TTL: claim.TTL},
		alloc.DeclineArgs{Address: held.Address, Guard: guard, For: time.Hour}, alloc.DisownArgs{Owner: alloc.HostOwner("a")},
		alloc.UpdateArgs{Address: held.Address, Guard: guard, Active: &alloc.Attributes{}}, alloc.Pool{Name: "a", Prefix: netip.MustParsePrefix("10.0.0.0/24"), BlockBits: 28, Priority: 1},
		alloc.PoolChanges{Set: []alloc.Pool{{Name: "b", Prefix: netip.MustParsePrefix("10.9.0.0/24")}}, Remove: []string{"empty"}, IfEmpty: true}, alloc.SweepArgs{IdleAfter: 1}, func(alloc.Allocation) alloc.Liveness { return alloc.Gone },
		[]audit.Step{{Ops: []store.Op{{Kind: store.Put, Key: "Z"}}}}, prefixes.Sizes{Shortest: 20, Longest: 28}, prefixes.Request{Pool: super, Owner: "a", Bits: 24},
		hostlocal.Attachment{Container: "a", Interface: "i"}, hostlocal.State{Holdings: []hostlocal.Holding{{Attachment: hostlocal.Attachment{Container: "b"}, Addresses: []netip.Addr{addr("10.2.0.9")}}}},
	} {
		waitArgs[reflect.TypeOf(v)] = v
	}
}

// waitRows are the arguments of methods that need others.
var waitRows = map[string][]any{
	"ipset.Engine.AddPool": {alloc.Pool{Name: "b", Prefix: netip.MustParsePrefix("10.9.0.0/24")}}, "ipset.Operator.RemoveSpace": {"space"}, "ipset.Operator.MergePools": {"b", "a"},
	"ipset.Operator.ImportBlock": {imported}, "prefixes.Allocator.SetChildren": {netip.MustParsePrefix("10.1.2.0/24"), "a", prefixes.Sizes{Shortest: 26, Longest: 28}},
	"prefixes.Allocator.AddPool": {prefixes.Pool{Prefix: netip.MustParsePrefix("10.9.0.0/16"), Sizes: prefixes.Sizes{Shortest: 20, Longest: 28}}}, "prefixes.Allocator.Fits": {super},
	"prefixes.Allocator.Levels": {super}, "prefixes.Allocator.RemovePool": {super}, "prefixes.Allocator.SetSizes": {super}, "prefixes.Allocator.Utilization": {super},
	"ipset.Engine.Transfer":     {alloc.TransferArgs{From: "a", To: "b"}},
	"ipset.Operator.RenameHost": {alloc.RenameArgs{From: alloc.HostOwner("a"), To: alloc.HostOwner("b")}},
	"prefixes.Allocator.Occupy": {netip.MustParsePrefix("10.1.3.0/24")}, "numbers.Numbers.Occupy": {"a", uint64(8)}, "numbers.Numbers.Transfer": {uint64(8), "a", "b"},
}

// waits returns every call that has a context, by name. An iterator is run to its end.
func (w *waiters) waits(t *testing.T) map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{
		"store.Copy":   func(ctx context.Context) error { _, err := store.Copy(ctx, store.NewMemory(), w.db); return err },
		"store.Spaces": func(ctx context.Context) error { return callWait(reflect.ValueOf(store.Spaces), "", ctx, w.db) },
		"hostlocal.Networks": func(ctx context.Context) error {
			return callWait(reflect.ValueOf(hostlocal.Networks), "", ctx, w.local)
		},
		"store.Complete": func(ctx context.Context) error { return store.Complete(ctx, w.db) },
		"store.Together": func(ctx context.Context) error {
			return store.Together(ctx, w.db, func(tx store.Store) error {
				e, err := ipset.New(tx, ipset.Options{})
				if err == nil {
					_, err = e.Assign(ctx, alloc.HostOwner("a"), "a")
				}
				return err
			})
		},
		"numbers.New": func(ctx context.Context) error {
			_, err := numbers.New(ctx, w.db, "new", numbers.Range{First: 1, Last: 9}, ipset.Options{})
			return err
		},
		"numbers.Open": func(ctx context.Context) error {
			_, err := numbers.Open(ctx, w.db, "new", ipset.Options{})
			return err
		},
		"numbers.Names": func(ctx context.Context) error {
			return callWait(reflect.ValueOf(numbers.Names), "", ctx, w.db)
		},
		"ipset.SweepAll": func(ctx context.Context) error {
			_, err := ipset.SweepAll(ctx, w.db, ipset.Options{}, alloc.SweepArgs{})
			return err
		},
	}
	for _, v := range []any{w.engine, w.operator, w.collector, w.prefixes, w.hostlocal, w.numbers, w.space} {
		of := reflect.ValueOf(v)
		for i := range of.NumMethod() {
			m, name := of.Method(i), strings.TrimPrefix(of.Type().String(), "*")+"."+of.Type().Method(i).Name
			if m.Type().NumIn() > 0 && m.Type().In(0) == reflect.TypeFor[context.Context]() {
				all[name] = func(ctx context.Context) error { return callWait(m, name, ctx) }
			}
		}
	}
	return all
}

// callWait calls f with a context, the given arguments, those of its row, and those of their types.
func callWait(f reflect.Value, name string, given ...any) (err error) {
	in, of := []reflect.Value{}, f.Type()
	for _, arg := range append(given, waitRows[name]...) {
		in = append(in, reflect.ValueOf(arg))
	}
	for k := len(in); k < of.NumIn(); k++ {
		at := of.In(k)
		if of.IsVariadic() && k == of.NumIn()-1 {
			at = at.Elem()
		}
		arg := reflect.Zero(at)
		if v := waitArgs[at]; v != nil {
			arg = reflect.ValueOf(v)
		} else if of.IsVariadic() && k == of.NumIn()-1 {
			break
		}
		in = append(in, arg)
	}
	out := f.Call(in)
	last := out[len(out)-1]
	if last.Kind() != reflect.Func {
		err, _ = last.Interface().(error)
		return err
	}
	for _, e := range last.Seq2() {
		err, _ = e.Interface().(error)
	}
	return err
}

// A call ends with its context at each call of the store that it waits for, and where it waits behind another one.
func TestEveryWaitEnds(t *testing.T) {
	var names []string
	synctest.Test(t, func(t *testing.T) { names = slices.Sorted(maps.Keys(newWaiters(t).waits(t))) })
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			for k, more := 1, true; more; k++ {
				synctest.Test(t, func(t *testing.T) { more = waitEnds(t, name, k) })
			}
		})
	}
}

// waitEnds ends the context of a call while it waits for its k-th call of the store, and reports whether it makes as many. The same call is made behind it.
func waitEnds(t *testing.T, name string, k int) (more bool) {
	w := newWaiters(t)
	call := w.waits(t)[name]
	w.db.calls.Store(0)
	w.db.at = int64(k)
	begin := func() (end func(), done chan error) {
		ctx, end := context.WithCancel(t.Context())
		done = make(chan error, 1)
		go func() { done <- call(ctx) }()
		synctest.Wait()
		return end, done
	}
	end, first := begin()
	more = w.db.calls.Load() >= int64(k)
	if more && name != "ipset.Collector.Collect" { // which is for one goroutine
		end, second := begin()
		end()
		synctest.Wait()
		if len(second) == 0 {
			t.Fatalf("does not end behind one that waits for call %d of the store", k)
		}
	}
	end()
	time.Sleep(time.Hour)
	if len(first) == 0 {
		t.Fatalf("does not end at call %d of the store", k)
	}
	switch err := <-first; {
	case k == 1 && !more:
		t.Errorf("does not reach the store: %v", err)
	case more && !errors.Is(err, context.Canceled):
		t.Errorf("where call %d of the store ends: %v", k, err)
	}
	return more
}

// Each function of these packages that has a context has a row.
func TestEveryWaitHasARow(t *testing.T) {
	var rows map[string]func(context.Context) error
	synctest.Test(t, func(t *testing.T) { rows = newWaiters(t).waits(t) })
	for _, of := range []string{"ipset", "store", "prefixes", "hostlocal", "numbers", "calico"} {
		text, err := os.ReadFile(map[bool]string{true: "api.txt", false: of + "/api.txt"}[of == "ipset"])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (\w+)\(.*context\.Context`).FindAllSubmatch(text, -1) {
			if name := of + "." + string(m[1]); rows[name] == nil {
				t.Errorf("%s has no row", name)
			}
		}
	}
}
