package controller

import (
	"context"
	"time"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// Source is the view of the nodes that a [Controller] works from, such as a cache that
// follows an API server. The view may lag behind, but it never goes back.
type Source interface {
	// Start begins to follow the nodes, until ctx ends. It returns nil when the view is
	// complete, or an error if it cannot become so. The view then includes every write
	// that was recorded before Start was called, by an earlier controller too: a view that
	// lacks one of them makes the controller hand out a recorded prefix again. For an API
	// server that means a consistent list, not one from a cache. Start must not return
	// while a request of an earlier controller can still be carried out.
	//
	// From then on, and possibly earlier, the source calls changed with the name of every
	// node that was added, changed or deleted, once the view shows the change. changed
	// never blocks.
	Start(ctx context.Context, changed func(name string)) error
	// List returns all nodes of the view. For a node without a record it may return
	// prefixes that are the node's all the same, such as those of its machine in a cloud,
	// if Get returns none and the source calls changed for the node during Start.
	// Otherwise the load takes the node for served and its record is never written.
	List() []nodeipam.Node
	// Get returns a node of the view; ok is false if the view has none of that name.
	Get(name string) (n nodeipam.Node, ok bool)
}

// Writer writes and reads the authoritative records of the nodes. Its methods return
// soon after ctx ends, and within their own deadline. Many goroutines call them, one at
// a time for each node.
//
// An error that has a method RetryAfter() time.Duration names a delay. The node keeps
// its prefixes and the call is repeated after that time, not before.
type Writer interface {
	// Write records an assignment for n, which has no prefixes in the view. Writing what
	// is recorded already succeeds. An error that wraps [ipalloc.ErrConflict],
	// for a write that was refused, or [ipalloc.ErrNotFound], for a node that does not
	// exist, means that this call recorded nothing and never will. After any other
	// error the outcome is unknown, and the request may be carried out as late as
	// [Config].RequestLife after Write returned.
	//
	// The API server must check the node when it carries out the request, not when it
	// receives it: it refuses a node that has other prefixes and, if the records have UIDs, one whose UID is not
	// n's. A late request then does no harm once a later write of that node succeeded, or
	// the node is gone.
	Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error
	// Read returns the node as it is recorded now, not as a cache shows it. A node that
	// does not exist is an error that wraps [ipalloc.ErrNotFound].
	Read(ctx context.Context, name string) (nodeipam.Node, error)
}

// Clock is a [Controller]'s time source. Many goroutines call it.
type Clock interface {
	Now() time.Time
	// NewTimer returns a channel that receives once after d, and a function that frees
	// the timer.
	NewTimer(d time.Duration) (c <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) NewTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
