package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// guard is how long anything here may take before it is taken for hung.
const guard = 5 * time.Minute

// shared is the one member that most tests use, each under its own prefix.
var shared struct {
	sync.Once
	cluster *servers.Etcd
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// sharedCluster returns the member that tests share.
func sharedCluster(t testing.TB) *servers.Etcd {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*guard) // etcd may have to be built
		defer cancel()
		shared.cluster, shared.err = servers.StartEtcd(ctx, servers.EtcdOptions{NoSync: true})
	})
	if errors.Is(shared.err, servers.ErrSkip) {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// limited is a context that ends a test that hangs.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a client; change may alter its configuration.
func connect(t testing.TB, endpoints []string, change ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: endpoints, DialTimeout: guard, Logger: zap.NewNop()}
	for _, f := range change {
		f(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

var prefixes atomic.Int64

// newPrefix returns a prefix that no other test uses.
func newPrefix() string { return fmt.Sprintf("/test/%d/", prefixes.Add(1)) }

// openIn opens a store.
func openIn(t testing.TB, client *clientv3.Client, prefix string, o Options) *Store {
	t.Helper()
	s, err := Open(limited(t), client, prefix, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open returns an empty store in the shared member, with a client of its own.
func open(t testing.TB) *Store {
	t.Helper()
	return openIn(t, connect(t, sharedCluster(t).Endpoints()), newPrefix(), Options{})
}
