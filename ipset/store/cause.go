package store

import (
	"context"
	"errors"

	"github.com/ipalloc/ipalloc"
)

// Cause is the error that the *ipalloc.Error of a store wraps if its database, or the connection to it, failed.
type Cause struct {
	// Kind is a sentinel that the error matches, such as ipalloc.ErrUnknownOutcome, or nil.
	Kind error
	// Err is the error of the database or of the context.
	Err error
	// Retry is what [Retryable] reports.
	Retry bool
}

// Error returns the texts of Kind and Err.
func (c *Cause) Error() string {
	if c.Kind == nil {
		return c.Err.Error()
	}
	return c.Kind.Error() + ": " + c.Err.Error()
}

// Unwrap returns Kind, if it is set, and Err.
func (c *Cause) Unwrap() []error {
	if c.Kind == nil {
		return []error{c.Err}
	}
	return []error{c.Kind, c.Err}
}

// Retryable reports whether the same call can succeed later without a repair. It reports true for a conflict, for a deadline that
// was too short, and for errors that a store marks with Retry of a [Cause]. If err matches ipalloc.ErrUnknownOutcome as well, repeat
// the engine's call with its request key. A cancelled context is not retryable.
//
// err is an error of a store, or of an engine on it.
func Retryable(err error) bool {
	var c *Cause
	if errors.As(err, &c) {
		return c.Retry
	}
	return errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, context.DeadlineExceeded)
}
