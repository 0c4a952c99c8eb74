package kubestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// maxStored bounds the keys and values of all records of a store. A snapshot of them is written again and again, and the API
// server's etcd, of 2 GB by default, holds two of them and what it has not compacted.
const maxStored = 128 << 20

// The limits of a commit. etcd refuses requests of more than 1.5 MB; in JSON, 3 bytes of data take 4.
const (
	maxOps   = 1024
	maxBytes = 512 << 10
)

// The number of log objects of a store.
const (
	defaultSlots = 128
	minSlots     = 4
	maxSlots     = 1024
)

// patience is how long a request is repeated that a server, or the way to it, failed.
const patience = 15 * time.Second

// Options are the options of [Open]. The zero value is the default.
type Options struct {
	// NoCreate refuses to make a store where there is none.
	NoCreate bool
	// Slots is the number of log objects of a store that Open makes: 4 to 1024, 128 by
	// default. A snapshot of the whole store is written every Slots/2 log objects.
	Slots int
}

// Store is a [store.Store] in a Kubernetes API server. Open makes one. It holds nothing
// that must be closed.
type Store struct {
	client *client
	name   string
	id     string
	slots  int
	high   atomic.Uint64 // the highest resource version seen
	opened bool          // from then on, an answer that there is no such resource is not the API server's

	mu        sync.Mutex
	rep       *replica
	snapped   uint64 // the last commit object that a snapshot is known to hold
	broken    error  // what every call returns since it was found
	brokenCtx context.Context
	breakNow  context.CancelFunc

	nextRound  *round // the catching up that calls from now on wait for
	rounding   bool
	follower   *follower
	pace       pace
	compacting *compaction
	draft      *draft // of the running compaction, or of one that failed

	queue *combine.Queue
	room  int // the most bytes of records
}

