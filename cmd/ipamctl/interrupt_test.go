package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// An answer that cannot be written ends with status 8, in every format.
func TestOutputIsFull(t *testing.T) {
	name := newBolt(t, cluster(t))
	damageBlock(t, strings.TrimPrefix(name, "bolt://"))
	for _, line := range []string{"pool list", "pool list -o name", "pool list -o json", "pool list -o csv", "pool show pods", "check", "map"} {
		var errs strings.Builder
		a := &app{stdout: full{}, stderr: &errs, getenv: func(string) string { return name }, now: func() time.Time { return noon }}
		if status := a.run(t.Context(), strings.Fields(line)); status != exitUnavailable || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: status %d, %s", line, status, errs.String())
		}
	}
}

// A signal ends a question at once.
func TestQuestionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	a := &app{stdin: r, stderr: stopWriter(cancel)}
	if err := a.ask(ctx, "remove it", "it"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a = &app{stdin: strings.NewReader("it\n"), stderr: io.Discard}
	if err := a.ask(t.Context(), "remove it", "it"); err != nil {
		t.Error(err)
	}
	if err := a.ask(t.Context(), "remove it", "it"); statusOf(err) != exitAborted {
		t.Error(err)
	}
}

// stopWriter calls a function at each write.
type stopWriter func()

func (f stopWriter) Write(p []byte) (int, error) { f(); return len(p), nil }

// narrow is a store of small commits that calls a function before some of them.
type narrow struct {
	store.Store
	commits int
	before  func(n int)
}

func (s *narrow) Limits() store.Limits { return store.Limits{Ops: 60, Bytes: 1 << 20} }

func (s *narrow) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	s.commits++
	s.before(s.commits)
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, err)
	}
	return s.Store.Commit(ctx, ops)
}

// A call that is in flight at a signal ends, and is counted; none begins after it.
func TestSignalDuringChange(t *testing.T) {
	db := store.NewMemory()
	cluster(t)(newEngine(t, db))
	before := len(held(t, db))
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{stderr: io.Discard}
	stopping := &narrow{Store: db, before: func(n int) {
		if n == 1 {
			cancel()
		}
	}}
	e := newEngine(t, &stoppable{Store: stopping, app: a, stop: ctx})
	ips, _, err := e.RemoveHost(context.WithoutCancel(ctx), alloc.HostOwner("a"))
	if !errors.Is(err, context.Canceled) || errors.Is(err, ipalloc.ErrUnknownOutcome) || stopping.commits != 1 {
		t.Fatalf("%v after %d commits", err, stopping.commits)
	}
	if gone := before - len(held(t, db)); gone == 0 || gone != len(ips) {
		t.Errorf("%d addresses are gone, and %d were reported", gone, len(ips))
	}
	for _, c := range []struct {
		err  error
		want string
		as   int
	}{
		{err, "stopped; a part is done: repeat this command for the rest", exitAborted},
		{fmt.Errorf("x: %w", ipalloc.ErrUnknownOutcome), "the outcome of this call is unknown: repeat this command", exitConflict},
		{nil, "", exitOK},
	} {
		got := a.verdict(ctx, c.err, nil)
		if statusOf(got) != c.as || got != nil && !strings.HasSuffix(got.Error(), c.want) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// held returns the addresses that are held in a store.
func held(t *testing.T, db store.Store) (all []netip.Addr) {
	t.Helper()
	for al, err := range newEngine(t, db).Allocations(t.Context(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !al.Cooling {
			all = append(all, al.Address)
		}
	}
	return all
}
