//go:build unix

package remote_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// shortDir returns a directory for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "remote")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve serves a store until cancel is called, and returns when it answers.
func serve(t *testing.T, path string, db store.Store) (cancel context.CancelFunc, done chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done = make(chan error, 1)
	go func() { done <- remote.Serve(ctx, path, db) }()
	for {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return cancel, done
		}
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
}

// A socket takes the place of what a killed process left, and of nothing else: neither of a file, such as the database itself, nor of
// the socket of a process that serves.
func TestServeTakesNoPlace(t *testing.T) {
	dir := shortDir(t)
	file := dir + "/ipam.db"
	if err := os.WriteFile(file, []byte("records"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir + "/link", dir} {
		if err := remote.Serve(t.Context(), path, store.NewMemory()); !errors.Is(err, ipalloc.ErrExists) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "records" {
		t.Errorf("%q, %v", text, err)
	}
	path := dir + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := remote.Serve(t.Context(), path, store.NewMemory()); !errors.Is(err, ipalloc.ErrInUse) {
		t.Errorf("beside another process: %v", err)
	}
	if err := l.Close(); err != nil { // the process was killed
		t.Fatal(err)
	}
	cancel, done := serve(t, path, store.NewMemory())
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if rest, err := os.ReadDir(dir); err != nil || len(rest) != 4 { // the file, the link, the socket, its lock
		t.Errorf("%v, %v", rest, err)
	}
}

// A client that sends half of a request, or does not read its answer, keeps the service neither from answering others nor from ending.
// A request that is larger than any is refused before it is read.
func TestClientHangs(t *testing.T) {
	db := store.NewMemory()
	for i := range 64 {
		if _, err := db.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: fmt.Sprint(i), Value: strings.Repeat("x", 64<<10)}}); err != nil {
			t.Fatal(err)
		}
	}
	path := shortDir(t) + "/s"
	cancel, done := serve(t, path, db)
	defer cancel()
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err == nil {
			_, err = io.WriteString(c, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial("POST /1/commit HTTP/1.1\r\nHost: store\r\nContent-Length: 100\r\n\r\nhalf")
	large := dial("POST /1/commit HTTP/1.1\r\nHost: store\r\nContent-Length: 400000000\r\n\r\n")
	if answer, err := http.ReadResponse(bufio.NewReader(large), nil); err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%v, %v", answer, err)
	}
	// What a client sends for a list, from a server that keeps it.
	lists := make(chan []byte, 1)
	tap, err := net.Listen("unix", path+".tap")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	go func() {
		c, err := tap.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 1<<16)
		n, _ := c.Read(buf) // the whole request
		lists <- bytes.Replace(buf[:n], []byte("/limits"), []byte("/list"), 1)
	}()
	if _, err := remote.Open(t.Context(), path+".tap"); err == nil {
		t.Error("a server that closes is open")
	}
	unread := dial(string(<-lists))
	if _, err := io.ReadFull(unread, make([]byte, 16)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	c, err := remote.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if recs, _, err := c.List(t.Context(), store.Range{}); err != nil || len(recs) != 64 {
		t.Errorf("%d records, %v", len(recs), err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A service that ends before it answers leaves the outcome of a commit unknown, and that of no other call. One of another version is
// none that could be asked again.
func TestServiceGoesAway(t *testing.T) {
	path := shortDir(t) + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	real := store.NewMemory()
	cancel, done := serve(t, path+".real", real)
	var old atomic.Bool
	old.Store(true)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/limits") {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		if old.Load() {
			http.NotFound(w, r)
			return
		}
		q, err := http.NewRequest(r.Method, "http://store"+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
		}
		q.ContentLength = r.ContentLength
		answer, err := (&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path+".real")
		}, DisableKeepAlives: true}).RoundTrip(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		io.Copy(w, answer.Body)
	})}
	go srv.Serve(l)
	defer srv.Close()
	if _, err := remote.Open(t.Context(), path); !errors.Is(err, ipalloc.ErrVersion) || store.Retryable(err) {
		t.Error(err)
	}
	old.Store(false)
	c, err := remote.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: "a", Expect: store.AnyRevision}}); !errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	_, err = c.Get(t.Context(), nil, "a")
	if err == nil || errors.Is(err, ipalloc.ErrUnknownOutcome) || !store.Retryable(err) {
		t.Error(err)
	}
	_, _, err = c.List(t.Context(), store.Range{})
	if err == nil || errors.Is(err, ipalloc.ErrUnknownOutcome) || !store.Retryable(err) {
		t.Error(err)
	}
	for _, err := range c.Watch(t.Context(), 0) {
		if err == nil || !store.Retryable(err) {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Clients cannot announce more bytes at a time than two requests may have, nor have more than 1,024 connections: what is beyond is refused
// with an error that passes, or waits.
func TestBounds(t *testing.T) {
	path := shortDir(t) + "/s"
	cancel, done := serve(t, path, limited{store.NewMemory()})
	defer func() { cancel(); <-done }()
	c, err := remote.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	half := func() net.Conn {
		c := dial()
		fmt.Fprintf(c, "POST /1/commit HTTP/1.1\r\nHost: store\r\nContent-Length: %d\r\n\r\nhalf", 256<<10+32<<10+1<<20)
		return c
	}
	halves := [2]net.Conn{half(), half()}
	get := func() error { _, err := c.Get(t.Context(), nil, "a"); return err }
	for err = get(); err == nil; err = get() { // until the service has read both
		for i, h := range halves {
			h.SetReadDeadline(time.Now().Add(time.Millisecond))
			if n, _ := h.Read(make([]byte, 1)); n > 0 { // refused, because it met a get
				h.Close()
				halves[i] = half()
			}
		}
	}
	for _, h := range halves {
		defer h.Close()
	}
	if !store.Retryable(err) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Error(err)
	}
	var idle []net.Conn
	for range 1021 {
		idle = append(idle, dial())
	}
	late := dial()
	defer late.Close()
	io.WriteString(late, "POST /1/none HTTP/1.1\r\nHost: store\r\nContent-Length: 0\r\n\r\n")
	late.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := late.Read(make([]byte, 1)); n > 0 {
		t.Errorf("one connection more was answered: %v", err)
	}
	for _, c := range idle {
		c.Close()
	}
	late.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := http.ReadResponse(bufio.NewReader(late), nil); err != nil {
		t.Errorf("it was not answered when others had ended: %v", err)
	}
}
