package prefixes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// leased is a store with a pool of sixteen /28 and a clock.
type leased struct {
	*Allocator
	t     *testing.T
	store *store.Memory
	now   time.Time
}

func newLeased(t *testing.T) *leased {
	w := &leased{t: t, store: store.NewMemory(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Allocator = w.on(w.store)
	if err := w.AddPool(t.Context(), Pool{leasePool, Sizes{24, 28}}); err != nil {
		t.Fatal(err)
	}
	return w
}

var leasePool = prefix("10.0.0.0/24")

func (w *leased) on(db store.Store) *Allocator {
	a, err := New(db, Options{Now: func() time.Time { return w.now }})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *leased) give(owner string, bits int, ttl time.Duration) Holding {
	w.t.Helper()
	h, err := w.Assign(w.t.Context(), Request{Pool: leasePool, Owner: owner, Bits: bits, TTL: ttl})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// From the end of a lease on every answer is as if the prefix had been released, before anything is written and afterwards, and a
// question writes nothing.
func TestLeaseEnds(t *testing.T) {
	ctx := t.Context()
	for _, swept := range []bool{false, true} {
		w := newLeased(t)
		h := w.give("client", 25, time.Hour)
		if again := w.give("client", 25, time.Minute); h.Until != w.now.Add(time.Hour) || again != h {
			t.Errorf("%+v, again %+v", h, again)
		}
		w.give("other", 25, 0)
		if _, err := w.Fits(ctx, leasePool, 28); !errors.Is(err, ipalloc.ErrFull) {
			t.Error(err)
		}
		w.now = h.Until.Add(-1)
		if got, err := w.Get(ctx, h.Prefix); err != nil || got != h {
			t.Errorf("just before: %+v, %v", got, err)
		}
		w.now = h.Until
		if swept {
			if ended, err := w.Sweep(ctx); err != nil || len(ended) != 1 || ended[0] != h {
				t.Fatalf("%+v, %v", ended, err)
			}
		}
		before := fmt.Sprint(records(t, w.store))
		if _, err := w.Get(ctx, h.Prefix); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		if path, err := w.Path(ctx, h.Prefix); len(path) > 0 || err != nil {
			t.Errorf("Path: %+v, %v", path, err)
		}
		if held, err := w.Owned(ctx, "client"); len(held) > 0 || err != nil {
			t.Errorf("Owned: %+v, %v", held, err)
		}
		for got := range w.All(ctx, netip.Prefix{}) {
			if got.Owner != "other" {
				t.Errorf("All: %+v", got)
			}
		}
		if held, _, err := w.State(ctx, netip.Prefix{}); len(held) != 1 || err != nil {
			t.Errorf("State: %+v, %v", held, err)
		}
		if at, err := w.Fits(ctx, leasePool, 25); at != h.Prefix || err != nil {
			t.Errorf("Fits: %v, %v", at, err)
		}
		for _, deep := range []bool{false, true} {
			us, err := w.utilization(ctx, ipalloc.Error{}, leasePool, deep)
			if err != nil || us[0].Held[25] != 1 || us[0].Free[25] != 1 {
				t.Errorf("utilization: %+v, %v", us, err)
			}
		}
		if rep, err := w.Check(ctx); err != nil || len(rep.Problems) > 0 {
			t.Errorf("Check: %+v, %v", rep, err)
		}
		if after := fmt.Sprint(records(t, w.store)); after != before {
			t.Error("a question has written")
		}
		for call, err := range map[string]error{
			"Release":       w.Release(ctx, h.Prefix, "client"),
			"Transfer":      second(w.Transfer(ctx, h.Prefix, "client", "c")),
			"Renew":         second(w.Renew(ctx, h.Prefix, "client", RenewArgs{TTL: time.Hour})),
			"SetAttributes": second(w.SetAttributes(ctx, h.Prefix, "client", "x")),
		} {
			if !errors.Is(err, ipalloc.ErrNotHeld) {
				t.Errorf("%s: %v", call, err)
			}
		}
		if released, err := w.ReleaseByOwner(ctx, "client"); len(released) > 0 || err != nil {
			t.Errorf("%+v, %v", released, err)
		}
		if got, err := w.Occupy(ctx, h.Prefix, Request{Pool: leasePool, Owner: "next"}); err != nil || !got.Until.IsZero() {
			t.Errorf("Occupy: %+v, %v", got, err)
		}
		sound(t, w.Allocator)
	}
}

// A lease is moved, made permanent and made a lease again, and goes to another owner with its end.
func TestRenew(t *testing.T) {
	ctx, w := t.Context(), newLeased(t)
	h := w.give("client", 28, time.Hour)
	for _, ttl := range []time.Duration{2 * time.Hour, 0, time.Minute, 1<<63 - 1} {
		got, err := w.Renew(ctx, h.Prefix, "client", RenewArgs{TTL: ttl})
		if until := w.now.Add(ttl); err != nil || ttl == 0 && !got.Until.IsZero() || ttl > 0 && ttl < 1<<62 && !got.Until.Equal(until) || ttl > 1<<62 && got.Until.Year() != 2262 {
			t.Errorf("%v: %+v, %v", ttl, got, err)
		}
		w.now = w.now.Add(30 * time.Second)
	}
	if got, err := w.Transfer(ctx, h.Prefix, "client", "heir"); err != nil || got.Until.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.RemovePool(ctx, leasePool); !errors.Is(err, ipalloc.ErrInUse) {
		t.Error(err)
	}
	if _, err := w.Renew(ctx, h.Prefix, "heir", RenewArgs{TTL: time.Second}); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(time.Minute)
	if err := w.RemovePool(ctx, leasePool); err != nil {
		t.Error(err)
	}
	if left := records(t, w.store); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A pool of leases whose lengths have changed becomes empty, because a renewal within the rules fails as an allocation of that length does.
// Without the rules a lease stays.
func TestRenewWithinRules(t *testing.T) {
	for name, set := range map[string]func(w *leased, pool Holding, to Sizes) error{
		"SetSizes": func(w *leased, _ Holding, to Sizes) error { return w.SetSizes(t.Context(), leasePool, to) },
		"SetChildren": func(w *leased, pool Holding, to Sizes) error {
			return second(w.SetChildren(t.Context(), pool.Prefix, "node", to))
		},
	} {
		ctx, w := t.Context(), newLeased(t)
		pool := Holding{Prefix: leasePool}
		if name == "SetChildren" {
			var err error
			if pool, err = w.Assign(ctx, Request{Pool: leasePool, Owner: "node", Bits: 25, Children: Sizes{26, 28}}); err != nil {
				t.Fatal(err)
			}
		}
		h, err := w.Assign(ctx, Request{Pool: pool.Prefix, Owner: "client", Bits: 28, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		within := RenewArgs{TTL: 2 * time.Hour, WithinRules: true}
		if got, err := w.Renew(ctx, h.Prefix, "client", within); err != nil || !got.Until.Equal(w.now.Add(2*time.Hour)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := set(w, pool, Sizes{26, 27}); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(records(t, w.store))
		_, err = w.Renew(ctx, h.Prefix, "client", within)
		if e := (*ipalloc.Error)(nil); !errors.Is(err, ipalloc.ErrOutOfRange) || !errors.As(err, &e) || fmt.Sprint(records(t, w.store)) != before {
			t.Errorf("%s: a length that the pool no longer allocates: %v", name, err)
		}
		if _, err := w.Renew(ctx, h.Prefix, "client", RenewArgs{TTL: 3 * time.Hour}); err != nil {
			t.Errorf("%s: without the rules: %v", name, err)
		}
		w.now = w.now.Add(4 * time.Hour)
		if held, err := w.Owned(ctx, "client"); err != nil || len(held) != 0 {
			t.Errorf("%s: %v, %v", name, held, err)
		}
		sound(t, w.Allocator)
	}
}

// What no state could grant is refused by its field: a lease is no pool.
func TestLeaseRefusals(t *testing.T) {
	ctx, w := t.Context(), newLeased(t)
	h := w.give("client", 26, time.Hour)
	pool, err := w.Assign(ctx, Request{Pool: leasePool, Owner: "node", Bits: 26, Children: Sizes{27, 28}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Assign(ctx, Request{Pool: leasePool, Owner: "o", Bits: 26, TTL: -1})
	refused(t, "TTL", err, "TTL", ipalloc.ErrInvalid)
	_, err = w.Allocate(ctx, Request{Pool: leasePool, Owner: "o", Bits: 26, TTL: 1, Children: Sizes{27, 28}})
	refused(t, "Children", err, "Children", ipalloc.ErrInvalid)
	refused(t, "SetChildren", second(w.SetChildren(ctx, h.Prefix, "client", Sizes{27, 28})), "Children", ipalloc.ErrInvalid)
	refused(t, "Renew", second(w.Renew(ctx, h.Prefix, "client", RenewArgs{TTL: -1})), "TTL", ipalloc.ErrInvalid)
	refused(t, "Renew of a pool", second(w.Renew(ctx, pool.Prefix, "node", RenewArgs{TTL: 1})), "TTL", ipalloc.ErrInvalid)
	_, err = New(w.store, Options{Skew: -1})
	refused(t, "Skew", err, "Skew", ipalloc.ErrInvalid)
	for _, now := range []time.Time{time.Unix(0, 0), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w.now = now
		_, err = w.Get(ctx, h.Prefix)
		refused(t, "clock", err, "Options.Now", ipalloc.ErrInvalid)
		if _, err := w.Get(ctx, pool.Prefix); err != nil {
			t.Errorf("what is no lease needs no clock: %v", err)
		}
	}
}

// The index of ends is derived: a missing or strange entry is named and repaired, and a lease that no call would see end is damage.
func TestLeaseIndex(t *testing.T) {
	ctx, w := t.Context(), newLeased(t)
	h := w.give("client", 26, time.Hour)
	put(t, w.store, dueKey(h.Until.Add(1), h.Prefix), "\x18")
	if _, err := w.store.Commit(ctx, []store.Op{{Kind: store.Delete, Key: dueKey(h.Until, h.Prefix), Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	rep, err := w.Repair(ctx)
	if err != nil || len(rep.Problems) != 2 || rep.Problems[0].Kind != audit.MissingIndex || rep.Problems[1].Kind != audit.StaleIndex || rep.Problems[1].Prefix != h.Prefix {
		t.Errorf("%+v, %v", rep, err)
	}
	sound(t, w.Allocator)
	roots := roots{pools: []Pool{{leasePool, Sizes{24, 28}}}}
	put(t, w.store, keyRoots, value(roots.code))
	if rep, err := w.on(w.store).Repair(ctx); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("%+v, %v", rep, err)
	}
}

// The ends of leases come to those who watch, once they are written, and the clocks of allocators may differ by Skew.
func TestLeaseChangesAndSkew(t *testing.T) {
	ctx, w := t.Context(), newLeased(t)
	h := w.give("client", 26, time.Minute)
	_, rev, err := w.State(ctx, netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	late, err := New(w.store, Options{Now: func() time.Time { return w.now }, Skew: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Get(ctx, h.Prefix); err != nil {
		t.Errorf("within Skew: %v", err)
	}
	if _, err := w.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for c, err := range w.Changes(ctx, rev) {
		if err != nil || c.Prefix != h.Prefix || c.Holding != (Holding{}) {
			t.Errorf("%+v, %v", c, err)
		}
		break
	}
}

// A call that has to write the end of a lease first fails with what the store answers, at each of its calls, and succeeds when it is
// repeated.
func TestEndOfALeaseFails(t *testing.T) {
	for k, met := 1, true; met; k++ {
		w := newLeased(t)
		w.give("client", 24, time.Minute)
		w.now = w.now.Add(time.Hour)
		f := faults.NewFaulty(w.store)
		met = false
		f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
			if met = met || c.N == k; c.N == k {
				return faults.Fail(ipalloc.ErrClosed)
			}
			return faults.Outcome{}
		})
		a, r := w.on(f), Request{Pool: leasePool, Owner: "next", Bits: 26}
		if _, err := a.Allocate(t.Context(), r); met {
			keeps(t, "Allocate", err, ipalloc.ErrClosed)
			f.Script(nil)
			if _, err := a.Allocate(t.Context(), r); err != nil {
				t.Errorf("call %d: repeated: %v", k, err)
			}
		}
		sound(t, w.Allocator)
	}
}

// value returns what a form writes.
func value(code func(*wire.Coder)) string {
	c := wire.Write(nil)
	code(c)
	return string(c.B)
}

// A lease's record holds its end, and a record that is cut off or that gives a lease children is corrupt.
func TestLeaseRecords(t *testing.T) {
	at := prefix("10.0.0.0/26")
	r := record{Holding{Prefix: at, Owner: "o", Pool: leasePool, Level: 1, Until: time.Unix(5, 7).UTC(), Attributes: "a"}, "\x18"}
	code := value(r.code)
	if got, err := decodeHolding(at, code); err != nil || !reflect.DeepEqual(got, r) || code[0] != recordVersion {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range code[:12] {
		if _, err := decodeHolding(at, code[:n]); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, bad := range []record{{Holding{Owner: "o", Children: Sizes{27, 28}, Until: r.Until}, "\x18"}} {
		if _, err := decodeHolding(at, value(bad.code)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
