package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/seeds"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// limit is how long the checker may take before it is taken for hung.
const limit = 2 * time.Minute

// engines returns engines on one store, with a pool.
func engines(t *testing.T, s store.Store, n int, pool netip.Prefix) (es []*ipset.Engine) {
	t.Helper()
	for range n {
		e, err := ipset.New(s, ipset.Options{Retry: ipset.Retry{Attempts: 1000, Base: 50 * time.Microsecond, Max: 2 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	if err := es[0].AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: pool, BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	return es
}

var stores = map[string]func(t *testing.T) store.Store{
	"memory": func(*testing.T) store.Store { return store.NewMemory() },
	"bolt": func(t *testing.T) store.Store {
		s, err := boltstore.Open(t.Context(), filepath.Join(t.TempDir(), "store"), boltstore.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
}

// recorded returns what engines on a store were told, after verifying what they hold, and their commits.
func recorded(t *testing.T, s store.Store, name string, seed uint64) ([]Step, *recorder) {
	begin, pool := time.Now(), netip.MustParsePrefix("10.0.0.0/26")
	r := &recorder{Store: s, clock: func() int64 { return int64(time.Since(begin)) }}
	es := engines(t, r, 4, pool)
	steps, err := Run(t.Context(), Config{Engines: es, Pool: pool, Writers: 8, Rounds: 60, Shared: 3, Name: name, Seed: seed, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), es[0], Held(steps)); err != nil {
		t.Fatalf("%s, seed %d: %v", name, seed, err)
	}
	return steps, r
}

// TestLinearizable records histories of several engines on one store, with room and without, and has them explained. The checker of the model's
// transitions replays their commits.
func TestLinearizable(t *testing.T) {
	for seed := range seeds.Each(t, 2, 10) {
		for name, open := range stores {
			steps, r := recorded(t, open(t), name, seed)
			if err := errors.Join(Check(steps, limit), r.replay(steps)); err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			kinds := count(steps)
			if kinds[Assign] == 0 || kinds[Release] == 0 || kinds[Occupied] == 0 || kinds[Ensure] == 0 || kinds[Nothing] == 0 {
				t.Errorf("%s, seed %d: %v", name, seed, kinds)
			}
			if seed == 0 {
				t.Logf("%s: %d operations: %v", name, len(steps), kinds)
			}
		}
	}
}

// TestFullIsFull verifies that nobody is told that a pool is full while it has room.
func TestFullIsFull(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/28")
	full := 0
	for name, open := range stores {
		for seed := range uint64(4) {
			es := engines(t, open(t), 3, pool)
			steps, err := Run(t.Context(), Config{Engines: es, Pool: pool, Writers: 5, Rounds: 30, Shared: 2, Name: name, Seed: seed, Keep: 5})
			if err != nil {
				t.Fatal(err)
			}
			full += count(steps)[Full]
			if err := CheckPool(steps, pool, limit); err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
		}
	}
	if full == 0 {
		t.Error("nobody found the pool full")
	}
}

func count(steps []Step) map[Kind]int {
	n := make(map[Kind]int)
	for _, s := range steps {
		n[s.Kind]++
	}
	return n
}

// careless returns a store that ignores what is expected of records: the last writer wins.
func careless() store.Store {
	f := faults.NewFaulty(store.NewMemory())
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		writes := []store.Op{}
		for _, op := range c.Ops {
			if op.Kind != store.Guard {
				op.Expect = store.AnyRevision
				writes = append(writes, op)
			}
		}
		return faults.Outcome{Ops: writes}
	})
	return f
}

// TestDoubleAssignmentIsRefused verifies that the checker sees what it is there to see. An engine on such a store may notice by
// itself that records contradict each other; those runs say nothing of the checker and are passed over.
func TestDoubleAssignmentIsRefused(t *testing.T) {
	all, small := netip.MustParsePrefix("10.0.0.0/26"), netip.MustParsePrefix("10.0.0.0/28")
	for name, c := range map[string]struct {
		run   Config
		check func([]Step) error
	}{
		"by address": {Config{Pool: all, Writers: 8, Rounds: 60}, func(s []Step) error { return Check(s, limit) }},
		"by pool":    {Config{Pool: small, Writers: 4, Rounds: 20}, func(s []Step) error { return CheckPool(s, small, limit) }},
	} {
		var err error
		for seed := uint64(0); err == nil && seed < 1000; seed++ { // few operations need some luck to meet
			c.run.Engines, c.run.Name, c.run.Seed = engines(t, careless(), 4, c.run.Pool), "careless", seed
			steps, runErr := Run(t.Context(), c.run)
			switch {
			case runErr == nil:
				err = c.check(steps)
			case !errors.Is(runErr, ipalloc.ErrCorrupt):
				t.Fatalf("%s: %v", name, runErr)
			}
		}
		if !errors.Is(err, ErrNotLinearizable) {
			t.Errorf("%s: a store that gives addresses twice: %v", name, err)
		}
	}
}

// forgetful returns a store that lies about every 8th commit: it reports it as made and does not make it. One lie may go unseen, as that
// about an address that is given back at once; so many do not.
func forgetful() store.Store {
	f := faults.NewFaulty(store.NewMemory())
	f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		return faults.Outcome{Lie: c.Kind == faults.Commit && c.Nth%8 == 7}
	})
	return f
}

// TestLossIsRefused verifies that what was said to be done and was not is noticed in the end, if not before.
func TestLossIsRefused(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/24")
	es := engines(t, forgetful(), 1, pool)
	steps, err := Run(t.Context(), Config{Engines: es, Pool: pool, Writers: 4, Rounds: 60, Name: "forgetful", Retry: func(err error) bool { return errors.Is(err, ipalloc.ErrConflict) }})
	if err == nil {
		err = errors.Join(Check(steps, limit), Verify(t.Context(), es[0], Held(steps)))
	}
	if err == nil {
		t.Error("nothing was noticed")
	}
}

// TestChecker verifies the models on histories by hand.
func TestChecker(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("10.0.0.1")
	for name, tt := range map[string]struct {
		steps []Step
		ok    bool
	}{
		"one after the other":      {[]Step{{0, Assign, a, "x", "", 1, 2}, {0, Release, a, "x", "", 3, 4}, {1, Assign, a, "y", "", 5, 6}}, true},
		"twice":                    {[]Step{{0, Assign, a, "x", "", 1, 2}, {1, Assign, a, "y", "", 3, 4}}, false},
		"twice at once":            {[]Step{{0, Assign, a, "x", "", 1, 4}, {1, Assign, a, "y", "", 2, 3}}, false},
		"two addresses":            {[]Step{{0, Assign, a, "x", "", 1, 4}, {1, Assign, b, "y", "", 2, 3}}, true},
		"released meanwhile":       {[]Step{{0, Assign, a, "x", "", 1, 2}, {0, Release, a, "x", "", 3, 9}, {1, Assign, a, "y", "", 4, 5}}, true},
		"released later":           {[]Step{{0, Assign, a, "x", "", 1, 2}, {1, Assign, a, "y", "", 3, 4}, {0, Release, a, "x", "", 5, 6}}, false},
		"occupied by nobody":       {[]Step{{0, Occupied, a, "x", "", 1, 2}}, false},
		"occupied meanwhile":       {[]Step{{0, Occupied, a, "x", "", 1, 9}, {1, Assign, a, "y", "", 2, 3}}, true},
		"full":                     {[]Step{{0, Assign, a, "x", "", 1, 2}, {0, Assign, b, "y", "", 3, 4}, {1, Full, netip.Addr{}, "z", "", 5, 6}}, true},
		"ensured twice":            {[]Step{{0, Ensure, a, "x", "h", 1, 4}, {1, Ensure, a, "x", "g", 2, 3}}, true},
		"ensured elsewhere":        {[]Step{{0, Ensure, a, "x", "h", 1, 4}, {1, Ensure, b, "x", "h", 2, 3}}, false},
		"ensured of another":       {[]Step{{0, Assign, a, "x", "h", 1, 2}, {1, Ensure, a, "y", "h", 3, 4}}, false},
		"ensured after a release":  {[]Step{{0, Ensure, a, "x", "h", 1, 2}, {0, Release, a, "x", "h", 3, 4}, {1, Ensure, b, "x", "h", 5, 6}}, true},
		"moved, then released":     {[]Step{{0, Assign, a, "x", "h", 1, 2}, {1, Ensure, a, "x", "g", 3, 4}, {0, Nothing, netip.Addr{}, "x", "h", 5, 6}}, true},
		"released for another":     {[]Step{{0, Assign, a, "x", "h", 1, 2}, {1, Release, a, "x", "g", 3, 4}}, false},
		"nothing while held":       {[]Step{{0, Assign, a, "x", "h", 1, 2}, {1, Nothing, netip.Addr{}, "x", "h", 3, 4}}, false},
		"released by another name": {[]Step{{0, Assign, a, "x", "", 1, 2}, {0, Release, a, "y", "", 3, 4}}, false},
	} {
		if err := Check(tt.steps, limit); (err == nil) != tt.ok || !tt.ok && !errors.Is(err, ErrNotLinearizable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pool := netip.PrefixFrom(a, 31)
	half := []Step{{0, Assign, a, "x", "", 1, 2}, {1, Full, netip.Addr{}, "z", "", 5, 6}}
	if err := CheckPool(half, pool, limit); !errors.Is(err, ErrNotLinearizable) {
		t.Errorf("full while half is free: %v", err)
	}
	if err := CheckPool(append(half, Step{0, Assign, b, "y", "", 3, 4}), pool, limit); err != nil {
		t.Errorf("full: %v", err)
	}
	rand.Shuffle(len(half), func(i, j int) { half[i], half[j] = half[j], half[i] })
	if err := CheckPool(half, pool, time.Nanosecond); !errors.Is(err, ErrUndecided) && !errors.Is(err, ErrNotLinearizable) {
		t.Errorf("no time: %v", err)
	}
}
