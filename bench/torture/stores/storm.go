package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/bench/torture/oracle"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// pool is what the writers share.
var pool = netip.MustParsePrefix("10.0.0.0/24")

// checkLimit is how long the checker may think.
const checkLimit = 10 * time.Minute

// storm torments a store while callers use it and writers assign and release on engines. Then every answer of the store must be as
// the replay of all commits says, and every answer of the engines as that of one allocator that does one thing at a time; what is
// held must be what was given.
func storm(ctx context.Context, name string, c config, say func(string, ...any)) error {
	s, err := subjects[name](ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	var log oracle.Log
	crew := &crew{}
	size := 1000
	if name == "kube" {
		size = 2 // it is for a few processes, and each has all records in memory
	}
	for range s.processes {
		r, err := newRemote(name, s.place)
		if err != nil {
			return err
		}
		defer r.close()
		recorded := log.Recorded(r)
		e, err := ipset.New(recorded, ipset.Options{Retry: ipset.Retry{Attempts: 50}})
		if err != nil {
			return err
		}
		prefixes, err := prefixes.New(recorded, prefixes.Options{})
		if err != nil {
			return err
		}
		crew.children, crew.stores, crew.engines = append(crew.children, r), append(crew.stores, recorded), append(crew.engines, e)
		crew.crowds = append(crew.crowds, log.Recorded(crowd{r, size}))
		if crew.holders = append(crew.holders, tree{prefixes}); name == "bolt" {
			crew.holders = append(crew.holders, services{r})
		}
	}
	// A transaction may be rolled back at the first commit already; both calls may be repeated.
	addPools := func() error {
		err := crew.engines[0].AddPool(ctx, alloc.Pool{Name: "p", Prefix: pool, BlockBits: 28})
		return cmp.Or(err, crew.holders[0].(tree).AddPool(ctx, treePool))
	}
	for err = addPools(); err != nil && crew.retry(err); err = addPools() {
	}
	if err != nil {
		return err
	}
	steps, err := s.torment(ctx, name, c, crew, say)
	if err != nil {
		return errors.Join(err, oracle.Check(log.History())) // the answers may tell why
	}
	say("%-9s %d operations; %d attempts failed, %d of them with unknown outcome, all settled", name, len(steps), crew.failed.Load(), crew.unknown.Load())
	say("tried: %d operations", len(steps))
	if err := final(ctx, crew.stores[0]); err != nil {
		return err
	}
	calls, watches := log.History()
	counts := summary(calls, watches)
	say("%-9s %d calls: %v; %d watches", name, len(calls), counts, len(watches))
	say("tried: %d calls", len(calls))
	if counts["commit done"] < 10 {
		return errors.New("next to nothing was done")
	}
	if err := errors.Join(oracle.Check(calls, watches), history.Check(steps, checkLimit)); err != nil {
		return err
	}
	held := history.Held(steps)
	fresh, err := ipset.New(oracle.Rest(crew.children[0]), ipset.Options{})
	if err != nil {
		return err
	}
	if err := history.Verify(ctx, fresh, held, crew.holders[:len(crew.holders)/s.processes]...); err != nil {
		return err
	}
	say("%-9s every answer is explained; %d things are held, all and only those that were given", name, len(held))
	return nil
}

// crew is who uses a store: callers, engines and other allocators on each of the processes.
type crew struct {
	children []*remote
	stores   []store.Store // the same, with their calls in the log
	crowds   []store.Store // the same, for each call that of another process
	engines  []*ipset.Engine
	holders  []history.Holder
	writers
}

// torment has one fault after the other until the time is over, each at least once, and returns what the writers were told. It
// ends early when no writer goes on.
func (s *subject) torment(ctx context.Context, name string, c config, crew *crew, say func(string, ...any)) ([]history.Step, error) {
	stop := make(chan struct{})
	following, unfollow := context.WithCancel(ctx)
	defer unfollow()
	faulty, spare := context.WithCancel(ctx)
	defer spare()
	var callers, followers sync.WaitGroup
	for i, on := range crew.stores {
		followers.Go(func() { oracle.Follow(following, on) })
		for j := range c.Callers {
			callers.Go(func() { oracle.Torment(crew.crowds[i], c.Seed, uint64(i*c.Callers+j), stop) })
		}
	}
	var faulted error
	swept := make([]error, 2)
	for i := range swept {
		callers.Go(func() { swept[i] = sweep(ctx, crew.engines[i%len(crew.engines)], stop) })
	}
	callers.Go(func() {
		defer close(stop)
		times, err := s.have(faulty, crew.children, c)
		for _, what := range slices.Sorted(maps.Keys(times)) {
			say("%-9s %4d x %s", name, times[what], what)
		}
		faulted = err
	})
	steps, err := history.Run(ctx, history.Config{
		Engines: crew.engines, Holders: crew.holders, Pool: pool, Writers: len(crew.engines) * c.Callers,
		Stop: stop, Name: "w", Seed: c.Seed, Keep: 6, Limit: callLimit, Retry: crew.retry,
	})
	if err != nil {
		spare()
	}
	callers.Wait()
	unfollow()
	followers.Wait()
	return steps, errors.Join(append(swept, err, faulted)...)
}

// have has the faults.
func (s *subject) have(ctx context.Context, on []*remote, c config) (map[string]int, error) {
	random := rand.New(rand.NewPCG(c.Seed, 1))
	faults := append(ofEveryStore(random), s.faults...)
	times := make(map[string]int)
	if s.omitted != nil {
		times["no full disk, because "+s.omitted.Error()] = 0
	}
	for end, n := time.Now().Add(c.Duration), 0; ctx.Err() == nil && (time.Now().Before(end) || n < len(faults) || commits(on) < c.Commits); n++ {
		wait(ctx, c.Hold/2+time.Duration(random.Int64N(int64(c.Hold))))
		f := faults[n%len(faults)]
		if err := f.do(ctx, on, c.Hold); err != nil {
			return times, fmt.Errorf("%s: %w", f.name, err)
		}
		times[f.name]++
	}
	wait(ctx, c.Hold)
	return times, ctx.Err()
}

// commits returns how many commits were acknowledged.
func commits(on []*remote) (n int64) {
	for _, r := range on {
		n += r.done.Load()
	}
	return n
}

// final lists everything when no caller calls any more. The list has the mark of every commit that was made, also of those at the
// end that no watch and no caller has heard of.
func final(ctx context.Context, s store.Store) error {
	for {
		if _, _, err := s.List(ctx, store.Range{}); err == nil || !store.Retryable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// summary counts the outcomes.
func summary(calls []oracle.Call, watches []oracle.Watch) map[string]int {
	counts := make(map[string]int)
	for _, c := range calls {
		outcome := c.Outcome
		if outcome == "" {
			outcome = "without answer"
		}
		counts[fmt.Sprint(c.Kind, " ", outcome)]++
	}
	for _, w := range watches {
		counts["event seen"] += len(w.Events)
	}
	return counts
}

// writers counts what failed. A writer whose outcome is unknown does what the documentation says: it repeats the call with its
// request key.
type writers struct{ failed, unknown atomic.Int64 }

// retry notes an error, and says whether the call is repeated.
func (w *writers) retry(err error) bool {
	if errors.Is(err, ipalloc.ErrUnknownOutcome) {
		w.unknown.Add(1)
	}
	w.failed.Add(1)
	again := store.Retryable(err) || errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrClosed) // there will be room; the store is opened again
	if again {
		time.Sleep(5 * time.Millisecond) // a writer that fails at once does nothing else
	}
	return again
}
