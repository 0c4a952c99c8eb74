package kubestore

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// follower keeps the replica up to date while there are watches.
type follower struct {
	users int // guarded by Store.mu
	stop  context.CancelFunc
	ended context.Context // when it gives up; the cause says why
}

// join returns the follower of the store, and starts one if there is none.
func (s *Store) join() *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follower == nil || s.follower.ended.Err() != nil {
		ctx, stop := context.WithCancel(context.Background())
		ended, end := context.WithCancelCause(context.Background())
		s.follower = &follower{stop: stop, ended: ended}
		go func() { end(s.follow(ctx)) }()
	}
	s.follower.users++
	return s.follower
}

// leave ends the follower with the last of its watches.
func (s *Store) leave(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users == 0 {
		f.stop()
		if s.follower == f {
			s.follower = nil
		}
	}
}

// follow watches the objects of the store until ctx ends or an error comes that does not pass.
func (s *Store) follow(ctx context.Context) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := s.client.watch(ctx, s.name, func() error {
			wait = firstWait
			return s.sync(ctx)
		}, func(ev event) error { return s.event(ctx, ev) })
		if ctx.Err() == nil && !transient(err) {
			return failure("watch", err)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// event takes over one change. The error ends the request.
func (s *Store) event(ctx context.Context, ev event) error {
	if ev.Type == "ERROR" {
		status := &statusError{}
		_ = json.Unmarshal(ev.Object, status) // what it says beside its code is for people
		return status
	}
	o := &object{}
	if err := json.Unmarshal(ev.Object, o); err != nil {
		return err
	}
	switch {
	case ev.Type == "DELETED" && o.Spec.Role != roleSnapshot && o.Spec.Store == s.id: // or its label was taken off
		_, err := s.relabel(ctx, o.Metadata.Name, o.Spec.Role)
		return err
	case ev.Type == "DELETED" || o.Spec.Role != roleLog:
		return nil
	}
	n, err := s.take(o)
	if err == nil && n == beyond {
		err = s.sync(ctx)
	}
	return err
}

// watch yields from one replica, until another takes its place: the error is then nil, as after the caller has broken the loop,
// which sets done.
func (s *Store) watch(ctx context.Context, f *follower, after *uint64, prefixes []string, yield func(store.Event, error) bool) (done bool, err error) {
	s.mu.Lock()
	r := s.rep
	s.mu.Unlock()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, end := range []context.Context{r.gone, f.ended, s.brokenCtx} {
		defer context.AfterFunc(end, cancel)()
	}
	for ev, err := range r.mem.Watch(inner, *after, prefixes...) {
		switch {
		case err == nil:
			if !yield(ev, nil) {
				return true, nil
			}
			*after = ev.Rev
		case ctx.Err() != nil:
			return true, ctx.Err()
		case errors.Is(err, ipalloc.ErrOutOfRange):
			return true, &ipalloc.Error{Package: "kubestore", Op: "watch", Reason: "the store no longer has the commits after that revision", Err: ipalloc.ErrOutOfRange}
		case s.usable(ctx) != nil:
			return true, s.usable(ctx)
		case f.ended.Err() != nil:
			return true, context.Cause(f.ended)
		}
	}
	return false, nil
}
