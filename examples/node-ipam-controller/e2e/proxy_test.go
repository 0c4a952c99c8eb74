//go:build e2e && linux

package e2e

import (
	"crypto/tls"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// lossyProxy forwards to the API server and drops the answers of some patches after
// they have been made, and some patches before: to the client both look the same.
type lossyProxy struct {
	*httptest.Server
	after, before atomic.Int64
	calm          atomic.Bool
}

func newLossyProxy(t *testing.T, target string) *lossyProxy {
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer "+token) // a client sends no token without TLS
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100},
		FlushInterval: -1, // watches
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") && !p.calm.Load() {
			switch rand.IntN(4) {
			case 0:
				p.after.Add(1)
				forward.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler) // closes the connection
			case 1:
				p.before.Add(1)
				panic(http.ErrAbortHandler)
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
