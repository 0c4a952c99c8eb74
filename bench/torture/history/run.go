package history

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
	// Shared is the number of handles that all writers assign and release, in addition to handles of their own. A call for one of these
	// must not be repeated, because another writer may have released what the first attempt assigned.
	Shared int
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

// shared returns the name of a handle that all writers use.
func (c *Config) shared(i int) string { return fmt.Sprintf("%s-shared-%d", c.Name, i) }

// Run makes writers assign and release, and returns their calls and answers. In the end no shared handle holds an address. It ends early with the first error that Retry does
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
	rest := &writer{Config: c, id: len(ws), engine: c.Engines[0]}
	for i := range c.Shared {
		errs = append(errs, rest.releaseShared(ctx, c.shared(i)))
	}
	ws = append(ws, rest)
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
		switch x := w.random.IntN(12); {
		case len(w.mine) > 0 && (len(w.mine) >= w.Keep || x < 3):
			err = w.release(ctx)
		case w.holder != nil:
			err = w.hold(ctx, handle)
		case x < 6:
			err = w.auto(ctx, handle)
		case x < 8:
			err = w.named(ctx, handle)
		case x < 9 && w.Shared > 0:
			err = w.ensure(ctx, w.shared(w.random.IntN(w.Shared)), Ensure)
		case x < 10 && w.Shared > 0:
			err = w.releaseShared(ctx, w.shared(w.random.IntN(w.Shared)), w.host())
		case x < 11 && len(w.mine) > 0:
			err = w.ensure(ctx, w.mine[w.random.IntN(len(w.mine))].Handle, Ensure)
		default:
			err = w.ensure(ctx, handle, Assign)
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
	i := slices.IndexFunc(w.mine, func(m Step) bool { return m.Handle == handle })
	switch {
	case s.Kind == Assign:
		w.mine = append(w.mine, s)
	case s.Kind == Ensure && i >= 0:
		w.mine[i].Host = s.Host
	case s.Kind == Release && i >= 0:
		w.mine = slices.Delete(w.mine, i, i+1)
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
			s.Kind, s.Address, s.Host = Assign, got.V4[0].Address, owner.Name
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
		s.Kind, s.Address, s.Host = Assign, a, owner.Name
		if errors.Is(err, ipalloc.ErrOccupied) {
			s.Kind, err = Occupied, nil
		}
		return err
	})
}

// ensure assigns an address to a handle, unless it has one. The step is of the kind, or Full.
func (w *writer) ensure(ctx context.Context, handle string, kind Kind) error {
	owner := w.host()
	return w.call(ctx, handle, func(ctx context.Context, s *Step) error {
		al, err := w.engine.Assign(ctx, owner, handle)
		s.Kind, s.Address, s.Host = kind, al.Address, owner.Name
		switch {
		case errors.Is(err, ipalloc.ErrFull):
			s.Kind, err = Full, nil
		case err == nil && (al.Host != owner || al.Handle != handle):
			err = fmt.Errorf("history: asked for %s at %s, got %+v", handle, owner, al)
		}
		return err
	})
}

// release gives one address back, by its handle, so that it can be repeated. One time in four it names a host that has nothing.
func (w *writer) release(ctx context.Context) error {
	held := w.mine[w.random.IntN(len(w.mine))]
	var of []alloc.Owner
	released := Step{Kind: Release, Address: held.Address}
	switch w.random.IntN(4) {
	case 0:
		other := w.host()
		for other.Name == held.Host {
			other = w.host()
		}
		of, released = []alloc.Owner{other}, Step{Kind: Nothing, Host: other.Name}
	case 1:
		of, released.Host = []alloc.Owner{alloc.HostOwner(held.Host)}, held.Host
	}
	attempts := 0
	return w.call(ctx, held.Handle, func(ctx context.Context, s *Step) error {
		s.Kind, s.Address, s.Host = released.Kind, released.Address, released.Host
		if w.holder != nil {
			s.Kind, s.Address, s.Host = Release, held.Address, ""
			return w.holder.Leave(ctx, held.Handle)
		}
		got, err := w.engine.ReleaseByHandle(ctx, held.Handle, of...)
		if attempts++; err == nil && (len(got) > 0 || attempts == 1) { // an attempt that failed may have released it
			err = releasedAs(s, got)
		}
		return err
	})
}

// releaseShared releases a shared handle, for a host if one is named.
func (w *writer) releaseShared(ctx context.Context, handle string, of ...alloc.Owner) error {
	return w.call(ctx, handle, func(ctx context.Context, s *Step) error {
		for _, o := range of {
			s.Host = o.Name
		}
		got, err := w.engine.ReleaseByHandle(ctx, handle, of...)
		return cmp.Or(err, releasedAs(s, got))
	})
}

// releasedAs makes a step of the answer of a release.
func releasedAs(s *Step, got []netip.Addr) error {
	switch len(got) {
	case 0:
		s.Kind, s.Address = Nothing, netip.Addr{}
	case 1:
		s.Kind, s.Address = Release, got[0]
	default:
		return fmt.Errorf("history: %s held %v", s.Handle, got)
	}
	return nil
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
