// Package remote lets other processes of one machine and user read and write a store that this process has open. A bbolt file belongs
// to one process at a time: with [Serve] in the service, ipamctl works beside it as --store unix:///var/lib/ipam.db.sock.
//
//	go remote.Serve(ctx, "/var/lib/ipam.db.sock", db)
//
// The socket has mode 0600, so only the user of the process, and root, reach it. There is no other protection: a process that
// reaches the socket has the service's full access to the store.
//
// Concurrency: all functions and methods are safe for concurrent use. Each call is one request; a watch is a request that stays
// open. If a client goes away, its calls end in the service as if their contexts had ended. A service has at most 1,024
// connections, and accepts requests of twice the largest commit at a time.
//
// Restart: a client continues with a restarted service. It ends with ipalloc.ErrReplaced if the service has another store now, or if
// that store lacks a commit that the client saw. A watch ends with the service, with an error that store.Retryable accepts.
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
	"strings"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// protocol is the version of what is sent. A service of another one has no such path.
const protocol = "/1/"

// request has the arguments of a call.
type request struct {
	Start uint64   // of the service, as the client knows it; a service with another start does nothing. 0 accepts any.
	Keys  []string // of Get, or the prefixes of Watch
	Range store.Range
	Ops   []store.Op
	After uint64
}

// response has the results of a call, or one event of a watch.
type response struct {
	Start  uint64 // of the service
	Recs   []store.Record
	Rev    uint64
	Limits store.Limits
	Most   int64 // bytes of a request
	Starts starts
	Err    *failure
}

// failure is an error as it is sent.
type failure struct {
	Error ipalloc.Error // without its Err
	Kinds []int         // of sentinels
	Retry bool
}

// sentinels are the errors that a client tells apart; their order is part of what is sent. The context of the service is not the client's.
var sentinels = []error{ipalloc.ErrInvalid, ipalloc.ErrOutOfRange, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse, ipalloc.ErrMismatch, ipalloc.ErrVersion,
	ipalloc.ErrReplaced, ipalloc.ErrLimit, ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrCorrupt, ipalloc.ErrClosed,
	store.ErrNoSpace, store.ErrReadOnly, store.ErrFailed}

// sent returns an error in the form in which it is sent.
func (s *service) sent(op string, err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Retry: store.Retryable(err), Error: ipalloc.Error{Package: "remote", Op: op, Reason: err.Error()}}
	if e := (*ipalloc.Error)(nil); errors.As(err, &e) {
		if f.Error = *e; e.Reason == "" && e.Err != nil {
			f.Error.Reason = e.Err.Error()
		}
		f.Error.Err = nil
	}
	if s.ctx.Err() != nil && errors.Is(err, context.Canceled) { // not the client's
		f.Retry, f.Error.Reason = true, "the service has ended"
	}
	for n, s := range sentinels {
		if errors.Is(err, s) {
			f.Kinds = append(f.Kinds, n)
		}
	}
	return f
}

// received is what an error of the service wraps.
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
	e, r := f.Error, &received{text: f.Error.Reason}
	for _, n := range f.Kinds {
		if n >= 0 && n < len(sentinels) {
			r.kinds = append(r.kinds, sentinels[n])
		}
	}
	e.Err = &store.Cause{Err: r, Retry: f.Retry}
	return &e
}

// Client is a store of another process.
type Client struct {
	path   string
	http   http.Client
	limits store.Limits
	most   int64
	open   context.Context // ends with Close
	close  context.CancelFunc

	mu     sync.Mutex
	starts starts // of the service
	seen   uint64 // the highest revision during the last of them
	lost   error  // why every call fails
}

var _ store.Store = (*Client)(nil)

// Open returns the store that a process serves at a socket. It returns an error of the system if none does.
func Open(ctx context.Context, path string) (*Client, error) {
	c := &Client{path: path}
	c.open, c.close = context.WithCancel(context.Background())
	c.http.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	p, err := c.once(ctx, "limits", &request{})
	c.limits, c.most, c.starts = p.Limits, p.Most, p.Starts
	return c, err
}

// Close ends the client: its watches end, and all later calls fail with ipalloc.ErrClosed. Other calls in flight return their results.
func (c *Client) Close() error {
	c.close()
	c.http.CloseIdleConnections()
	return nil
}

// refusal is an answer that the call was not made.
type refusal struct {
	text string
	is   error
	pass bool // as soon as the service has less to do, or is started again
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.is }

