package etcdstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// setBack ends a member, puts what keep made of its data in the place of the data, and starts it.
func setBack(t *testing.T, c *servers.Etcd, change func(data string) error) {
	t.Helper()
	m := c.Members()[0]
	m.Kill()
	if err := change(m.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// again repeats a call, with pauses, for as long as its error says that this can help: a client may have to find the member
// again, and between its attempts every call fails at once.
func again(f func() error) error {
	err := f()
	for begin := time.Now(); store.Retryable(err) && time.Since(begin) < guard; err = f() {
		time.Sleep(readWait)
	}
	return err
}

// A cluster is set back to a copy of its data, under the same cluster ID, and another process commits as often as commits were
// lost. A process that knows the lost ones gets ipalloc.ErrReplaced from whatever it does first, and assigns nothing twice.
func TestSetBackUnderAnotherWriter(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	prefix := newPrefix()
	other := newEngine(t, openIn(t, connect(t, c.Endpoints()), prefix, Options{}), "10.0.0.0/24")
	lost := auto(t, other, "h", "one", "")
	client := connect(t, c.Endpoints())
	firsts := map[string]func(s *Store, e *ipset.Engine) error{
		"assign": func(_ *Store, e *ipset.Engine) error {
			_, err := e.Assign(limited(t), alloc.HostOwner("h"), "two")
			return err
		},
		"commit": func(s *Store, _ *ipset.Engine) error {
			_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "x", Expect: store.AnyRevision}})
			return err
		},
		"guard": func(s *Store, _ *ipset.Engine) error {
			_, err := s.Commit(limited(t), []store.Op{{Key: "nothing"}})
			return err
		},
		"get":  func(s *Store, _ *ipset.Engine) error { _, err := s.Get(limited(t), nil, "c"); return err },
		"list": func(s *Store, _ *ipset.Engine) error { _, _, err := s.List(limited(t), store.Range{}); return err },
		"watch": func(s *Store, _ *ipset.Engine) (err error) {
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			for _, err = range s.Watch(ctx, s.head.rev-5, "") {
				cancel()
			}
			return err
		},
	}
	stores, engines := make(map[string]*Store), make(map[string]*ipset.Engine)
	for name := range firsts {
		s := openIn(t, client, prefix, Options{})
		stores[name], engines[name] = s, newEngine(t, s, "10.0.0.0/24")
		if held, err := engines[name].IPsByHandle(limited(t), "one"); err != nil || len(held) != 1 {
			t.Fatal(held, err)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	setBack(t, c, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	for name, s := range stores { // "one" is released, and then all see that; this is what will be lost
		err := again(func() error { _, err := engines[name].ReleaseByHandle(limited(t), "one"); return err })
		if err != nil {
			t.Fatal(err)
		}
		if err := again(func() error { _, _, err := s.List(limited(t), store.Range{}); return err }); err != nil {
			t.Fatal(err)
		}
	}
	setBack(t, c, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied)))
	})
	e := newEngine(t, openIn(t, connect(t, c.Endpoints()), prefix, Options{}), "10.0.0.0/24")
	held := map[netip.Addr]string{lost: "one"}
	for i := range 8 {
		handle := fmt.Sprint("b", i)
		held[auto(t, e, "h", handle, "")] = handle
	}
	for name, first := range firsts {
		if err := again(func() error { return first(stores[name], engines[name]) }); !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var three netip.Addr
	err := again(func() (err error) {
		three, err = assign(limited(t), other, "three")
		return err
	})
	if held[three] = "three"; err != nil {
		t.Fatalf("a process that saw nothing of what was lost: %v", err)
	}
	wantHeld(t, e, held)
	if rep, err := e.Operator().Check(limited(t), nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%+v, %v", rep.Problems, err)
	}
}

