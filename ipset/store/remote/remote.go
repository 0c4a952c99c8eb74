// Package remote lets other processes of one machine and user read and write a store that this process has open. A bbolt file belongs
// to one process at a time: with [Serve] in the service, ipamctl works beside it as --store unix:///var/lib/ipam.db.sock.
//
//	go remote.Serve(ctx, "/var/lib/ipam.db.sock", db)
//
// The socket has mode 0600, so only the user of the process, and root, reach it. There is no other protection: a process that
// reaches the socket has the service's full access to the store.
//
// Concurrency: all functions and methods are safe for concurrent use. Each call is one request; a watch is a request that stays
// open. If a client goes away, its calls end in the service as if their contexts had ended.
package remote

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// protocol is the version of what is sent. A service of another one has no such path.
const protocol = "/1/"

// request has the arguments of a call.
type request struct {
	Keys  []string // of Get, or the prefixes of Watch
	Range store.Range
	Ops   []store.Op
	After uint64
}

// response has the results of a call, or one event of a watch.
type response struct {
	Recs   []store.Record
	Rev    uint64
	Limits store.Limits
	Err    *failure
}

// failure is an error as it is sent.
type failure struct {
	Text     string
	Kinds    []int // of sentinels
	Retry    bool
	Conflict string // the key of a conflict
}

// sentinels are the errors that a client tells apart; their order is part of what is sent. The context of the service is not the client's.
var sentinels = []error{ipalloc.ErrInvalid, ipalloc.ErrOutOfRange, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse, ipalloc.ErrMismatch, ipalloc.ErrVersion,
	ipalloc.ErrReplaced, ipalloc.ErrLimit, ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrCorrupt, ipalloc.ErrClosed}

// sent returns an error in the form in which it is sent.
func sent(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Retry: store.Retryable(err)}
	for n, s := range sentinels {
		if errors.Is(err, s) {
			f.Kinds = append(f.Kinds, n)
		}
	}
	f.Conflict, _ = store.ConflictKey(err)
	return f
}

// received is an error of the service.
type received struct {
	text  string
	kinds []error
}

func (r *received) Error() string   { return r.text }
func (r *received) Unwrap() []error { return r.kinds }

// err returns the error that was sent.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	r := &received{text: f.Text}
	for _, n := range f.Kinds {
		if n < 0 || n >= len(sentinels) {
			continue
		}
		if sentinels[n] == ipalloc.ErrConflict {
			return store.Conflict("remote", f.Conflict)
		}
		r.kinds = append(r.kinds, sentinels[n])
	}
	return &store.Cause{Err: r, Retry: f.Retry}
}

// lastWords is how long a client may take to send its request, or to read its answer, when the context of Serve has ended.
const lastWords = time.Second

// mostBytes bounds a request, and so the memory that a client can make the service use for one.
const mostBytes = 256 << 20

