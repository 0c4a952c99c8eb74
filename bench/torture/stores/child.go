package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
	"github.com/ipalloc/ipalloc/ipset/store"
	socket "github.com/ipalloc/ipalloc/ipset/store/remote"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// opener opens a store once more, as another process does, on the connections that this one has.
type opener func(ctx context.Context) (store.Store, error)

// only returns a store that one process has at a time.
func only(s store.Store, err error) (opener, error) {
	return func(context.Context) (store.Store, error) { return s, nil }, err
}

// openers open the stores at a place.
var openers = map[string]func(ctx context.Context, place string) (opener, error){
	// One process in two leaves its commits to the system: none of them is lost by kill -9.
	"bolt": func(ctx context.Context, place string) (opener, error) {
		return only(boltstore.Open(ctx, place, boltstore.Options{Verify: boltstore.VerifyAlways, NoSync: os.Getpid()%2 == 0}))
	},
	"socket": func(ctx context.Context, place string) (opener, error) {
		return only(socket.Open(ctx, place))
	},
	"sqlite":   func(_ context.Context, place string) (opener, error) { return openSQL("sqlite", place) },
	"postgres": func(_ context.Context, place string) (opener, error) { return openSQL("pgx", place) },
	"etcd": func(_ context.Context, place string) (opener, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(place, ","), Logger: zap.NewNop(),
			DialKeepAliveTime: time.Second, DialKeepAliveTimeout: 2 * time.Second, PermitWithoutStream: true})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (store.Store, error) {
			return etcdstore.Open(ctx, client, "/torture/", etcdstore.Options{})
		}, nil
	},
	"kube": func(_ context.Context, place string) (opener, error) {
		url, token, _ := strings.Cut(place, " ")
		config := &rest.Config{Host: url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			Impersonate: rest.ImpersonationConfig{UserName: kubeUser}}
		return func(ctx context.Context) (store.Store, error) {
			return kubestore.Open(ctx, config, "default", "torture", kubestore.Options{Slots: 8})
		}, nil
	},
}

func openSQL(driver, dsn string) (opener, error) {
	db, err := sql.Open(driver, dsn)
	return func(ctx context.Context) (store.Store, error) {
		s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
		if err != nil {
			return nil, err
		}
		return &transactions{s, db, driver}, nil
	}, err
}

// open opens a store; it tries for as long as that can help.
func open(ctx context.Context, name, place string) (again opener, s store.Store, err error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if again, err = openers[name](ctx, place); err == nil {
			s, err = again(ctx)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, ipalloc.ErrCorrupt) || time.Now().After(end) {
			return again, s, err
		}
	}
}

// serveEnv tells a process of this program to serve a store to its parent: the store and its place, separated by a tab.
const serveEnv = "TORTURE_STORES_SERVE"

// childMain serves a store until its standard input ends, and reports whether the environment asked for that.
func childMain() bool {
	name, place, ok := strings.Cut(os.Getenv(serveEnv), "\t")
	if !ok {
		return false
	}
	again, s, err := open(context.Background(), name, place)
	here := &server{store: s, again: again, crowd: make(map[int]store.Store), watches: make(map[int]chan Answer)}
	if _, file := s.(*boltstore.Store); file && err == nil {
		here.journal, err = openJournal(context.Background(), place)
	}
	if err == nil {
		err = rpc.RegisterName("Store", here)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rpc.ServeConn(pipe{os.Stdin, os.Stdout})
	return true
}

// pipe joins the two directions between a child and its parent.
type pipe struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pipe) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p pipe) Close() error                { return errors.Join(p.ReadCloser.Close(), p.w.Close()) }

// moment is when a child kills itself at its next commit.
type moment int32

const (
	never moment = iota
	before
	during
	after // and before its parent is told
)

