package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// serve answers /healthz, /readyz and /metrics until stop is called.
func (p *program) serve() (stop func(), err error) {
	if p.options.address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", p.options.address)
	if err != nil {
		return nil, err
	}
	server := newServer(p.handler())
	p.log.Info("serving health and metrics", "address", listener.Addr().String())
	go func() { _ = server.Serve(listener) }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}, nil
}

// newServer bounds what a client may send and how long it may take, because anyone who reaches the port is one.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
}

func (p *program) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.healthy)
	mux.HandleFunc("GET /readyz", p.ready)
	mux.Handle("GET /metrics", p.chooser.metrics.handler(p.controller, p.chooser))
	return mux
}

// healthy fails if this program holds a lease that it could not renew in time: it is
// stuck, and should be started again.
func (p *program) healthy(w http.ResponseWriter, r *http.Request) {
	if p.lease != nil {
		if err := p.lease.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	_, _ = io.WriteString(w, "ok")
}

// ready fails while the API server does not answer, and in a leader until all nodes have
// been loaded. One that waits for the lease is as ready as it can be.
func (p *program) ready(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.api.check(r.Context()) != nil:
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
	case p.controller.Synced():
		_, _ = io.WriteString(w, "ok")
	case p.options.leaderElect && !p.leading.Load():
		_, _ = io.WriteString(w, "not leading")
	default:
		http.Error(w, "loading", http.StatusServiceUnavailable)
	}
}

// apiCheck asks the API server for its version, not more often than every few seconds. Callers share the
// answer, so a client that hangs up does not cancel the request.
type apiCheck struct {
	ask func(context.Context) error

	mu   sync.Mutex
	last time.Time
	err  error
}

func (a *apiCheck) check(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.last) > 3*time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		a.err = a.ask(ctx)
		a.last = time.Now()
	}
	return a.err
}
