//go:build unix

package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// What ends a client, and what does not: its service is started again with the same store, an older one, or another one.
func TestPast(t *testing.T) {
	storetest.TestPast(t, func(t *testing.T) storetest.Past {
		path := shortDir(t) + "/s"
		db := store.NewMemory()
		snapshot := func(t *testing.T) []byte {
			t.Helper()
			b, err := db.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		cancel, done := serve(t, path, db)
		old := snapshot(t)
		stop := func(t *testing.T) {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(func() { stop(t) })
		start := func(t *testing.T, from []byte, commits int) {
			t.Helper()
			stop(t)
			var err error
			if db = store.NewMemory(); from != nil {
				if db, err = store.RestoreMemory(from); err != nil {
					t.Fatal(err)
				}
			}
			cancel, done = serve(t, path, db)
			for i := range commits {
				if _, err := db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "x", Value: fmt.Sprint("other", i), Expect: store.AnyRevision}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		open := func(t *testing.T) store.Store {
			c, err := remote.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		return storetest.Past{
			Open: open,
			Same: map[string]func(*testing.T){
				"started again":       func(t *testing.T) { stop(t); cancel, done = serve(t, path, db) },
				"started again twice": func(t *testing.T) { start(t, snapshot(t), 0); start(t, snapshot(t), 0) },
				"by another process":  func(t *testing.T) { start(t, snapshot(t), 0) },
			},
			Other: map[string]func(*testing.T){
				"restored":                 func(t *testing.T) { start(t, old, 0) },
				"restored and others came": func(t *testing.T) { start(t, old, 10) },
				"restored, started twice":  func(t *testing.T) { start(t, old, 10); start(t, snapshot(t), 0) },
				"a new store":              func(t *testing.T) { start(t, nil, 0) },
				"a new store and others":   func(t *testing.T) { start(t, nil, 10) },
			},
		}
	})
}

// The service is stopped, its store is set back as after a restore, and it starts again at the same socket. An engine that stayed gets
// ErrReplaced and not an address that another holds.
func TestRestoredUnderAnEngine(t *testing.T) {
	ctx, path := t.Context(), shortDir(t)+"/s"
	db := store.NewMemory()
	stop, done := serve(t, path, db)
	c, err := remote.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := alloc.HostOwner("h")
	engine := func(s store.Store) *ipset.Engine {
		e, err := ipset.New(s, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	client := engine(c)
	if err := client.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Assign(ctx, h, "one"); err != nil {
		t.Fatal(err)
	}
	backup, _ := db.MarshalBinary()
	if _, err := client.ReleaseByHandle(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	stop()
	<-done
	if db, err = store.RestoreMemory(backup); err != nil {
		t.Fatal(err)
	}
	stop, done = serve(t, path, db)
	defer func() { stop(); <-done }()
	other, err := engine(db).Assign(ctx, h, "other")
	if err != nil {
		t.Fatal(err)
	}
	if three, err := client.Assign(ctx, h, "three"); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("other has %v, three is given %v, %v", other.Address, three.Address, err)
	}
}

// limited has the limits of a boltstore.
type limited struct{ store.Store }

func (limited) Limits() store.Limits {
	return store.Limits{Key: 32768, Value: 64 << 10, Bytes: 256 << 10}
}

// A commit of as many bytes as the store takes is made, and a larger one fails with ErrLimit and was not made.
func TestLargestCommit(t *testing.T) {
	c := served(t, limited{store.NewMemory()})
	ops := func(size int) (ops []store.Op) {
		for _, k := range []string{"a", "b", "c", "d"} {
			ops = append(ops, store.Op{Kind: store.Put, Key: k, Value: strings.Repeat("x", size), Expect: store.AnyRevision})
		}
		return ops
	}
	if _, err := c.Commit(t.Context(), ops(64<<10-1)); err != nil {
		t.Error(err)
	}
	if _, err := c.Commit(t.Context(), ops(64<<10)); !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Error(err)
	}
	// What is between keys counts on the way: a request that is too large was not made either.
	var guards []store.Op
	for i := range 250_000 / 5 {
		guards = append(guards, store.Op{Kind: store.Guard, Key: fmt.Sprintf("%05d", i), Expect: 1 << 60})
	}
	if _, err := c.Commit(t.Context(), guards); !errors.Is(err, ipalloc.ErrConflict) && !errors.Is(err, ipalloc.ErrLimit) {
		t.Error(err)
	}
}

// An error is, or wraps, an *ipalloc.Error with the fields that it has in the service.
func TestErrorsHaveTheirFields(t *testing.T) {
	db := store.NewMemory()
	for range 1500 {
		if _, err := db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	c := served(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var texts []string
	for _, s := range []store.Store{db, c} {
		var e *ipalloc.Error
		for _, err := range s.Watch(ctx, 0, "") {
			if !errors.Is(err, ipalloc.ErrOutOfRange) || !errors.As(err, &e) {
				t.Errorf("%T: %T %v", s, err, err)
			}
			texts = append(texts, err.Error())
		}
		_, err := s.Commit(ctx, []store.Op{{Kind: store.Put, Key: "a", Expect: 1}})
		if key, ok := store.ConflictKey(err); !ok || key != "a" || !store.Retryable(err) || !errors.As(err, &e) {
			t.Errorf("%T: %v", s, err)
		}
		texts = append(texts, err.Error())
	}
	if len(texts) != 4 || texts[0] != texts[2] || texts[1] != texts[3] {
		t.Errorf("%q", texts)
	}
}

// A process serves, but its queue of connections is full because it is paused: another service does not take its place. Neither does one
// that starts in the same moment.
func TestServeBesideAnother(t *testing.T) {
	path := shortDir(t) + "/s"
	l, err := net.Listen("unix", path) // never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			break // the queue is full
		}
		defer c.Close()
	}
	before, _ := os.Stat(path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := remote.Serve(ctx, path, store.NewMemory()); !errors.Is(err, ipalloc.ErrInUse) {
		after, _ := os.Stat(path)
		t.Errorf("%v; the same socket: %v", err, os.SameFile(before, after))
	}
	for range 20 {
		path := shortDir(t) + "/s"
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error)
		const n = 8
		for range n {
			go func() { ends <- remote.Serve(ctx, path, store.NewMemory()) }()
		}
		for range n - 1 {
			if err := <-ends; !errors.Is(err, ipalloc.ErrInUse) {
				t.Errorf("one of %d that start at once: %v", n, err)
			}
		}
		cancel()
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// Calls one after the other share a connection, and so do callers at the same time, up to 256.
func TestConnectionsAreReused(t *testing.T) {
	path := shortDir(t) + "/s"
	cancel, done := serve(t, path, store.NewMemory())
	defer func() { cancel(); <-done }()
	l, err := net.Listen("unix", path+".relay")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var n atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			to, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			for _, pair := range [][2]net.Conn{{c, to}, {to, c}} {
				go func() {
					defer pair[0].Close()
					buf := make([]byte, 1<<16)
					for {
						n, err := pair[1].Read(buf)
						if err != nil {
							return
						}
						if _, err := pair[0].Write(buf[:n]); err != nil {
							return
						}
					}
				}()
			}
		}
	}()
	c, err := remote.Open(t.Context(), path+".relay")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := c.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(i), Value: strings.Repeat("x", 100*i)}}); err != nil {
			t.Fatal(err)
		}
		if recs, _, err := c.List(t.Context(), store.Range{}); err != nil || len(recs) != i+1 {
			t.Fatal(len(recs), err)
		}
	}
	if n.Load() != 1 {
		t.Errorf("100 calls took %d connections", n.Load())
	}
	c.Close()
	if _, err := c.Get(t.Context(), nil, "a"); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A service that ends in order ends a watch with an error that store.Retryable accepts, and Close of the client with ErrClosed.
func TestWatchEnds(t *testing.T) {
	path := shortDir(t) + "/s"
	db := store.NewMemory()
	cancel, done := serve(t, path, db)
	c, err := remote.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	watch := func(end func()) (last error) {
		_, rev, err := c.List(t.Context(), store.Range{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Watch(t.Context(), rev, "") {
			if last = err; err == nil {
				go end()
			}
		}
		return last
	}
	err = watch(cancel)
	if e := <-done; e != nil || err == nil || !store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("the service ended: %v, %v", err, e)
	}
	cancel, done = serve(t, path, db)
	defer func() { cancel(); <-done }()
	if err := watch(func() { c.Close() }); !errors.Is(err, ipalloc.ErrClosed) {
		t.Errorf("the client ended: %v", err)
	}
}
