//go:build unix

package remote_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// served returns a client of a store that this process serves until the test ends.
func served(t *testing.T, db store.Store) *remote.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "remote") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	path := dir + "/sock"
	go func() { done <- remote.Serve(ctx, path, db) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for {
		c, err := remote.Open(t.Context(), path)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
}

// A store behind a socket keeps the contract of a store.
func TestStore(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) store.Store { return served(t, store.NewMemory()) })
}

// A client tells the errors of a store apart as a caller in its process does.
func TestErrors(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	c := served(t, db)
	for _, want := range []error{ipalloc.ErrInvalid, ipalloc.ErrOutOfRange, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse, ipalloc.ErrMismatch, ipalloc.ErrVersion,
		ipalloc.ErrReplaced, ipalloc.ErrLimit, ipalloc.ErrCorrupt, ipalloc.ErrClosed, store.ErrNoSpace, store.ErrReadOnly, store.ErrFailed} {
		for _, retry := range []bool{false, true} {
			db.Script(faults.From(1, faults.Fail(&store.Cause{Kind: want, Err: faults.ErrInjected, Retry: retry})))
			_, got := c.Get(t.Context(), nil, "a")
			_, _, listed := c.List(t.Context(), store.Range{})
			if !errors.Is(got, want) || !errors.Is(listed, want) || !errors.As(got, new(*ipalloc.Error)) || store.Retryable(got) != retry {
				t.Errorf("%v: %v, %v", want, got, listed)
			}
		}
	}
	put := []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}}
	db.Script(faults.AtCommit(1, faults.Unknown(true)))
	if _, err := c.Commit(t.Context(), put); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	db.Script(faults.AtCommit(1, faults.Conflict("k")))
	_, err := c.Commit(t.Context(), put)
	if key, ok := store.ConflictKey(err); !ok || key != "k" {
		t.Error(err)
	}
	db.Script(faults.AtCommit(1, faults.Fail(faults.ErrInjected)))
	if _, err := c.Commit(t.Context(), put); err == nil || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
}

// stuck is a store whose commits and watches end with their context, and tell so.
type stuck struct {
	store.Store
	begun, ended chan string
}

func (s stuck) wait(ctx context.Context, what string) error {
	s.begun <- what
	<-ctx.Done()
	s.ended <- what
	return ctx.Err()
}

func (s stuck) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if ops[0].Key != "a" { // the service notes its start
		return s.Store.Commit(ctx, ops)
	}
	return 0, s.wait(ctx, "commit")
}

func (s stuck) Watch(ctx context.Context, _ uint64, _ ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) { yield(store.Event{}, s.wait(ctx, "watch")) }
}

// A client that goes away ends its call in the service; it does not know the outcome of its commit.
func TestClientGoesAway(t *testing.T) {
	db := stuck{store.NewMemory(), make(chan string, 1), make(chan string, 1)}
	c := served(t, db)
	for what, call := range map[string]func(ctx context.Context) error{
		"commit": func(ctx context.Context) error {
			_, err := c.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}})
			if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Error(err)
			}
			return err
		},
		"watch": func(ctx context.Context) (err error) {
			for _, err = range c.Watch(ctx, 0) {
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-db.begun; cancel() }()
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		if got := <-db.ended; got != what {
			t.Errorf("%s ended", got)
		}
	}
}

// TestErrorOfSeveralKinds: an error that matches several sentinels matches them behind the socket too.
func TestErrorOfSeveralKinds(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	c := served(t, db)
	for _, want := range [][]error{{ipalloc.ErrUnknownOutcome, ipalloc.ErrClosed}, {ipalloc.ErrLimit, ipalloc.ErrCorrupt, ipalloc.ErrInvalid}} {
		db.Script(faults.AtCommit(1, faults.Fail(errors.Join(want...))))
		_, err := c.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}})
		for _, w := range want {
			if !errors.Is(err, w) {
				t.Errorf("%v does not match %v", err, w)
			}
		}
	}
}
