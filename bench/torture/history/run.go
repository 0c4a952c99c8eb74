package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// Config says what to run.
type Config struct {
	// Engines are used in turn by the writers.
	Engines []*ipset.Engine
	// Pool is where named addresses are drawn from.
	Pool netip.Prefix
	// Writers work at once, each until it has done Rounds operations or Stop is closed.
	Writers, Rounds int
	Stop            <-chan struct{}
	// Name is the prefix of handles, and Seed decides all choices.
	Name string
	Seed uint64
	// Keep is the number of addresses that a writer holds before it releases rather than assigns; 4 if 0.
	Keep int
	// Limit bounds the time of one attempt of a call; 0 is no limit.
	Limit time.Duration
	// Retry reports whether to repeat a call after an error. Run calls it for every call that failed.
	Retry func(error) bool
	// Holders each have a writer, in addition to the writers of the engines.
	Holders []Holder
	// Clock returns the time; nil stands for the clock of this process.
	Clock func() int64
}

// Holder gives one thing with its own address to a handle, and releases it. Its calls are idempotent.
type Holder interface {
	Hold(ctx context.Context, handle string) (netip.Addr, error)
	Leave(ctx context.Context, handle string) error
	Holders(ctx context.Context) (map[netip.Addr]string, error)
}

// Run makes writers assign and release, and returns their calls and answers. It ends early with the first error that Retry does
// not accept.
func Run(ctx context.Context, c Config) ([]Step, error) {
	if c.Keep == 0 {
		c.Keep = 4
	}
	if c.Clock == nil {
		begin := time.Now()
		c.Clock = func() int64 { return int64(time.Since(begin)) }
	}
	if c.Retry == nil {
		c.Retry = func(error) bool { return false }
	}
	ws := make([]*writer, c.Writers+len(c.Holders))
	errs := make([]error, len(ws))
	var wg sync.WaitGroup
	for i := range ws {
		ws[i] = &writer{Config: c, id: i, engine: c.Engines[i%len(c.Engines)], random: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		if i >= c.Writers {
			ws[i].holder = c.Holders[i-c.Writers]
		}
		wg.Go(func() { errs[i] = ws[i].run(ctx) })
	}
	wg.Wait()
	var steps []Step
	for _, w := range ws {
		steps = append(steps, w.steps...)
	}
	return steps, errors.Join(errs...)
}

// writer is one user of an engine.
type writer struct {
	Config
	id     int
	engine *ipset.Engine
	holder Holder // in place of the engine, if not nil
	random *rand.Rand
	steps  []Step
	mine   []Step // what it holds
}

func (w *writer) run(ctx context.Context) error {
	for i := 0; w.Rounds == 0 || i < w.Rounds; i++ {
		select {
		case <-w.Stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		var err error
		handle := fmt.Sprintf("%s-%d-%d", w.Name, w.id, i)
		switch x := w.random.IntN(10); {
		case len(w.mine) > 0 && (len(w.mine) >= w.Keep || x < 3):
			err = w.release(ctx)
		case w.holder != nil:
			err = w.hold(ctx, handle)
		case x < 8:
			err = w.auto(ctx, handle)
		default:
			err = w.named(ctx, handle)
		}
		if err != nil {
			return fmt.Errorf("writer %d: %w", w.id, err)
		}
	}
	return nil
}

// call repeats f for as long as its error is to be retried, and notes what it did. f fills in the step.
func (w *writer) call(ctx context.Context, handle string, f func(context.Context, *Step) error) error {
	s := Step{Client: w.id, Handle: handle, Call: w.Clock()}
	err := w.attempt(ctx, &s, f)
	for err != nil && w.Retry(err) {
		err = w.attempt(ctx, &s, f)
	}
	if err != nil {
		return err
	}
	s.Return = w.Clock()
	w.steps = append(w.steps, s)
	if s.Kind == Assign {
		w.mine = append(w.mine, s)
	}
	return nil
}

func (w *writer) attempt(ctx context.Context, s *Step, f func(context.Context, *Step) error) error {
	if w.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Limit)
		defer cancel()
	}
	return f(ctx, s)
}

// host is one of a few, so that hosts are shared by writers of all processes.
func (w *writer) host() alloc.Owner { return alloc.HostOwner(fmt.Sprint("host", w.random.IntN(5))) }

func (w *writer) hold(ctx context.Context, handle string) error {
	return w.call(ctx, handle, func(ctx context.Context, s *Step) (err error) {
		s.Kind = Assign
		s.Address, err = w.holder.Hold(ctx, handle)
		return err
	})
}

func (w *writer) auto(ctx context.Context, handle string) error {
	owner := w.host()
	return w.call(ctx, handle, func(ctx context.Context, s *Step) error {
		got, err := w.engine.AutoAssign(ctx, alloc.AssignArgs{
			Owner: owner, Num4: 1, Use: alloc.Workload, Handle: handle, Request: "r" + handle, Partial: true,
		})
		switch {
		case err != nil:
			return err
		case len(got.V4) == 0:
			s.Kind = Full
		default:
			s.Kind, s.Address = Assign, got.V4[0].Address
		}
		return nil
	})
}

func (w *writer) named(ctx context.Context, handle string) error {
	owner, a := w.host(), w.Pool.Addr()
	for range w.random.IntN(1 << min(10, a.BitLen()-w.Pool.Bits())) {
		a = a.Next()
	}
	return w.call(ctx, handle, func(ctx context.Context, s *Step) error {
		_, err := w.engine.AssignIP(ctx, alloc.AssignIPArgs{Address: a, Owner: owner, Handle: handle, Request: "r" + handle})
		s.Kind, s.Address = Assign, a
		if errors.Is(err, ipalloc.ErrOccupied) {
			s.Kind, err = Occupied, nil
		}
		return err
	})
}

// release gives one address back, by its handle, so that it can be repeated.
func (w *writer) release(ctx context.Context) error {
	i := w.random.IntN(len(w.mine))
	held := w.mine[i]
	w.mine = slices.Delete(w.mine, i, i+1)
	return w.call(ctx, held.Handle, func(ctx context.Context, s *Step) error {
		s.Kind, s.Address = Release, held.Address
		if w.holder != nil {
			return w.holder.Leave(ctx, held.Handle)
		}
		_, err := w.engine.ReleaseByHandle(ctx, held.Handle)
		return err
	})
}

// Verify compares a store with the expected holdings, of addresses of an engine and of Holders, and lets the engine check it.
func Verify(ctx context.Context, e *ipset.Engine, held map[netip.Addr]string, others ...Holder) error {
	rep, err := e.Operator().Check(ctx, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range rep.Problems {
		errs = append(errs, fmt.Errorf("history: check: %v", p))
	}
	have := make(map[netip.Addr]string)
	for al, err := range e.Allocations(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		have[al.Address] = al.Handle
	}
	for _, o := range others {
		more, err := o.Holders(ctx)
		if err != nil {
			return err
		}
		maps.Copy(have, more)
	}
	for a, h := range have {
		if held[a] != h {
			errs = append(errs, fmt.Errorf("history: %s is held by %q, given to %q", a, h, held[a]))
		}
	}
	for a, h := range held {
		if have[a] != h {
			errs = append(errs, fmt.Errorf("history: %s was given to %q, held by %q", a, h, have[a]))
		}
	}
	return errors.Join(errs...)
}
