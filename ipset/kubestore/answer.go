package kubestore

// What the answers to requests mean: whether a request that failed left a trace, whether it can succeed later, and whether the
// answer is the API server's at all.

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ipalloc/ipalloc"
)

// statusError is an answer that is no success.
type statusError struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Kind              string `json:"kind"`
		Name              string `json:"name"`
		RetryAfterSeconds int    `json:"retryAfterSeconds"`
	} `json:"details"`

	passing bool // a 401, 403 or 409 that goes away by itself
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d %s: %s", e.Code, e.Reason, e.Message)
}

// foreign reports whether something on the way answered, not the API server.
func (e *statusError) foreign() bool { return e.Kind != "Status" }

// is reports whether err is an answer with the given code.
func is(err error, code int) bool {
	var e *statusError
	return errors.As(err, &e) && e.Code == code
}

// exists reports whether the API server says that an object is not created because there is one of that name. Another 409 says that
// the quota of the namespace was used up by others at the same time: nothing was created.
func exists(err error) bool {
	var e *statusError
	return errors.As(err, &e) && !e.foreign() && e.Code == http.StatusConflict && e.Reason == "AlreadyExists"
}

// gone reports whether the API server says that there is no object of that name.
func gone(err error, name string) bool {
	var e *statusError
	return errors.As(err, &e) && !e.foreign() && e.Code == http.StatusNotFound && e.Details.Kind == resource && e.Details.Name == name
}

// traceless reports whether a request that failed with err certainly changed nothing: it was never sent, or was refused.
func traceless(err error) bool {
	var e *statusError
	if errors.As(err, &e) {
		return !e.foreign() && e.Code < http.StatusInternalServerError
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || untrusted(err)
}

// transient reports whether the same request can succeed later. What is no answer of the API server is a failure of the
// way to it, or of a server on that way.
func transient(err error) bool {
	var e *statusError
	var ours *ipalloc.Error
	if !errors.As(err, &e) {
		return !errors.As(err, &ours) && !untrusted(err)
	}
	return e.foreign() || e.passing || e.Code == http.StatusTooManyRequests || e.Code == http.StatusGone || e.Code >= http.StatusInternalServerError
}

// untrusted reports whether TLS refuses the server, or the server TLS: that does not go away by itself.
func untrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(tls.AlertError))
}

// access knows which verbs were allowed. While an API server starts, it refuses for a moment what its roles allow.
type access struct {
	mu      sync.Mutex
	allowed map[string]bool
	since   map[string]time.Time // when the refusals of a verb that was allowed before began
}

// verbOf returns the verb by which roles know a request.
func verbOf(method, name string, query url.Values) string {
	switch {
	case method != http.MethodGet:
		return method
	case query.Has("watch"):
		return "watch"
	case name == "":
		return "list"
	}
	return method
}

// granted notes that a verb is allowed.
func (a *access) granted(verb string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.allowed == nil {
		a.allowed, a.since = make(map[string]bool), make(map[string]time.Time)
	}
	a.allowed[verb] = true
	delete(a.since, verb)
}

// refused notes a refusal, and reports whether it is to be taken for a passing one.
func (a *access) refused(verb string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.allowed[verb] {
		return false
	}
	if a.since[verb].IsZero() {
		a.since[verb] = time.Now()
	}
	return time.Since(a.since[verb]) < patience
}
