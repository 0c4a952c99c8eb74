package main

import (
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
	"github.com/ipalloc/ipalloc/servicealloc"
)

// openers open the stores at a place.
var openers = map[string]func(ctx context.Context, place string) (store.Store, error){
	// One process in two leaves its commits to the system: none of them is lost by kill -9.
	"bolt": func(ctx context.Context, place string) (store.Store, error) {
		return boltstore.Open(ctx, place, boltstore.Options{Verify: boltstore.VerifyAlways, NoSync: os.Getpid()%2 == 0})
	},
	"sqlite":   func(ctx context.Context, place string) (store.Store, error) { return openSQL(ctx, "sqlite", place) },
	"postgres": func(ctx context.Context, place string) (store.Store, error) { return openSQL(ctx, "pgx", place) },
	"etcd": func(ctx context.Context, place string) (store.Store, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(place, ","), Logger: zap.NewNop(),
			DialKeepAliveTime: time.Second, DialKeepAliveTimeout: 2 * time.Second, PermitWithoutStream: true})
		if err != nil {
			return nil, err
		}
		return etcdstore.Open(ctx, client, "/torture/", etcdstore.Options{})
	},
	"kube": func(ctx context.Context, place string) (store.Store, error) {
		url, token, _ := strings.Cut(place, " ")
		config := &rest.Config{Host: url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			Impersonate: rest.ImpersonationConfig{UserName: kubeUser}}
		return kubestore.Open(ctx, config, "default", "torture", kubestore.Options{Slots: 8})
	},
}

func openSQL(ctx context.Context, driver, dsn string) (store.Store, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, db, sqlstore.Options{})
}

// open opens a store; it tries for as long as that can help.
func open(ctx context.Context, name, place string) (store.Store, error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s, err := openers[name](ctx, place)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return s, err
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
	s, err := open(context.Background(), name, place)
	here := &server{store: s, watches: make(map[int]chan Answer)}
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
	Watch int // of which the next event is wanted
	After uint64
}

// An Answer is what a call returned.
type Answer struct {
	Records       []store.Record
	Rev           uint64
	Limits        store.Limits
	Err, Conflict string
	Kind          int // of kinds, from 1
	Retry         bool
	Watch         int
}

// kinds are the sentinels that the parent has to know.
var kinds = []error{ipalloc.ErrUnknownOutcome, ipalloc.ErrLimit, ipalloc.ErrClosed}

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
	journal *journal.Journal[*servicealloc.Registry] // nil if the store is no file of boltstore

	mu      sync.Mutex
	watches map[int]chan Answer
}

func (s *server) Get(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	a.Records, err = s.store.Get(ctx, nil, q.Keys...)
	a.failed(err)
	return nil
}

func (s *server) List(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	a.Records, a.Rev, err = s.store.List(ctx, q.Range)
	a.failed(err)
	return nil
}

func (s *server) Commit(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	switch q.Die {
	case before:
		killSelf()
	case during:
		go func() { _, _ = s.store.Commit(ctx, q.Ops) }()
		time.Sleep(time.Duration(time.Now().UnixNano()%2000) * time.Microsecond)
		killSelf()
	}
	a.Rev, err = s.store.Commit(ctx, q.Ops)
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

// Watch begins a watch, of which Next returns one event after the other, and in the end an error.
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