// send begins a call.
func (c *Client) send(ctx context.Context, op string, q *request) (*http.Response, error) {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(q); err != nil {
		return nil, err
	}
	if c.most > 0 && int64(body.Len()) > c.most {
		return nil, &refusal{text: fmt.Sprintf("the call has %d bytes, at most %d", body.Len(), c.most), is: ipalloc.ErrLimit}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://store"+protocol+op, &body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil || answer.StatusCode == http.StatusOK {
		return answer, err
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	no := &refusal{text: answer.Status + ": " + strings.TrimSpace(string(text)), pass: answer.StatusCode == http.StatusServiceUnavailable}
	switch answer.StatusCode {
	case http.StatusNotFound:
		no.text, no.is = "the service speaks another version", ipalloc.ErrVersion
	case http.StatusRequestEntityTooLarge:
		no.is = ipalloc.ErrLimit
	}
	return nil, errors.Join(no, answer.Body.Close())
}

// once makes a call and returns its answer. The error is that of the service, or says why there is no answer.
func (c *Client) once(ctx context.Context, op string, q *request) (p response, err error) {
	if err := ctx.Err(); err != nil {
		return p, c.failure(ctx, op, &refusal{text: err.Error(), is: err})
	}
	answer, err := c.send(ctx, op, q)
	if err == nil {
		err = gob.NewDecoder(answer.Body).Decode(&p)
		_, _ = io.Copy(io.Discard, answer.Body) // to its end, which frees the connection for the next call
		err = errors.Join(err, answer.Body.Close())
	}
	if err != nil {
		return response{}, c.failure(ctx, op, err)
	}
	return p, p.Err.err()
}

// failure returns the error of a call that has no answer.
func (c *Client) failure(ctx context.Context, op string, err error) error {
	no, dial := (*refusal)(nil), (*net.OpError)(nil)
	refused := errors.As(err, &no)
	cause := &store.Cause{Err: err, Retry: ctx.Err() == nil && (!refused || no.pass)}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		cause.Err = errors.Join(ended, err)
	}
	if op == "commit" && !refused && (!errors.As(err, &dial) || dial.Op != "dial") {
		cause.Kind = ipalloc.ErrUnknownOutcome
	}
	return &ipalloc.Error{Package: "remote", Op: op, Name: c.path, Reason: cause.Error(), Err: cause}
}

// standing returns the start of the service that the client knows, or the error that ended the client.
func (c *Client) standing(op string) (uint64, error) {
	if c.open.Err() != nil {
		return 0, &ipalloc.Error{Package: "remote", Op: op, Name: c.path, Err: ipalloc.ErrClosed}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts.now(), c.ended(op)
}

// ended returns the error of a client whose store was replaced.
func (c *Client) ended(op string) error {
	if c.lost == nil {
		return nil
	}
	return &ipalloc.Error{Package: "remote", Op: op, Name: c.path, Err: &store.Cause{Err: c.lost}}
}

// saw notes a revision of an answer, during a start of the service that may not be the last one any more.
func (c *Client) saw(op string, during, rev uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if during == c.starts.now() {
		c.seen = max(c.seen, rev)
	} else if err := c.starts.lack(during, rev); err != nil && c.lost == nil {
		c.lost = err
	}
	return c.ended(op)
}

// follow goes on with a service that was started again, if its store has what the client saw.
func (c *Client) follow(ctx context.Context, op string) error {
	p, err := c.once(ctx, "limits", &request{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if during := c.starts.now(); during != p.Starts.now() && c.lost == nil {
		c.lost = p.Starts.lack(during, c.seen)
		c.starts, c.seen = p.Starts, 0
	}
	return c.ended(op)
}

// call makes a call and returns its answer. A service that was started again does nothing until the client has seen its past.
func (c *Client) call(ctx context.Context, op string, q *request) (p response, err error) {
	for {
		if q.Start, err = c.standing(op); err != nil {
			return response{}, err
		}
		if p, err = c.once(ctx, op, q); err != nil {
			return response{}, err
		}
		if p.Start == q.Start {
			for i := range p.Recs {
				p.Rev = max(p.Rev, p.Recs[i].Rev)
			}
			return p, c.saw(op, p.Start, p.Rev)
		}
		if err := c.follow(ctx, op); err != nil {
			return response{}, err
		}
	}
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

// Limits implements [store.Store]: the limits of the store that is served. If it has no limit of bytes, the limit is 256 MiB.
func (c *Client) Limits() store.Limits { return c.limits }

// Watch implements [store.Store]. It ends with the service.
func (c *Client) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.open, cancel)()
		for again := true; again; {
			start, err := c.standing("watch")
			if err == nil {
				again, err = c.events(ctx, start, &request{Start: start, After: after, Keys: prefixes}, yield)
			}
			if err == nil && again {
				err = c.follow(ctx, "watch")
			}
			if err != nil {
				if c.open.Err() != nil {
					_, err = c.standing("watch")
				}
				yield(store.Event{}, err)
				return
			}
		}
	}
}

// events yields the events of a watch until the caller breaks the loop. It returns again, and has yielded nothing, if the service was
// started again.
func (c *Client) events(ctx context.Context, start uint64, q *request, yield func(store.Event, error) bool) (again bool, err error) {
	answer, err := c.send(ctx, "watch", q)
	if err != nil {
		return false, c.failure(ctx, "watch", err)
	}
	defer answer.Body.Close()
	for in := gob.NewDecoder(answer.Body); ; {
		var p response
		if err := in.Decode(&p); err != nil {
			return false, c.failure(ctx, "watch", err)
		}
		if p.Start != start {
			return true, nil
		}
		if p.Err != nil {
			return false, p.Err.err()
		}
		if err := c.saw("watch", start, p.Rev); err != nil {
			return false, err
		}
		if !yield(store.Event{Rev: p.Rev, Changes: p.Recs}, nil) {
			return false, nil
		}
	}
}