// Serve serves a store at a socket until ctx has ended and the calls in flight have returned; a client that hangs delays it by a
// second. Close the store only after Serve has returned. Serve replaces a socket that a killed process left. Its own socket stays
// in place after Serve has returned, and refuses connections. path has at most some 90 bytes.
//
// It returns nil after ctx has ended, [ipalloc.ErrInUse] if a process serves at path, [ipalloc.ErrExists] if path is not a
// socket, and an error of the system if it cannot listen.
func Serve(ctx context.Context, path string, db store.Store) error {
	l, err := listen(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := new(sync.RWMutex)
	srv := &http.Server{Handler: handler(db, calls), ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(ended)
		patience, enough := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer enough()
		if srv.Shutdown(patience) != nil {
			srv.Close()
		}
	})
	err = srv.Serve(l)
	cancel()
	<-ended
	calls.Lock() // waits for the calls in flight; there is no later one
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// listen makes a socket that nobody else can reach at any time: in a directory of its own, from which it is moved.
func listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, &ipalloc.Error{Package: "remote", Op: "serve", Name: path, Reason: "there is something else than a socket", Err: ipalloc.ErrExists}
	}
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(&ipalloc.Error{Package: "remote", Op: "serve", Name: path, Reason: "another process serves there", Err: ipalloc.ErrInUse}, c.Close())
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(dir+"/s", 0o600)
	if err == nil {
		err = os.Rename(dir+"/s", path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// handler answers the calls of clients, each with a lock for reading.
func handler(db store.Store, calls *sync.RWMutex) http.Handler {
	call := func(f func(ctx context.Context, q *request, answer func(*response) error) *response) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !calls.TryRLock() {
				return // Serve has ended
			}
			defer calls.RUnlock()
			if r.ContentLength < 0 || r.ContentLength > mostBytes {
				http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
				return
			}
			body, err := io.ReadAll(r.Body) // to its end, so that a client that goes away is seen
			var q request
			if err == nil {
				err = gob.NewDecoder(bytes.NewReader(body)).Decode(&q)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			out := gob.NewEncoder(w)
			answer := func(p *response) error {
				return errors.Join(out.Encode(p), http.NewResponseController(w).Flush())
			}
			_ = answer(f(r.Context(), &q, answer)) // a client that has gone learns nothing
		}
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+protocol+"get", call(func(ctx context.Context, q *request, _ func(*response) error) *response {
		recs, err := db.Get(ctx, nil, q.Keys...)
		return &response{Recs: recs, Err: sent(err)}
	}))
	mux.Handle("POST "+protocol+"list", call(func(ctx context.Context, q *request, _ func(*response) error) *response {
		recs, rev, err := db.List(ctx, q.Range)
		return &response{Recs: recs, Rev: rev, Err: sent(err)}
	}))
	mux.Handle("POST "+protocol+"commit", call(func(ctx context.Context, q *request, _ func(*response) error) *response {
		rev, err := db.Commit(ctx, q.Ops)
		return &response{Rev: rev, Err: sent(err)}
	}))
	mux.Handle("POST "+protocol+"limits", call(func(context.Context, *request, func(*response) error) *response {
		return &response{Limits: db.Limits()}
	}))
	mux.Handle("POST "+protocol+"watch", call(func(ctx context.Context, q *request, answer func(*response) error) *response {
		for event, err := range db.Watch(ctx, q.After, q.Keys...) {
			if err != nil {
				return &response{Err: sent(err)}
			}
			if err := answer(&response{Recs: event.Changes, Rev: event.Rev}); err != nil {
				return &response{Err: sent(err)}
			}
		}
		return &response{Err: sent(ctx.Err())}
	}))
	return mux
}

// Client is a store of another process.
type Client struct {
	path   string
	http   http.Client
	limits store.Limits
}

var _ store.Store = (*Client)(nil)

// Open returns the store that a process serves at a socket. It returns an error of the system if none does.
func Open(ctx context.Context, path string) (*Client, error) {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	p, err := c.call(ctx, "limits", &request{})
	c.limits = p.Limits
	return c, err
}

// Close closes the connections that are idle.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// send begins a call.
func (c *Client) send(ctx context.Context, op string, q *request) (*http.Response, error) {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(q); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://store"+protocol+op, &body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	switch {
	case err != nil || answer.StatusCode == http.StatusOK:
	case answer.StatusCode == http.StatusNotFound:
		err = errors.Join(fmt.Errorf("the service speaks another version: %w", ipalloc.ErrVersion), answer.Body.Close())
	default:
		err = errors.Join(errors.New(answer.Status), answer.Body.Close())
	}
	return answer, err
}

// call makes a call and returns its answer. The error is that of the service, or says why there is no answer.
func (c *Client) call(ctx context.Context, op string, q *request) (p response, err error) {
	err = ctx.Err()
	begun := err == nil
	if begun {
		var answer *http.Response
		if answer, err = c.send(ctx, op, q); err == nil {
			err = errors.Join(gob.NewDecoder(answer.Body).Decode(&p), answer.Body.Close())
		}
	}
	if err == nil {
		return p, p.Err.err()
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		begun = false
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(ended, err)
	}
	cause := &store.Cause{Err: err, Retry: ctx.Err() == nil && !errors.Is(err, ipalloc.ErrVersion)}
	if begun && op == "commit" {
		cause.Kind = ipalloc.ErrUnknownOutcome
	}
	return response{}, &ipalloc.Error{Package: "remote", Op: op, Name: c.path, Reason: cause.Error(), Err: cause}
}

// Get implements [store.Store].
func (c *Client) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	p, err := c.call(ctx, "get", &request{Keys: keys})
	if err != nil {
		return dst, err
	}
	return append(dst, p.Recs...), nil
}

// List implements [store.Store].
func (c *Client) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	p, err := c.call(ctx, "list", &request{Range: r})
	return p.Recs, p.Rev, err
}

// Commit implements [store.Store]. Its outcome is unknown if the process that serves ends before it answers.
func (c *Client) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := store.CheckOps("remote", ops, c.limits); err != nil {
		return 0, err
	}
	p, err := c.call(ctx, "commit", &request{Ops: ops})
	return p.Rev, err
}

// Limits implements [store.Store].
func (c *Client) Limits() store.Limits { return c.limits }

// Watch implements [store.Store].
func (c *Client) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answer, err := c.send(ctx, "watch", &request{After: after, Keys: prefixes})
		if err != nil {
			yield(store.Event{}, c.cut(ctx, err))
			return
		}
		defer answer.Body.Close()
		for in := gob.NewDecoder(answer.Body); ; {
			var p response
			if err := in.Decode(&p); err != nil {
				yield(store.Event{}, c.cut(ctx, err))
				return
			}
			if p.Err != nil {
				yield(store.Event{}, p.Err.err())
				return
			}
			if !yield(store.Event{Rev: p.Rev, Changes: p.Recs}, nil) {
				return
			}
		}
	}
}

// cut returns the error of a watch that has no answer.
func (c *Client) cut(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		err = ended
	}
	return &ipalloc.Error{Package: "remote", Op: "watch", Name: c.path, Reason: err.Error(), Err: &store.Cause{Err: err, Retry: ctx.Err() == nil}}
}
