package main

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bench/torture/history"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// pool is what the writers share.
var pool = netip.MustParsePrefix("10.0.0.0/24")

// checkLimit is how long the checker may think.
const checkLimit = 10 * time.Minute

// settlement has writers assign and release on engines whose stores are in processes that are killed. A writer whose outcome is
// unknown does what the documentation says: it repeats the call with its request key.
type settlement struct {
	config
	name     string
	children []*remote

	mu      sync.Mutex
	failed  int // attempts that ended with an error
	unknown int // of them
}

// settle torments a store, and verifies that nothing is missing, held twice or held without an owner.
func settle(ctx context.Context, name string, c config, say func(string, ...any)) error {
	s, err := subjects[name](ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	st := &settlement{config: c, name: name}
	limits, err := limitsOf(ctx, name, s.place)
	if err != nil {
		return err
	}
	var engines []*ipset.Engine
	for range s.processes {
		r := &remote{name: name, place: s.place, limits: limits}
		defer r.close()
		e, err := ipset.New(r, ipset.Options{Retry: ipset.Retry{Attempts: 50}})
		if err != nil {
			return err
		}
		st.children, engines = append(st.children, r), append(engines, e)
	}
	if err := engines[0].AddPool(ctx, ipset.Pool{Name: "p", Prefix: pool, BlockBits: 28}); err != nil {
		return err
	}
	stop, faulted := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(stop)
		times, err := torment(ctx, s, st, c)
		count(say, name, times)
		faulted <- err
	}()
	steps, err := history.Run(ctx, history.Config{
		Engines: engines, Pool: pool, Writers: 2 * c.Callers, Stop: stop, Name: "w", Seed: c.Seed, Keep: 6, Limit: callLimit, Retry: st.retry,
	})
	if err := errors.Join(err, <-faulted); err != nil {
		return err
	}
	say("%-9s %d operations; %d attempts failed, %d of them with unknown outcome, all settled", name, len(steps), st.failed, st.unknown)
	say("tried: %d operations", len(steps))
	if err := history.Check(steps, checkLimit); err != nil {
		return err
	}
	held := history.Held(steps)
	fresh, err := ipset.New(st.children[0], ipset.Options{})
	if err != nil {
		return err
	}
	if err := history.Verify(ctx, fresh, held); err != nil {
		return err
	}
	say("%-9s the history is linearizable; %d addresses are held, all and only those that were given", name, len(held))
	return nil
}

// limitsOf makes the store and returns what one of its commits may hold.
func limitsOf(ctx context.Context, name, place string) (store.Limits, error) {
	s, err := open(ctx, name, place)
	if err != nil {
		return store.Limits{}, err
	}
	if c, ok := s.(interface{ Close() error }); ok { // a file of one process
		defer func() { _ = c.Close() }()
	}
	return s.Limits(), nil
}

// retry notes an error, and says whether the call is repeated.
func (s *settlement) retry(err error) bool {
	s.mu.Lock()
	if errors.Is(err, ipalloc.ErrUnknownOutcome) {
		s.unknown++
	}
	s.failed++
	s.mu.Unlock()
	again := store.Retryable(err) || errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrClosed) // there will be room; the store is opened again
	if again {
		time.Sleep(5 * time.Millisecond) // a writer that fails at once does something else, too
	}
	return again
}

func (s *settlement) count() int { return len(s.children) }

func (s *settlement) kill(i int) error {
	s.children[i].kill()
	return nil
}

func (s *settlement) signal(i int, stop bool) error {
	if p := s.children[i].process(); p != nil {
		return sendStop(p, stop)
	}
	return nil
}
