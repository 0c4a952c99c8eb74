package remote

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/absent"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Bounds of what clients can make a service use.
const (
	lastWords   = time.Second // for a client to send its request or to read its answer, when the context of Serve has ended
	mostClients = 1024        // connections; further ones wait until one ends
	mostBytes   = 256 << 20   // keys and values of a commit to a store that has no limit
)

// service is a store that is served.
type service struct {
	db     store.Store
	record record
	starts starts
	limits store.Limits
	most   int64           // bytes of one request; twice as many of all at a time
	begun  atomic.Int64    // bytes that the requests in flight have announced
	ctx    context.Context // of Serve
	calls  sync.RWMutex    // read by each call
}

// Serve serves a store at a socket until ctx has ended and the calls in flight have returned; a client that hangs delays it by a
// second. Close the store only after Serve has returned. Serve replaces a socket that a killed process left. The socket stays in
// place after Serve has returned, and refuses connections. The file path with ".lock" also stays; only one service at a time can
// lock it. The length of path is at most some 90 bytes.
//
// Serve writes a record, "Remote" with the path, which has the start time of the service; clients do not see it. It shows a
// client that calls a restarted service whether the store was set back to older data meanwhile. Start Serve before anything else
// is committed after a restore, and serve a database at one path by one machine only: otherwise the record shows the wrong
// thing.
//
// It returns nil after ctx has ended. [ipalloc.ErrInUse] means that a process serves at path or may do so. [ipalloc.ErrExists]
// means that path is not a socket, [ipalloc.ErrInvalid] that db is nil. If it cannot listen, it returns the error of the system; if it cannot write the record, the
// error of the store. A store that is read-only is served without it.
func Serve(ctx context.Context, path string, db store.Store) error {
	if absent.Is(db) {
		return &ipalloc.Error{Package: "remote", Op: "serve", Field: "db", Reason: "is nil", Err: ipalloc.ErrInvalid}
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return &ipalloc.Error{Package: "remote", Op: "serve", Name: path, Reason: "there is something else than a socket", Err: ipalloc.ErrExists}
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	record, starts, err := begin(ctx, path, db)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return err
	}
	l, err := listen(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &service{db: db, record: record, starts: starts, ctx: ctx, limits: db.Limits()}
	if s.limits.Bytes == 0 {
		s.limits.Bytes = mostBytes
	}
	s.most = int64(s.limits.Bytes) + int64(s.limits.Bytes)/8 + 1<<20 // with what goes between keys and values
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(ended)
		patience, enough := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer enough()
		if srv.Shutdown(patience) != nil {
			srv.Close()
		}
	})
	err = srv.Serve(&bounded{Listener: l, free: make(chan struct{}, mostClients), ended: ctx.Done()})
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	<-ended
	s.calls.Lock() // waits for the calls in flight; there is no later one
	return err
}

// inUse returns the error of a path at which a process serves, or may do so.
func inUse(path string, cause error) error {
	err := &ipalloc.Error{Package: "remote", Op: "serve", Name: path, Reason: "another process serves there", Err: ipalloc.ErrInUse}
	if cause != nil {
		err.Reason, err.Err = "another process may serve there: "+cause.Error(), fmt.Errorf("%w: %w", ipalloc.ErrInUse, cause)
	}
	return err
}

// listen makes a socket that no other user can reach at any time: in a directory of its own, from which it is moved. Only a
// connection that is refused proves that the socket at path has no process.
func listen(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(inUse(path, nil), c.Close())
	} else if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, refused) {
		return nil, inUse(path, err)
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

// bounded is a listener that has a bounded number of connections.
type bounded struct {
	net.Listener
	free  chan struct{} // has an entry for each connection
	ended <-chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.free <- struct{}{}:
	case <-b.ended:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &counted{Conn: c, end: sync.OnceFunc(func() { <-b.free })}, nil
}

type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// handler answers the calls of clients.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	for op, f := range map[string]func(ctx context.Context, q *request, event func(*response) error) (*response, error){
		"get": func(ctx context.Context, q *request, _ func(*response) error) (*response, error) {
			recs, err := s.db.Get(ctx, nil, q.Keys...)
			return &response{Recs: recs}, err
		},
		"list": func(ctx context.Context, q *request, _ func(*response) error) (*response, error) {
			recs, rev, err := s.list(ctx, q.Range)
			return &response{Recs: recs, Rev: rev}, err
		},
		"commit": func(ctx context.Context, q *request, _ func(*response) error) (*response, error) {
			rev, err := s.db.Commit(ctx, q.Ops)
			return &response{Rev: rev}, err
		},
		"limits": func(ctx context.Context, _ *request, _ func(*response) error) (*response, error) {
			_, rev, err := s.db.List(ctx, store.Range{Limit: 1})
			return &response{Rev: rev, Limits: s.limits, Most: s.most, Starts: s.starts}, err
		},
		"watch": func(ctx context.Context, q *request, event func(*response) error) (*response, error) {
			for e, err := range s.db.Watch(ctx, q.After, q.Keys...) {
				if err != nil {
					return &response{}, err
				}
				if e.Changes = s.record.hide(e.Changes); len(e.Changes) == 0 {
					continue
				}
				if err := event(&response{Recs: e.Changes, Rev: e.Rev}); err != nil {
					return &response{}, err
				}
			}
			return &response{}, ctx.Err()
		},
	} {
		mux.HandleFunc("POST "+protocol+op, func(w http.ResponseWriter, r *http.Request) {
			q, ok := s.request(w, r)
			if !ok {
				return
			}
			defer s.calls.RUnlock()
			out := gob.NewEncoder(w)
			answer := func(p *response) error {
				p.Start = s.starts.now()
				return out.Encode(p)
			}
			if q.Start != 0 && q.Start != s.starts.now() {
				_ = answer(&response{}) // nothing was done
				return
			}
			p, err := f(r.Context(), q, func(p *response) error {
				return errors.Join(answer(p), http.NewResponseController(w).Flush())
			})
			p.Err = s.sent(op, err)
			_ = answer(p) // a client that has gone learns nothing
		})
	}
	return mux
}

// request reads a request and begins its call, or answers that it does not.
func (s *service) request(w http.ResponseWriter, r *http.Request) (q *request, ok bool) {
	n := r.ContentLength
	if n < 0 || n > s.most {
		http.Error(w, fmt.Sprintf("the request is larger than %d bytes", s.most), http.StatusRequestEntityTooLarge)
		return nil, false
	}
	defer s.begun.Add(-n)
	if s.begun.Add(n) > 2*s.most {
		http.Error(w, "too many bytes are being sent", http.StatusServiceUnavailable)
		return nil, false
	}
	body, err := io.ReadAll(r.Body) // to its end, so that a client that goes away is seen
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(body)).Decode(&q)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	if !s.calls.TryRLock() {
		http.Error(w, "the service has ended", http.StatusServiceUnavailable)
		return nil, false
	}
	return q, true
}

// list lists a range without the record of the service.
func (s *service) list(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	limit := r.Limit
	if limit > 0 { // for the record
		r.Limit++
	}
	recs, rev, err := s.db.List(ctx, r)
	if recs = s.record.hide(recs); limit > 0 && len(recs) > limit {
		recs = recs[:limit]
	}
	return recs, rev, err
}
