package etcdstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestLimits verifies that what Limits promises is taken by a server with its defaults, also where the request is as large
// as it can be, and that one more of anything is refused before it is sent.
func TestLimits(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for _, length := range []int{0, maxPrefix - len(newPrefix()) - 5} {
		prefix := newPrefix() + strings.Repeat("x", length) + "/"
		s := openIn(t, client, prefix, Options{})
		l := s.Limits()
		if l.Ops != 125 || l.Value < 400_000 || l.Bytes != l.Value {
			t.Errorf("limits %+v", l)
		}
		keys := func(i, size int) string { return strings.Repeat("k", size-8) + fmt.Sprintf("%08d", i) }
		each := l.Bytes / l.Ops
		for name, f := range map[string]func(more int) []store.Op{
			"one value": func(more int) []store.Op {
				return []store.Op{{Kind: store.Put, Key: "k", Value: strings.Repeat("v", l.Value-1+more), Expect: store.AnyRevision}}
			},
			"all in keys": func(more int) (ops []store.Op) {
				for i := range l.Ops {
					ops = append(ops, store.Op{Kind: store.Put, Key: keys(i, each), Expect: 0})
				}
				ops[0].Value = strings.Repeat("v", l.Bytes-each*l.Ops+more)
				return ops
			},
			"all removed": func(more int) (ops []store.Op) {
				for i := range l.Ops + more {
					ops = append(ops, store.Op{Kind: store.Delete, Key: keys(i, 3000), Expect: store.AnyRevision})
				}
				return ops
			},
			"all expected, and as many written": func(more int) (ops []store.Op) {
				for i := range l.Ops + more {
					ops = append(ops, store.Op{Kind: store.Guard, Key: fmt.Sprint("g", i)}, store.Op{Kind: store.Put, Key: fmt.Sprint("p", i), Expect: store.AnyRevision})
				}
				return ops
			},
			"all guards": func(more int) (ops []store.Op) {
				for i := range l.Ops + more {
					ops = append(ops, store.Op{Kind: store.Guard, Key: fmt.Sprint("g", i)})
				}
				return ops
			},
		} {
			if _, err := s.Commit(limited(t), f(1)); !errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
				t.Errorf("%s, one more: %v", name, err)
			}
			if _, err := s.Commit(limited(t), f(0)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestSmallerServer verifies that a server that takes less than the store was told is understood, and that it is
// served when the store is told.
func TestSmallerServer(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, Flags: []string{"--max-txn-ops=40", "--max-request-bytes=600000"}})
	client := connect(t, c.Endpoints())
	ops := func(n, size int) (ops []store.Op) {
		for i := range n {
			ops = append(ops, store.Op{Kind: store.Put, Key: fmt.Sprint("k", i), Value: strings.Repeat("v", size), Expect: store.AnyRevision})
		}
		return ops
	}
	s := openIn(t, client, newPrefix(), Options{})
	for _, ops := range [][]store.Op{ops(60, 1), ops(2, 250_000)} {
		if _, err := s.Commit(limited(t), ops); err != nil && (!errors.Is(err, ipalloc.ErrLimit) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err)) {
			t.Errorf("%d records: %v", len(ops), err)
		}
	}
	if _, err := s.Commit(limited(t), ops(60, 1)); !errors.Is(err, ipalloc.ErrLimit) {
		t.Errorf("the server took 60 records: %v", err)
	}
	told := openIn(t, client, newPrefix(), Options{MaxOps: 40, MaxBytes: 600_000})
	l := told.Limits()
	if _, err := told.Commit(limited(t), ops(l.Ops, 1)); err != nil || l.Ops != 37 {
		t.Errorf("%d records: %v", l.Ops, err)
	}
	if _, err := told.Commit(limited(t), ops(1, l.Value-2)); err != nil {
		t.Errorf("%d bytes: %v", l.Value, err)
	}
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if recs, err := told.Get(limited(t), nil, keys...); err != nil || len(recs) != 100 || recs[36].Rev == 0 || recs[37].Rev != 0 {
		t.Errorf("%d records read: %v", len(recs), err)
	}
}

// TestFullDatabase verifies that a database that is full is not taken for a commit that was not made: the member that first
// exceeds its quota makes it and refuses it. Once there is room again the store goes on.
func TestFullDatabase(t *testing.T) {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, Flags: []string{"--quota-backend-bytes=4194304"}})
	client := connect(t, c.Endpoints())
	s := openIn(t, client, newPrefix(), Options{})
	value := strings.Repeat("v", 300_000)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: fmt.Sprint("k", n), Value: value, Expect: 0}})
	}
	if !errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) || !strings.Contains(err.Error(), "space exceeded") {
		t.Fatalf("after %d commits: %v", n, err)
	}
	recs, rev, err := s.List(limited(t), store.Range{})
	if err != nil || len(recs) < n-1 {
		t.Fatalf("%d records of %d: %v", len(recs), n, err)
	}
	t.Logf("%d commits, the last one refused; %d records", n, len(recs))
	if _, err := client.Compact(limited(t), int64(rev), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	// What is left is too much; removing needs no room.
	for _, r := range recs {
		if _, err := s.Commit(limited(t), []store.Op{{Kind: store.Delete, Key: r.Key, Expect: r.Rev}}); err != nil {
			t.Fatal(err)
		}
	}
	last := mustList(t, s)
	if _, err := client.Compact(limited(t), int64(last), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(limited(t), c.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(limited(t), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, "again", value)
}

// mustList returns the revision of the store.
func mustList(t *testing.T, s *Store) uint64 {
	t.Helper()
	_, rev, err := s.List(limited(t), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
