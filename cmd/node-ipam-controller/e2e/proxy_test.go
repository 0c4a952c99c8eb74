//go:build e2e && linux

package e2e

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// watchLag is how long the proxy holds back what watches say. Without it the watch
// would tell the controller at once what the lost answer did not.
const watchLag = time.Second

// lossyProxy forwards to the API server and drops the answers of some patches after
// they have been made, and some patches before: to the client both look the same.
// Watches go on, but late.
type lossyProxy struct {
	*httptest.Server
	after, before, busy atomic.Int64
}

func newLossyProxy(t *testing.T, target, token string) *lossyProxy {
	p := &lossyProxy{}
	forward := forwardTo(t, target, token)
	forward.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.URL.Query().Get("watch") != "" {
			resp.Body = newLate(resp.Body)
		}
		return nil
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
			switch rand.IntN(8) {
			case 0, 1:
				p.after.Add(1)
				forward.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler) // closes the connection
			case 2, 3:
				p.before.Add(1)
				panic(http.ErrAbortHandler)
			case 4:
				p.busy.Add(1)
				w.Header().Set("Retry-After", "1")
				http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// forwardTo forwards requests to the API server with a token, which a client sends with TLS
// alone.
func forwardTo(t *testing.T, target, token string) *httputil.ReverseProxy {
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100},
		FlushInterval: -1, // watches
	}
}

// countingProxy counts requests by method and resource.
type countingProxy struct {
	*httptest.Server
	mu     sync.Mutex
	counts map[string]int
}

func newCountingProxy(t *testing.T, target, token string) *countingProxy {
	p := &countingProxy{counts: map[string]int{}}
	forward := forwardTo(t, target, token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path
		if rest, ok := strings.CutPrefix(resource, "/api/v1/"); ok {
			resource, _, _ = strings.Cut(rest, "/")
		}
		p.mu.Lock()
		p.counts[r.Method+" "+resource]++
		p.mu.Unlock()
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// take returns the counts and begins new ones.
func (p *countingProxy) take() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.counts
	p.counts = map[string]int{}
	return counts
}

// late is a body whose bytes come watchLag after they have come.
type late struct {
	*io.PipeReader
	body io.Closer
}

func newLate(body io.ReadCloser) *late {
	type chunk struct {
		at   time.Time
		data []byte
	}
	chunks := make(chan chunk, 1<<16)
	go func() {
		defer close(chunks)
		for {
			data := make([]byte, 8<<10)
			n, err := body.Read(data)
			chunks <- chunk{time.Now().Add(watchLag), data[:n]}
			if err != nil {
				return
			}
		}
	}()
	r, w := io.Pipe()
	go func() {
		for c := range chunks {
			time.Sleep(time.Until(c.at))
			_, _ = w.Write(c.data) // fails once the reader is gone; the rest is dropped then
		}
		_ = w.Close()
	}()
	return &late{r, body}
}

func (l *late) Close() error {
	_ = l.PipeReader.Close()
	return l.body.Close()
}
