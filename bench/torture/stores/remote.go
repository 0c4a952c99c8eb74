package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// serveEnv tells a process of this program to serve a store to its parent: the store and its place, separated by a tab.
const serveEnv = "TORTURE_STORES_SERVE"

// callLimit is how long a call may take.
const callLimit = 5 * time.Second

// serveMain serves a store, and reports whether the environment asked for that.
func serveMain() bool {
	name, place, ok := strings.Cut(os.Getenv(serveEnv), "\t")
	if !ok {
		return false
	}
	s, err := open(context.Background(), name, place)
	if err == nil {
		err = rpc.RegisterName("Store", &server{s})
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

// A Question is one call of a store, an Answer what it returned.
type Question struct {
	Keys  []string
	Range store.Range
	Ops   []store.Op
}

type Answer struct {
	Records       []store.Record
	Rev           uint64
	Err, Conflict string
	Kind          int // of kinds, from 1
	Retry         bool
}

// kinds are the sentinels that the parent has to know.
var kinds = []error{ipalloc.ErrUnknownOutcome, ipalloc.ErrLimit, ipalloc.ErrClosed}

// server answers the parent.
type server struct{ s store.Store }

func (a *Answer) failed(err error) {
	if err == nil {
		return
	}
	a.Err, a.Retry = err.Error(), store.Retryable(err)
	a.Kind = 1 + slices.IndexFunc(kinds, func(k error) bool { return errors.Is(err, k) })
	a.Conflict, _ = store.ConflictKey(err)
}

func (s *server) Get(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	a.Records, err = s.s.Get(ctx, nil, q.Keys...)
	a.failed(err)
	return nil
}

func (s *server) List(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	a.Records, a.Rev, err = s.s.List(ctx, q.Range)
	a.failed(err)
	return nil
}

func (s *server) Commit(q Question, a *Answer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	a.Rev, err = s.s.Commit(ctx, q.Ops)
	a.failed(err)
	return nil
}

// remote is a store in a child that may die at any moment; the next call starts another one.
type remote struct {
	name, place string
	limits      store.Limits

	mu     sync.Mutex
	cmd    *exec.Cmd
	client *rpc.Client
	closed bool
}

// errDied is the cause of a call whose child died.
var errDied = errors.New("the process died")

// fail returns the error of a call of a child.
func fail(op string, kind error, retry bool) error {
	return &ipalloc.Error{Package: "torture", Op: op, Err: &store.Cause{Err: kind, Retry: retry}}
}

// connect returns the child's client.
func (r *remote) connect() (*rpc.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil || r.closed {
		return r.client, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveEnv+"="+r.name+"\t"+r.place)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r.cmd, r.client = cmd, rpc.NewClient(pipe{out, in})
	return r.client, nil
}

// process returns the child if it runs.
func (r *remote) process() *os.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	return r.cmd.Process
}

// kill ends the child with SIGKILL.
func (r *remote) kill() { r.drop(nil) }

// drop ends the child with SIGKILL, if client is nil or its client.
func (r *remote) drop(client *rpc.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil && (client == nil || client == r.client) {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		_ = r.client.Close()
		r.cmd, r.client = nil, nil
	}
}

func (r *remote) close() {
	r.kill()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
}

// call asks the child. Nothing is known of a commit whose child died.
func (r *remote) call(ctx context.Context, method string, q Question) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, fail(method, err, true)
	}
	client, err := r.connect()
	if err != nil || client == nil {
		return Answer{}, fail(method, errors.Join(errDied, err), err == nil)
	}
	q.Ops = append([]store.Op(nil), q.Ops...)
	lost := func(cause error) error {
		if method == "Commit" {
			return fail(method, fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, cause), true)
		}
		return fail(method, cause, true)
	}
	done := client.Go("Store."+method, q, new(Answer), make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return Answer{}, lost(ctx.Err())
	case <-done.Done:
	}
	a := done.Reply.(*Answer)
	switch {
	case done.Error != nil:
		r.drop(client)
		return Answer{}, lost(fmt.Errorf("%w: %w", errDied, done.Error))
	case a.Conflict != "":
		return Answer{}, store.Conflict("torture", a.Conflict)
	case a.Err != "" && a.Kind > 0:
		if kinds[a.Kind-1] == ipalloc.ErrClosed { // an earlier write failed: the store is to be opened again
			r.drop(client)
		}
		return Answer{}, fail(method, fmt.Errorf("%w: %s", kinds[a.Kind-1], a.Err), a.Retry)
	case a.Err != "":
		return Answer{}, fail(method, errors.New(a.Err), a.Retry)
	}
	return *a, nil
}

func (r *remote) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	a, err := r.call(ctx, "Get", Question{Keys: keys})
	return append(dst, a.Records...), err
}

func (r *remote) List(ctx context.Context, x store.Range) ([]store.Record, uint64, error) {
	a, err := r.call(ctx, "List", Question{Range: x})
	return a.Records, a.Rev, err
}

func (r *remote) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	a, err := r.call(ctx, "Commit", Question{Ops: ops})
	return a.Rev, err
}

func (r *remote) Watch(context.Context, uint64, ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		yield(store.Event{}, fail("watch", errors.ErrUnsupported, false))
	}
}

func (r *remote) Limits() store.Limits { return r.limits }
