package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// refused verifies that Open fails as it should, finally, and leaves the prefix as it was.
func refused(t *testing.T, client *clientv3.Client, prefix string, o Options, want error) {
	t.Helper()
	before, err := client.Get(limited(t), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Open(limited(t), client, prefix, o); !errors.Is(err, want) || s != nil || store.Retryable(err) {
		t.Errorf("Open(%q, %+v) = %v, want %v", prefix, o, err, want)
	}
	after, err := client.Get(limited(t), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before.Kvs) != fmt.Sprint(after.Kvs) {
		t.Errorf("Open(%q, %+v) changed %v to %v", prefix, o, before.Kvs, after.Kvs)
	}
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(limited(t), key, value); err != nil {
		t.Fatal(err)
	}
}

// mustCommit puts a value under a key.
func mustCommit(t testing.TB, s *Store, key, value string) uint64 {
	t.Helper()
	rev, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestOpenArguments(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for _, prefix := range []string{"", "/", "x", "/x", strings.Repeat("x", maxPrefix) + "/"} {
		if _, err := Open(limited(t), client, prefix, Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	for _, o := range []Options{{MaxOps: 1 + standingOps}, {MaxOps: -1}, {MaxBytes: 1000}, {MaxBytes: -1}} {
		if _, err := Open(limited(t), client, newPrefix(), o); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(limited(t), nil, newPrefix(), Options{}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

func TestOpenFindsWhatIsThere(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	prefix := newPrefix()
	refused(t, client, prefix, Options{NoCreate: true}, ipalloc.ErrNotFound)
	s := openIn(t, client, prefix, Options{})
	rev := mustCommit(t, s, "k", "v")
	for _, o := range []Options{{}, {NoCreate: true}, {Adopt: true}, {Cluster: s.Cluster()}} {
		again := openIn(t, client, prefix, o)
		if recs, err := again.Get(limited(t), nil, "k"); err != nil || recs[0].Rev != rev || again.mark != s.mark || again.born != s.born {
			t.Errorf("%+v: %v, %v", o, recs, err)
		}
	}
}

// TestOpenAtOnce has many make the same store: one does, the others find it.
func TestOpenAtOnce(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for range 5 {
		prefix := newPrefix()
		var wg sync.WaitGroup
		var marks [8]uint64
		for i := range marks {
			wg.Go(func() {
				s, err := Open(t.Context(), client, prefix, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				marks[i] = s.mark
			})
		}
		wg.Wait()
		for _, m := range marks {
			if m != marks[0] {
				t.Errorf("format records %v", marks)
			}
		}
	}
}

func TestForeignPrefix(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for _, key := range []string{"a", "format/", "data/b", "zzz"} {
		prefix := newPrefix()
		put(t, client, prefix+key, "somebody else's")
		refused(t, client, prefix, Options{}, ipalloc.ErrMismatch)
		refused(t, client, prefix, Options{Adopt: true}, ipalloc.ErrMismatch)
	}
	s := open(t)
	cluster := s.Cluster()
	for _, value := range []string{
		"", "x", "ipset store", "ipset store\n", "ipset store\nversion \n", "ipset store\nversion 0\ncluster 1\n", "ipset store\nversion -1\ncluster 1\n",
		"ipset store\nversion x\ncluster 1\n", encodeFormat(cluster) + "\n", encodeFormat(cluster)[:30], " " + encodeFormat(cluster),
		fmt.Sprintf("ipset store\nversion 1\ncluster 0%d\n", cluster), fmt.Sprintf("ipset store\nversion 01\ncluster %d\n", cluster),
	} {
		prefix := newPrefix()
		put(t, client, prefix+"format", value)
		refused(t, client, prefix, Options{}, ipalloc.ErrMismatch)
	}
}

// TestForeignKeysBeside verifies that keys that others put beside the records of a store are neither read nor written.
func TestForeignKeysBeside(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	prefix := newPrefix()
	openIn(t, client, prefix, Options{})
	beside := []string{"a", "data", "data.", "data0", "dat", "format2", "\xff"}
	for _, k := range beside {
		put(t, client, prefix+k, "somebody else's")
	}
	s := openIn(t, client, prefix, Options{})
	rev := mustCommit(t, s, "k", "v")
	for _, k := range beside {
		put(t, client, prefix+k, "somebody else's, again")
	}
	last := mustCommit(t, s, "k", "w")
	if recs, _, err := s.List(limited(t), store.Range{}); err != nil || len(recs) != 1 || recs[0].Key != "k" {
		t.Errorf("List = %v, %v", recs, err)
	}
	for ev, err := range s.Watch(limited(t), rev, "") {
		if err != nil || ev.Rev != last || len(ev.Changes) != 1 {
			t.Errorf("Watch: %+v, %v", ev, err)
		}
		break
	}
}

func TestOtherVersions(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for _, v := range []int{version + 1, version + 100} {
		prefix := newPrefix()
		put(t, client, prefix+"format", fmt.Sprintf("ipset store\nversion %d\nwhatever it says", v))
		refused(t, client, prefix, Options{}, ipalloc.ErrVersion)
		refused(t, client, prefix, Options{Adopt: true}, ipalloc.ErrVersion)
	}
}

func TestWrongCluster(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	here := open(t).Cluster()
	refused(t, client, newPrefix(), Options{Cluster: here + 1}, ipalloc.ErrMismatch)

	// The keys were copied from another cluster, which may be alive.
	prefix := newPrefix()
	put(t, client, prefix+"format", encodeFormat(here-1))
	put(t, client, prefix+"data/k", "v"+string(make([]byte, len(laneID{}))))
	refused(t, client, prefix, Options{}, ipalloc.ErrMismatch)
	refused(t, client, prefix, Options{Cluster: here}, ipalloc.ErrMismatch)
	refused(t, client, prefix, Options{Cluster: here - 1, Adopt: true}, ipalloc.ErrMismatch)
	s := openIn(t, client, prefix, Options{Adopt: true})
	if recs, err := s.Get(limited(t), nil, "k"); err != nil || recs[0].Value != "v" {
		t.Errorf("adopted: %v, %v", recs, err)
	}
	mustCommit(t, openIn(t, client, prefix, Options{}), "k", "w")
}

// A store that was wiped, or whose format record was written again, takes no commit and answers no read: not even with "none".
func TestReplaced(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	for name, replace := range map[string]func(ctx context.Context, prefix string) error{
		"removed": func(ctx context.Context, prefix string) error {
			_, err := client.Delete(ctx, prefix, clientv3.WithPrefix())
			return err
		},
		"removed and made again": func(ctx context.Context, prefix string) error {
			if _, err := client.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
				return err
			}
			_, err := Open(ctx, client, prefix, Options{})
			return err
		},
		"converted": func(ctx context.Context, prefix string) error {
			_, err := client.Put(ctx, prefix+"format", "ipset store\nversion 2\n")
			return err
		},
		"written again": func(ctx context.Context, prefix string) error {
			resp, err := client.Get(ctx, prefix+"format")
			if err != nil {
				return err
			}
			_, err = client.Put(ctx, prefix+"format", string(resp.Kvs[0].Value))
			return err
		},
	} {
		prefix := newPrefix()
		s := openIn(t, client, prefix, Options{})
		rev := mustCommit(t, s, "k", "v")
		if err := replace(limited(t), prefix); err != nil {
			t.Fatal(err)
		}
		for _, op := range []store.Op{
			{Kind: store.Put, Key: "k", Value: "w", Expect: store.AnyRevision}, {Kind: store.Put, Key: "new", Expect: 0}, {Kind: store.Guard, Key: "k", Expect: rev},
			{Kind: store.Delete, Key: "k", Expect: store.AnyRevision},
		} {
			if _, err := s.Commit(limited(t), []store.Op{op}); !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrConflict) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
				t.Errorf("%s: %+v: %v", name, op, err)
			}
		}
		for what, err := range reads(limited(t), s, rev) {
			if !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrMismatch) || store.Retryable(err) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		left, err := client.Get(limited(t), prefix+"data/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range left.Kvs {
			if string(kv.Key) != prefix+"data/k" || !strings.HasPrefix(string(kv.Value), "v") || len(kv.Value) != 1+len(laneID{}) {
				t.Errorf("%s: a refused commit wrote %s", name, kv)
			}
		}
	}
}

// reads returns the error of every way to read a store. A watch begins after revision rev.
func reads(ctx context.Context, s *Store, rev uint64) map[string]error {
	out := make(map[string]error)
	_, out["get of one"] = s.Get(ctx, nil, "k")
	_, out["get of two"] = s.Get(ctx, nil, "k", "new")
	many := make([]string, s.maxOps+1)
	for i := range many {
		many[i] = fmt.Sprint("k", i)
	}
	_, out["get of many"] = s.Get(ctx, nil, many...)
	for name, r := range map[string]store.Range{
		"list": {}, "list, limited": {Limit: 1}, "list, reverse": {Reverse: true}, "list, reverse and limited": {Reverse: true, Limit: 1}, "list of nothing": {From: "b", To: "a"},
	} {
		_, _, out[name] = s.List(ctx, r)
	}
	for name, prefixes := range map[string][]string{"watch of one": {"k"}, "watch of two": {"k", "l"}, "watch of none": nil} {
		for _, err := range s.Watch(ctx, rev, prefixes...) {
			out[name] = err // the last one counts
		}
	}
	return out
}

// A prefix that lies inside the records of another store is refused, whichever was first, and changes nothing in that store.
func TestPrefixInsideAStore(t *testing.T) {
	client := connect(t, sharedCluster(t).Endpoints())
	outer := newPrefix()
	s := openIn(t, client, outer, Options{})
	for _, inner := range []string{"data/", "data/b/", "data/b/data/", "data/data/"} {
		refused(t, client, outer+inner, Options{}, ipalloc.ErrMismatch)
		refused(t, client, outer+inner, Options{NoCreate: true}, ipalloc.ErrMismatch)
	}
	put(t, client, outer+"data/b/format", encodeFormat(s.Cluster())) // by a release that did not look
	refused(t, client, outer+"data/b/", Options{}, ipalloc.ErrMismatch)
	for _, beside := range []string{"other/", "datax/", "xdata/"} {
		if _, err := Open(limited(t), client, outer+beside, Options{}); err != nil {
			t.Errorf("%q beside the records: %v", beside, err)
		}
	}
	if _, err := Open(limited(t), client, newPrefix()+"data/", Options{MaxOps: 2 + standingOps}); err != nil {
		t.Errorf("no store around it: %v", err)
	}
}

// TestOldServers verifies that Open refuses a server that can lose events of a watch, and one that does not say its release, before
// it writes anything, and that OldServers accepts them without a question.
func TestOldServers(t *testing.T) {
	for release, fine := range map[string]bool{
		"": false, "x": false, "3.4": false, "2.3.8": false, "3.3.27": false, "3.4.35": false, "3.4.36": true, "3.4.100": true, "3.5.0": false,
		"3.5.17": false, "3.5.18": true, "3.6.0-rc.1": true, "3.6.16": true, "3.7.0": true, "4.0.0": true,
	} {
		asked := 0
		client := connect(t, sharedCluster(t).Endpoints(), func(c *clientv3.Config) {
			c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				if r, ok := reply.(*pb.StatusResponse); ok {
					asked++
					r.Version = release
				}
				return err
			}))
		})
		prefix := newPrefix()
		if fine {
			openIn(t, client, prefix, Options{})
		} else {
			refused(t, client, prefix, Options{}, ipalloc.ErrMismatch)
		}
		openIn(t, client, prefix, Options{OldServers: true})
		if asked != 1 {
			t.Errorf("%q: asked %d times, want once", release, asked)
		}
	}
}