// nameForm is what names of stores look like. There is no dot, which separates the parts of object names.
var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$`)

// Open returns the store of that name in a namespace, and makes an empty one if there is none. The definition of the
// resource (config/crd.yaml) and the namespace must exist. The caller's client-side rate limit (QPS) is not applied.
//
// It reads the snapshot and the log: 3 requests for a store that fits a part, and one more for each further 768 KB and 64 log
// objects. Making a store takes a request for each log object.
//
// Errors: [ipalloc.ErrNotFound] if the definition or the namespace is missing, or if there is no store and NoCreate is set.
// [ipalloc.ErrMismatch] if objects of another store have the names. [ipalloc.ErrVersion] if a newer release created the store.
// [ipalloc.ErrReplaced] if an object is missing. [ipalloc.ErrCorrupt] if an object is damaged. [ipalloc.ErrInvalid] for an
// impossible name, namespace or number. A store that was not made completely is completed by the next Open.
func Open(ctx context.Context, config *rest.Config, namespace, name string, o Options) (*Store, error) {
	switch {
	case config == nil:
		return nil, invalid("config", "is nil")
	case namespace == "":
		return nil, invalid("namespace", "is empty")
	case !nameForm.MatchString(name):
		return nil, invalid("name", fmt.Sprintf("%q must be 1 to 50 lower-case letters, digits and inner hyphens", name))
	case o.Slots != 0 && (o.Slots < minSlots || o.Slots > maxSlots):
		return nil, invalid("Options.Slots", fmt.Sprintf("%d must be %d to %d", o.Slots, minSlots, maxSlots))
	}
	c, err := newClient(config, namespace)
	if err != nil {
		return nil, invalid("config", err.Error())
	}
	s := &Store{client: c, name: name, pace: pace{self: newAuthor(), others: make(map[author]rival)}, room: maxStored}
	s.queue = combine.New(false, s.serve)
	s.brokenCtx, s.breakNow = context.WithCancel(context.Background())
	if o.Slots == 0 {
		o.Slots = defaultSlots
	}
	if err := s.open(ctx, o); err != nil {
		return nil, ended(ctx, "open", missing(err, namespace))
	}
	s.opened = true
	if err := s.reload(ctx); err != nil {
		return nil, ended(ctx, "open", err)
	}
	return s, nil
}

// invalid returns the error of an argument.
func invalid(field, reason string) error {
	return &ipalloc.Error{Package: "kubestore", Op: "open", Field: field, Reason: reason, Err: ipalloc.ErrInvalid}
}

// ended returns the error of a call: that of its context if it has ended, with the last failure before that.
func ended(ctx context.Context, op string, err error) error {
	if e := ctx.Err(); e != nil {
		if !errors.Is(err, e) {
			e = fmt.Errorf("%w; before that: %w", e, err)
		}
		return wrap(op, &store.Cause{Err: e, Retry: errors.Is(e, context.DeadlineExceeded)})
	}
	return failure(op, err)
}

// Limits implements [store.Store]: 1,024 records and 512 KB.
func (s *Store) Limits() store.Limits {
	return store.Limits{Ops: maxOps, Value: maxBytes, Bytes: maxBytes}
}

// seen notes the resource version of an object and returns it; 0 if it is no number.
func (s *Store) seen(o *object) uint64 {
	v, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	for have := s.high.Load(); v > have && !s.high.CompareAndSwap(have, v); have = s.high.Load() {
	}
	return v
}

// fail notes an error after which the store is of no use, and returns err.
func (s *Store) fail(err error) error {
	if errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrCorrupt) {
		s.mu.Lock()
		if s.broken == nil {
			s.broken = err
			s.breakNow()
		}
		s.mu.Unlock()
	}
	return err
}

// usable returns the error of a store that is of no use any more, or of a context that has ended.
func (s *Store) usable(ctx context.Context) error {
	s.mu.Lock()
	err := s.broken
	s.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// firstWait and lastWait are the pauses before a request is repeated.
const (
	firstWait = 10 * time.Millisecond
	lastWait  = time.Second
)

// retry calls f, which changes nothing if called again, until it succeeds or its error is not transient.
func (s *Store) retry(ctx context.Context, f func() error) (err error) {
	until := time.Now().Add(patience)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		now := f()
		if err == nil || now == nil || ctx.Err() == nil { // the failure before the context ended says more
			err = now
		}
		if now == nil || ctx.Err() != nil || !transient(err) || !s.opened && is(err, http.StatusNotFound) || time.Now().After(until) {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

// sleep waits for d, more or less.
func sleep(ctx context.Context, d time.Duration) error { return combine.Sleep(ctx, d/2+rand.N(d)) }

// round is one catching up that many reads wait for.
type round struct {
	done chan struct{}
	err  error
}

// current returns when the replica shows every commit that was made before the call. Calls at the same time share one read.
func (s *Store) current(ctx context.Context, op string) (*store.Memory, error) {
	if err := s.usable(ctx); err != nil {
		return nil, wrap(op, err)
	}
	s.mu.Lock()
	if s.nextRound == nil {
		s.nextRound = &round{done: make(chan struct{})}
		if !s.rounding {
			s.rounding = true
			go s.rounds()
		}
	}
	r := s.nextRound
	s.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, wrap(op, ctx.Err())
	}
	if r.err != nil {
		return nil, failure(op, r.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rep.mem, nil
}

// rounds catches up until no call waits for it.
func (s *Store) rounds() {
	for {
		s.mu.Lock()
		r := s.nextRound
		s.nextRound = nil
		s.rounding = r != nil
		s.mu.Unlock()
		if r == nil {
			return
		}
		r.err = s.sync(context.Background()) // each of its requests ends; a large snapshot has many
		close(r.done)
	}
}

// Get implements [store.Store]. It costs one linearizable read of one object, however many records it returns; calls at
// the same time share that read.
func (s *Store) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	mem, err := s.current(ctx, "get")
	if err != nil {
		return dst, err
	}
	out, err := mem.Get(ctx, dst, keys...)
	return out, wrap("get", err)
}

// List implements [store.Store]. It costs as much as a Get.
func (s *Store) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	mem, err := s.current(ctx, "list")
	if err != nil {
		return nil, 0, err
	}
	recs, rev, err := mem.List(ctx, r)
	return recs, rev, wrap("list", err)
}

// Watch implements [store.Store]. The process remembers the last 1,024 commits that it saw. All watches of a Store share one
// watch of the API server, which resumes by itself for as long as ctx lasts.
//
// It ends with ipalloc.ErrOutOfRange, [ipalloc.ErrReplaced], the context's error, or another error that is not
// [store.Retryable].
func (s *Store) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		f := s.join()
		defer s.leave(f)
		for {
			done, err := s.watch(ctx, f, &after, prefixes, yield)
			if err != nil {
				yield(store.Event{}, wrap("watch", err))
			}
			if done {
				return
			}
		}
	}
}
