package etcdstore

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What is wrong with the cluster or with what is under the prefix. None of these goes away by trying again.
var (
	// ErrForeign says that the prefix holds keys that are no store of this package.
	ErrForeign = errors.New("etcdstore: not a store")
	// ErrNoStore says that there is no store.
	ErrNoStore = errors.New("etcdstore: no store")
	// ErrVersion says that a newer release wrote the store.
	ErrVersion = errors.New("etcdstore: format of a newer release")
	// ErrCluster says that this is not the cluster that the store belongs to.
	ErrCluster = errors.New("etcdstore: another cluster")
	// ErrReplaced says that the format record is not the one that Open found: the store was removed, adopted or
	// converted since. Nothing was committed; open it again, and make a new engine on it.
	ErrReplaced = errors.New("etcdstore: the store was replaced")
	// ErrRollback says that the cluster has forgotten revisions that it had: an old snapshot was restored under
	// this client. What engines have cached is not to be trusted; open the store again, and make new engines.
	ErrRollback = errors.New("etcdstore: the cluster went back to an earlier state")
)

// Error is what the store returns for a failure of the cluster or of the way to it. It wraps the etcd client's error
// (see package rpctypes) or a context's, and, where they apply, ipalloc.ErrUnknownOutcome, ipalloc.ErrLimit and store.ErrCompacted.
//
// Without ipalloc.ErrUnknownOutcome the call left no trace.
type Error struct {
	// Op is the method: "open", "get", "list", "commit" or "watch".
	Op string
	// Err is the cause.
	Err error

	kind  error // one of ipset's sentinels, or nil
	retry bool
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString("etcdstore: ")
	s.WriteString(e.Op)
	if e.kind != nil {
		s.WriteString(": ")
		s.WriteString(strings.TrimPrefix(e.kind.Error(), "ipset: "))
	}
	s.WriteString(": ")
	s.WriteString(strings.TrimPrefix(e.Err.Error(), "etcdstore: "))
	return s.String()
}

// Unwrap returns ipset's sentinel, if one applies, and the cause.
func (e *Error) Unwrap() []error {
	if e.kind == nil {
		return []error{e.Err}
	}
	return []error{e.kind, e.Err}
}

// Retryable reports whether the same call can succeed later without anybody repairing anything: a conflict, a leader that
// changed, a member that was out of reach, a deadline that was too short. If errors.Is(err, ipalloc.ErrUnknownOutcome) as well, the
// call is to be repeated with its request key. A context that was cancelled, a full database, a missing permission, a commit
// that is too large and all errors of this package's variables are not retryable.
//
// It takes what the store returned, and what an engine on it returned.
func Retryable(err error) bool {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.retry
	case errors.Is(err, ipalloc.ErrConflict):
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// failure types an error of a call that left no trace.
func failure(ctx context.Context, op string, err error) *Error {
	if e := ctx.Err(); e != nil {
		return &Error{Op: op, Err: e, retry: errors.Is(e, context.DeadlineExceeded)}
	}
	if _, limited := ctx.Deadline(); limited && code(err) == codes.DeadlineExceeded {
		return &Error{Op: op, Err: context.DeadlineExceeded, retry: true} // a server was told the deadline, and its clock was first
	}
	err = rpctypes.Error(err)
	e := &Error{Op: op, Err: err, retry: passing(err)}
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps), tooLargeToSend(err):
		e.kind = ipalloc.ErrLimit
	case errors.Is(err, rpctypes.ErrCompacted):
		e.kind = store.ErrCompacted
	}
	return e
}

// unknown types an error of a commit that may have been made.
func unknown(ctx context.Context, op string, err error) *Error {
	e := failure(ctx, op, err)
	e.kind = ipalloc.ErrUnknownOutcome
	return e
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
		return !closing(err) // somebody on the way ended the call, not the caller
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
