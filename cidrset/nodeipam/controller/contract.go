package controller

import (
	"context"
	"time"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// Source is a [Controller]'s view of the nodes, such as a cache that follows an API
// server. The view may lag behind, but it never goes back to an earlier state.
type Source interface {
	// Start begins to follow the nodes, until ctx ends. It returns nil when the view is
	// complete, or an error if it cannot become so. The view then includes every write
	// recorded before Start was called, also by an earlier controller. If the view lacked
	// such a write, the controller would assign a recorded prefix again. With an API
	// server, Start needs a consistent list, not one from a cache. Start must not return
	// while a request of an earlier controller may still be carried out.
	//
	// From then on, and possibly earlier, the source calls changed with the name of every
	// node that was added, changed or deleted, after the view shows the change. The call
	// of changed never blocks.
	Start(ctx context.Context, changed func(name string)) error
	// List returns all nodes of the view. For a node without a record, List may return
	// prefixes that belong to the node all the same, such as the prefixes of its machine
	// in a cloud. Get must then return none, and the source must call changed for the
	// node during Start. Otherwise the load counts the node as served, and its record is
	// never written.
	List() []nodeipam.Node
	// Get returns a node of the view; ok is false if the view has no node of that name.
	Get(name string) (n nodeipam.Node, ok bool)
}

// Writer writes and reads the authoritative records of the nodes. Its methods return
// soon after ctx ends, and within their own deadline. Many goroutines call them, one at
// a time for each node.
//
// An error that has a method RetryAfter() time.Duration names a delay. The node keeps
// its prefixes and the call is repeated after that time, not before.
type Writer interface {
	// Write records an assignment for n, which has no prefixes in the view. A write of
	// the recorded assignment succeeds. An error that wraps [ipalloc.ErrConflict] means
	// that the write was refused. An error that wraps [ipalloc.ErrNotFound] means that
	// the node does not exist. In both cases this call recorded nothing and never will.
	// After any other error the outcome is unknown. The request may then still be carried
	// out until [Config].RequestLife after Write returned.
	//
	// The API server must check the node when it carries out the request, not when it
	// receives it. It must refuse a node that has other prefixes and, if the records have
	// UIDs, a node whose UID is not n's. A late request then does no harm once a later
	// write of that node has succeeded or the node has been deleted.
	Write(ctx context.Context, n nodeipam.Node, as nodeipam.Assignment) error
	// Read returns the node as it is recorded now, not from a cache. If the node does not
	// exist, Read returns an error that wraps [ipalloc.ErrNotFound].
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
