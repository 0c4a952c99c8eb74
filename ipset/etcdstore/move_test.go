package etcdstore

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestMove copies a store from memory to etcd and back: what was held is held, and the next address is nobody's.
func TestMove(t *testing.T) {
	from := store.NewMemory()
	e := newEngine(t, from, "10.0.0.0/16")
	held := make(map[netip.Addr]string)
	for i := range 300 {
		handle := fmt.Sprint("p", i)
		held[auto(t, e, fmt.Sprint("host", i%40), handle, "r"+handle)] = handle
	}
	there := open(t)
	back := store.NewMemory()
	for _, move := range []struct{ to, from store.Store }{{there, from}, {back, there}} {
		rep, err := store.Copy(limited(t), move.to, move.from)
		if err != nil || rep.Written != rep.Records || rep.Records < 300 {
			t.Fatalf("%+v, %v", rep, err)
		}
		e := newEngine(t, move.to, "10.0.0.0/16")
		wantHeld(t, e, held)
		if a := auto(t, e, "host7", "p7", "rp7"); held[a] != "p7" {
			t.Errorf("a request of before the move is answered with %s", a)
		}
		handle := fmt.Sprintf("new in %T", move.to)
		a := auto(t, e, "host7", handle, "")
		if other, taken := held[a]; taken {
			t.Errorf("%s given to %s and to %s", a, other, handle)
		}
		held[a] = handle
	}
}

// TestMirror takes over the keys of another cluster, key by key, as a mirror or a backup of them would have them.
func TestMirror(t *testing.T) {
	prefix := newPrefix()
	old := connect(t, sharedCluster(t).Endpoints())
	e := newEngine(t, openIn(t, old, prefix, Options{}), "10.0.0.0/16")
	held := make(map[netip.Addr]string)
	for i := range 100 {
		handle := fmt.Sprint("p", i)
		held[auto(t, e, fmt.Sprint("host", i%10), handle, "")] = handle
	}
	// No two clusters of one address on loopback have the same ID: it comes from their addresses.
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	client := connect(t, c.Endpoints())
	keys, err := old.Get(limited(t), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		put(t, client, string(kv.Key), string(kv.Value))
	}
	refused(t, client, prefix, Options{}, ipalloc.ErrMismatch)
	e = newEngine(t, openIn(t, client, prefix, Options{Adopt: true}), "10.0.0.0/16")
	wantHeld(t, e, held)
	a := auto(t, e, "host3", "new", "")
	if other, taken := held[a]; taken {
		t.Errorf("%s given to %s and again", a, other)
	}
	held[a] = "new"
	wantHeld(t, newEngine(t, openIn(t, client, prefix, Options{NoCreate: true}), "10.0.0.0/16"), held)
}

// TestRollback puts an old copy of the data under a member: whoever knows of later revisions is told, and does nothing more.
func TestRollback(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	m := c.Members()[0]
	s := openIn(t, connect(t, c.Endpoints()), newPrefix(), Options{})
	rev := mustCommit(t, s, "k", "early")
	m.Kill()
	early := filepath.Join(t.TempDir(), "early")
	if err := os.CopyFS(early, os.DirFS(m.DataDir())); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
	last := mustRetry(t, s, "k", "late")
	for i := range 10 {
		last = mustRetry(t, s, "l", fmt.Sprint(i))
	}
	m.Kill()
	if err := os.RemoveAll(m.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(m.DataDir(), os.DirFS(early)); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
	err := again(func() error { _, err := s.Get(limited(t), nil, "k"); return err })
	if !errors.Is(err, ipalloc.ErrReplaced) || store.Retryable(err) {
		t.Errorf("Get: %v", err)
	}
	err = again(func() error {
		_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: last - 10}})
		return err
	})
	if !errors.Is(err, ipalloc.ErrReplaced) || store.Retryable(err) {
		t.Errorf("Commit: %v", err)
	}
	again := openIn(t, connect(t, c.Endpoints()), strings.TrimSuffix(s.format, formatName), Options{NoCreate: true})
	if recs, err := again.Get(limited(t), nil, "k", "l"); err != nil || recs[0].Value != "early" || recs[0].Rev != rev || recs[1].Rev != 0 {
		t.Errorf("opened again: %v, %v", recs, err)
	}
}
