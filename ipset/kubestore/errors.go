package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wrap returns the error of a method. An error that has a package's form already keeps it.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *ipalloc.Error
	if errors.As(err, &e) && e.Package == "kubestore" {
		return err
	}
	return &ipalloc.Error{Package: "kubestore", Op: op, Err: err}
}

// failure returns the error of a request that left no trace.
func failure(op string, err error) error {
	var e *ipalloc.Error
	if errors.As(err, &e) || err == nil {
		return wrap(op, err)
	}
	return wrap(op, &store.Cause{Err: err, Retry: transient(err) && !errors.Is(err, context.Canceled)})
}

// unknown returns the error of a commit that may have been made.
func unknown(err error) error {
	final := errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrMismatch) || errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrCorrupt)
	return &ipalloc.Error{Package: "kubestore", Op: "commit", Err: &store.Cause{Kind: ipalloc.ErrUnknownOutcome, Err: err, Retry: !final}}
}

// notMade returns the error of a commit that waited for one that failed with err, and was not in its request.
func notMade(err error) error {
	var c *store.Cause
	if !errors.As(err, &c) || c.Kind == nil {
		return err
	}
	return wrap("commit", &store.Cause{Err: c.Err, Retry: c.Retry})
}

// corrupt returns the error of an object that is damaged.
func corrupt(name, format string, args ...any) error {
	reason := fmt.Sprintf(format, args...)
	return &ipalloc.Error{Package: "kubestore", Op: "read", Name: name, Reason: "corrupt object: " + reason, Err: ipalloc.ErrCorrupt}
}

// replaced returns the error of a store that is not the one that Open found: one of its objects was
// deleted, created again or restored. Repair the store before it is opened again.
func replaced(name, format string, args ...any) error {
	reason := ipalloc.ErrReplaced.Error() + ": " + fmt.Sprintf(format, args...)
	return &ipalloc.Error{Package: "kubestore", Op: "read", Name: name, Reason: reason, Err: ipalloc.ErrReplaced}
}

// missing turns an answer that something is not there into an error that says what to do.
func missing(err error, namespace string) error {
	var e *statusError
	if !errors.As(err, &e) || e.Code != http.StatusNotFound {
		return err
	}
	reason := ""
	switch {
	case e.Reason == "" || e.Details.Kind == "":
		reason = "the API server has no resource " + resource + ".store.ipalloc.dev: apply config/crd.yaml"
	case e.Details.Kind == "namespaces":
		reason = fmt.Sprintf("there is no namespace %q", namespace)
	default:
		return err
	}
	return &ipalloc.Error{Package: "kubestore", Op: "open", Reason: reason, Err: ipalloc.ErrNotFound}
}