// A Question is one call of a store.
type Question struct {
	Limit time.Duration // how long it may take
	Keys  []string
	Range store.Range
	Ops   []store.Op
	Die   moment
	As    int // who asks, of the crowd; 0 for the process itself
	Watch int // of which the next event is wanted
	After uint64
}

// An Answer is the result of a call.
type Answer struct {
	Records       []store.Record
	Rev           uint64
	Limits        store.Limits
	Err, Conflict string
	Kind          int // of kinds, from 1
	Retry         bool
	Watch         int
	Process       int
}

// kinds are the sentinels that the parent has to know.
var kinds = []error{ipalloc.ErrUnknownOutcome, ipalloc.ErrLimit, ipalloc.ErrReplaced, ipalloc.ErrClosed} // the first that an error matches

func (a *Answer) failed(err error) {
	if err == nil {
		return
	}
	a.Err, a.Retry = err.Error(), store.Retryable(err)
	a.Kind = 1 + slices.IndexFunc(kinds, func(k error) bool { return errors.Is(err, k) })
	a.Conflict, _ = store.ConflictKey(err)
}

// server answers the parent.
type server struct {
	store   store.Store
	again   opener
	journal *journal.Journal[*servicealloc.Registry] // nil if the store is no file of boltstore

	mu      sync.Mutex
	crowd   map[int]store.Store // as other processes have it, which do nothing most of the time
	watches map[int]chan Answer
}

// as returns the store as one of the crowd has it.
func (s *server) as(ctx context.Context, who int) (store.Store, error) {
	s.mu.Lock()
	on := s.crowd[who]
	s.mu.Unlock()
	if on != nil || who == 0 {
		return cmp.Or(on, s.store), nil
	}
	on, err := s.again(ctx)
	if err == nil {
		s.mu.Lock()
		s.crowd[who] = on
		s.mu.Unlock()
	}
	return on, err
}

func (s *server) Get(q Question, a *Answer) error {
	a.Process = os.Getpid()
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	on, err := s.as(ctx, q.As)
	if err == nil {
		a.Records, err = on.Get(ctx, nil, q.Keys...)
	}
	a.failed(err)
	return nil
}

func (s *server) List(q Question, a *Answer) error {
	a.Process = os.Getpid()
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	on, err := s.as(ctx, q.As)
	if err == nil {
		a.Records, a.Rev, err = on.List(ctx, q.Range)
	}
	a.failed(err)
	return nil
}

func (s *server) Commit(q Question, a *Answer) error {
	a.Process = os.Getpid()
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	if q.Die == before {
		killSelf()
	}
	on, err := s.as(ctx, q.As)
	if q.Die == during {
		if err == nil {
			go func() { _, _ = on.Commit(ctx, q.Ops) }()
			time.Sleep(time.Duration(time.Now().UnixNano()%2000) * time.Microsecond)
		}
		killSelf()
	}
	if err == nil {
		a.Rev, err = on.Commit(ctx, q.Ops)
	}
	if q.Die == after {
		killSelf()
	}
	a.failed(err)
	return nil
}

func (s *server) Limits(_ Question, a *Answer) error {
	a.Limits = s.store.Limits()
	return nil
}

// Watch begins a watch. Next returns its events one after the other, and an error at the end.
func (s *server) Watch(q Question, a *Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Watch = os.Getpid()<<16 + len(s.watches) // no other child has it
	events := make(chan Answer)
	s.watches[a.Watch] = events
	go func() {
		for ev, err := range s.store.Watch(context.Background(), q.After, q.Keys...) {
			next := Answer{Records: ev.Changes, Rev: ev.Rev}
			next.failed(err)
			events <- next
		}
	}()
	return nil
}

func (s *server) Next(q Question, a *Answer) error {
	s.mu.Lock()
	events := s.watches[q.Watch]
	s.mu.Unlock()
	if events == nil {
		a.failed(errors.New("the watch was another process's"))
		return nil
	}
	*a = <-events
	return nil
}

func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // until the signal arrives
}
