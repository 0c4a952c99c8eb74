package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// callLimit is how long a call may take, and grace how much longer the parent waits for the answer of a child that is stopped.
const (
	callLimit = 5 * time.Second
	grace     = 10 * time.Second
)

// remote is a store in a child that may die at any moment; the next call starts another one.
type remote struct {
	name, place string
	limits      store.Limits
	die         atomic.Int32 // the moment of the next commit at which the child kills itself

	lost atomic.Int64 // the process that saw commits which the store no longer has
	done atomic.Int64 // commits

	wrong  []error // what that process was told since
	mu     sync.Mutex
	cmd    *exec.Cmd
	client *rpc.Client
	closed bool
}

// newRemote starts a child.
func newRemote(name, place string) (*remote, error) {
	r := &remote{name: name, place: place}
	a, err := r.call(context.Background(), "Limits", Question{})
	r.limits = a.Limits
	return r, err
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

// signal stops the child, or lets it go on.
func (r *remote) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	if err := r.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
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
	q.Limit = callLimit
	if end, ok := ctx.Deadline(); ok {
		q.Limit = min(q.Limit, time.Until(end))
	}
	var ended <-chan struct{}
	if method == "Next" { // other calls end by their limit in the child
		ended = ctx.Done()
	}
	client, err := r.connect()
	if err != nil || client == nil {
		return Answer{}, fail(method, errors.Join(errDied, err), err == nil)
	}
	lost := func(cause error) error {
		if method == "Commit" {
			return fail(method, fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, cause), true)
		}
		return fail(method, cause, true)
	}
	limit := time.NewTimer(q.Limit + grace)
	defer limit.Stop()
	if method == "Next" {
		limit.Stop()
	}
	past := r.lost.Load()
	done := client.Go("Store."+method, q, new(Answer), make(chan *rpc.Call, 1))
	select {
	case <-ended:
		return Answer{}, lost(ctx.Err())
	case <-limit.C:
		return Answer{}, lost(context.DeadlineExceeded)
	case <-done.Done:
	}
	a := done.Reply.(*Answer)
	if done.Error == nil {
		r.answered(past, method, a)
	}
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
	return r.commit(ctx, ops, 0)
}

// commit makes a commit as one of the crowd. The next one, whoever makes it, is that at which the child dies.
func (r *remote) commit(ctx context.Context, ops []store.Op, who int) (uint64, error) {
	a, err := r.call(ctx, "Commit", Question{Ops: ops, As: who, Die: moment(r.die.Swap(int32(never)))})
	if err == nil {
		r.done.Add(1)
	}
	return a.Rev, err
}

// Watch ends with an error when the child dies.
func (r *remote) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		a, err := r.call(ctx, "Watch", Question{After: after, Keys: prefixes})
		for q := (Question{Watch: a.Watch}); ; {
			if err == nil {
				a, err = r.call(ctx, "Next", q)
			}
			if !yield(store.Event{Rev: a.Rev, Changes: a.Records}, err) || err != nil {
				return
			}
		}
	}
}

func (r *remote) Limits() store.Limits { return r.limits }