// A process whose newest commit wrote a lane that was removed proves its past by the revision that the servers remember. If that was
// compacted, it goes on as well: what its callers remember is in conflict, is read again, and watches end as those do that are late.
func TestLanesAreRemoved(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for _, compacted := range []bool{false, true} {
		prefix := newPrefix()
		writer, reader := openIn(t, client, prefix, Options{}), openIn(t, client, prefix, Options{})
		rev := mustCommit(t, writer, "k", "v")
		if recs, err := reader.Get(limited(t), nil, "k"); err != nil || recs[0].Rev != rev || reader.head.rev != rev {
			t.Fatalf("%v, %v", recs, err)
		}
		for range 2 * laneAttempts { // as after as many commits at the same time
			p := point{rev: rev}
			_, _ = rand.Read(p.lane[:])
			writer.freeLane(p)
		}
		if _, err := client.Delete(limited(t), writer.past, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		last := mustCommit(t, openIn(t, client, prefix, Options{}), "other", "v")
		if compacted {
			if _, err := client.Compact(limited(t), int64(last)); err != nil {
				t.Fatal(err)
			}
		}
		recs, err := reader.Get(limited(t), nil, "k")
		if err != nil || compacted == (recs[0].Rev == rev) {
			t.Fatalf("%v, %v", recs, err)
		}
		for _, s := range []*Store{reader, writer} {
			if _, err := s.Commit(limited(t), []store.Op{{Key: "k", Expect: rev}}); compacted != errors.Is(err, ipalloc.ErrConflict) || !compacted && err != nil {
				t.Errorf("compacted %v: %v", compacted, err)
			}
		}
		for _, s := range []*Store{reader, writer} {
			now, err := s.Get(limited(t), nil, "k")
			if err != nil {
				t.Fatal(err)
			}
			at, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Value: "w", Expect: now[0].Rev}})
			if err != nil || at <= now[0].Rev || compacted == (at < 1<<viewBits) {
				t.Errorf("compacted %v: %d, %v", compacted, at, err)
			}
			if got, err := firstEvent(t, s, at-1); err != nil || got.Rev != at || got.Changes[0].Rev != at {
				t.Errorf("%+v, %v", got, err)
			}
			if _, err := firstEvent(t, s, rev); compacted && !errors.Is(err, ipalloc.ErrOutOfRange) {
				t.Errorf("a watch from before: %v", err)
			}
		}
	}
}

// firstEvent returns what a watch yields first.
func firstEvent(t *testing.T, s *Store, after uint64) (store.Event, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	for ev, err := range s.Watch(ctx, after, "") {
		return ev, err
	}
	return store.Event{}, nil
}

// Open bounds the number of lanes, and takes those that were not written for longest.
func TestOpenSweepsLanes(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	prefix := newPrefix()
	s := openIn(t, client, prefix, Options{})
	ops := make([]clientv3.Op, 0, 100)
	for i := range maxLanes {
		if ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%016x", s.past, i), "")); len(ops) < 100 && i < maxLanes-1 {
			continue
		}
		if _, err := client.Txn(limited(t)).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
		ops = ops[:0]
	}
	count := func() int64 {
		resp, err := client.Get(limited(t), s.past, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	openIn(t, client, prefix, Options{})
	if n := count(); n != maxLanes {
		t.Errorf("%d lanes", n)
	}
	mustCommit(t, s, "k", "v")
	openIn(t, client, prefix, Options{})
	if n := count(); n >= maxLanes {
		t.Errorf("%d lanes", n)
	}
	mustCommit(t, s, "k", "w")
	if recs, err := openIn(t, client, prefix, Options{}).Get(limited(t), nil, "k"); err != nil || recs[0].Value != "w" {
		t.Errorf("%v, %v", recs, err)
	}
}

// Commits that one process makes at the same time use lanes of their own, and later ones use these again.
func TestLanesOfOneProcess(t *testing.T) {
	s := open(t)
	for range 20 {
		done := make(chan error)
		for i := range 4 {
			go func() {
				_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: fmt.Sprint("k", i), Expect: store.AnyRevision}})
				done <- err
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	if n := len(s.lanes); n == 0 || n > 4 {
		t.Errorf("%d lanes", n)
	}
}
