package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// wrap returns the error of a method.
func wrap(op string, err error) error {
	return &ipalloc.Error{Package: "etcdstore", Op: op, Err: err}
}

// mismatch returns the error of a prefix or cluster that is not what the caller expects.
func mismatch(op, format string, args ...any) error {
	return &ipalloc.Error{Package: "etcdstore", Op: op, Reason: fmt.Sprintf(format, args...), Err: ipalloc.ErrMismatch}
}

// replaced returns the error of a store that is not the one that Open found: its format record was
// removed, adopted or converted since, or the cluster went back to an earlier state, as after
// restoring a snapshot under running clients.
func replaced(op, format string, args ...any) error {
	return wrap(op, fmt.Errorf("%w: %s", ipalloc.ErrReplaced, fmt.Sprintf(format, args...)))
}

// failure returns the error of a call that left no trace.
func failure(ctx context.Context, op string, err error) error {
	return wrap(op, causeOf(ctx, err))
}

// causeOf classifies an error of a call that left no trace.
func causeOf(ctx context.Context, err error) *store.Cause {
	if e := ctx.Err(); e != nil {
		return &store.Cause{Err: e, Retry: errors.Is(e, context.DeadlineExceeded)}
	}
	if _, limited := ctx.Deadline(); limited && pastDeadline(err) {
		return &store.Cause{Err: context.DeadlineExceeded, Retry: true} // a server knows the deadline, and its clock was first
	}
	err = rpctypes.Error(err)
	c := &store.Cause{Err: err, Retry: passing(err)}
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), tooLargeToSend(err):
		c.Kind = ipalloc.ErrLimit
	case errors.Is(err, rpctypes.ErrCompacted):
		c.Kind = ipalloc.ErrOutOfRange
	case closing(err):
		c.Kind = ipalloc.ErrClosed
	}
	return c
}

// pastDeadline reports whether a server answered that the deadline of the call has passed. Old servers say so in the text alone.
func pastDeadline(err error) bool {
	return code(err) == codes.DeadlineExceeded || strings.Contains(rpctypes.ErrorDesc(err), context.DeadlineExceeded.Error())
}

// unknown returns the error of a commit that may have been made.
func unknown(ctx context.Context, op string, err error) error {
	c := causeOf(ctx, err)
	c.Kind = ipalloc.ErrUnknownOutcome
	return wrap(op, c)
}

// code returns the status code of an error of the client, which comes in two shapes.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// passing reports whether an error goes away by itself.
func passing(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Internal: // Internal is a stream that broke, too
		return true
	case codes.Canceled:
		return !closing(err) // a proxy or a member ended the call, not the caller
	}
	for _, p := range []error{rpctypes.ErrTooManyRequests, rpctypes.ErrNotLeader, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthToken} {
		if errors.Is(err, p) {
			return true
		}
	}
	return rpctypes.ErrorDesc(err) == "raft proposal dropped"
}

// closing reports whether the caller closed the client.
func closing(err error) bool {
	return strings.Contains(rpctypes.ErrorDesc(err), "client connection is closing")
}

// tooLargeToSend reports whether the client refused a request for its own limit.
func tooLargeToSend(err error) bool {
	return code(err) == codes.ResourceExhausted && strings.Contains(rpctypes.ErrorDesc(err), "trying to send message larger than max")
}

// traceless reports whether an error with which a server answered a commit shows that the commit was not made and
// will not be. These are refused before they are proposed to the cluster, or by every member alike when they are applied.
//
// Not among them is ErrNoSpace: the member whose database first exceeds its quota makes the commit and answers so. Nor are
// ErrLeaderChanged, ErrStopped and the timeouts: the proposal may be on its way.
func traceless(err error) bool {
	err = rpctypes.Error(err)
	switch code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.FailedPrecondition:
		return true
	}
	return errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNoLeader) || tooLargeToSend(err)
}
