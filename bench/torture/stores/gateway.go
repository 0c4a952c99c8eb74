package main

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
)

// gateway stands before an API server. It can answer requests itself, and hold back what watches are sent.
type gateway struct {
	server *httptest.Server
	refuse atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // reports whether it has answered

	mu    sync.Mutex
	ready chan struct{} // closed unless watches are behind
}

func newGateway(target string) (*gateway, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	g := &gateway{ready: make(chan struct{})}
	close(g.ready)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),                                                            // of connections that the API server's end breaks
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) }, // as a connection that breaks
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.URL.Query().Get("watch") != "" {
				resp.Body = &heldBack{resp.Body, g}
			}
			return nil
		},
	}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := g.refuse.Load(); f != nil && (*f)(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	return g, nil
}

// delay holds back what watches are sent, or lets it go.
func (g *gateway) delay(behind bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if behind {
		g.ready = make(chan struct{})
	} else {
		close(g.ready)
	}
	return nil
}

// heldBack is the body of a watch.
type heldBack struct {
	io.ReadCloser
	g *gateway
}

func (h *heldBack) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.g.mu.Lock()
	ready := h.g.ready
	h.g.mu.Unlock()
	<-ready
	return n, err
}
