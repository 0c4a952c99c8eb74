package etcdstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

// secured is a member with TLS in both directions and users: root, writer and reader of /own/, and nobody.
type secured struct {
	cluster *servers.Etcd
	tls     *tls.Config
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	files, err := servers.NewTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files.ClientAuth = true
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c := &secured{servers.NewEtcd(t, servers.EtcdOptions{NoSync: true, TLS: files}), &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}
	root := c.as(t, "")
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := limited(t)
	for role, kind := range map[string]clientv3.PermissionType{"writer": clientv3.PermissionType(clientv3.PermReadWrite), "reader": clientv3.PermissionType(clientv3.PermRead)} {
		do(root.RoleAdd(ctx, role))
		do(root.RoleGrantPermission(ctx, role, "/own/", clientv3.GetPrefixRangeEnd("/own/"), kind))
	}
	do(root.RoleAdd(ctx, "root"))
	for _, user := range []string{"root", "writer", "reader", "nobody"} {
		do(root.UserAdd(ctx, user, "password"))
		if user != "nobody" {
			do(root.UserGrantRole(ctx, user, user))
		}
	}
	do(root.AuthEnable(ctx))
	return c
}

// as returns a client of a user; of none if it is empty.
func (c *secured) as(t *testing.T, user string) *clientv3.Client {
	t.Helper()
	return connect(t, c.cluster.Endpoints(), func(config *clientv3.Config) {
		config.TLS = c.tls
		if config.Username = user; user != "" {
			config.Password = "password"
		}
	})
}

// denied verifies an error for want of permission.
func denied(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, ipalloc.ErrUnknownOutcome) || store.Retryable(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestAuthAndTLS runs the store with the least permissions it needs, and without those.
func TestAuthAndTLS(t *testing.T) {
	c := newSecured(t)
	t.Run("reader of nothing", func(t *testing.T) {
		_, err := Open(limited(t), c.as(t, "reader"), "/own/early/", Options{})
		denied(t, "Open", err)
		_, err = Open(limited(t), c.as(t, "reader"), "/own/early/", Options{NoCreate: true})
		if !errors.Is(err, ipalloc.ErrNotFound) {
			t.Errorf("NoCreate: %v", err)
		}
	})
	t.Run("writer", func(t *testing.T) {
		client := c.as(t, "writer")
		storetest.TestStore(t, func(t *testing.T) store.Store { return openIn(t, client, "/own"+newPrefix(), Options{}) })
		_, err := Open(limited(t), client, "/other/", Options{})
		denied(t, "Open elsewhere", err)
	})
	s := openIn(t, c.as(t, "writer"), "/own/store/", Options{})
	rev := mustCommit(t, s, "k", "v")
	t.Run("reader", func(t *testing.T) {
		s := openIn(t, c.as(t, "reader"), "/own/store/", Options{})
		if recs, err := s.Get(limited(t), nil, "k", "l"); err != nil || recs[0].Rev != rev {
			t.Errorf("Get: %v, %v", recs, err)
		}
		_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: rev}})
		denied(t, "Commit", err)
		for ev, err := range s.Watch(limited(t), 0, "k") {
			if err != nil || ev.Rev != rev {
				t.Errorf("Watch: %+v, %v", ev, err)
			}
			break
		}
	})
	t.Run("nobody", func(t *testing.T) {
		for _, user := range []string{"nobody"} {
			_, err := Open(limited(t), c.as(t, user), "/own/store/", Options{})
			denied(t, "Open", err)
		}
		_, err := Open(limited(t), c.as(t, ""), "/own/store/", Options{})
		if err == nil || store.Retryable(err) {
			t.Errorf("Open without a name: %v", err)
		}
	})
	t.Run("taken away", func(t *testing.T) {
		if _, err := c.as(t, "root").RoleRevokePermission(limited(t), "writer", "/own/", clientv3.GetPrefixRangeEnd("/own/")); err != nil {
			t.Fatal(err)
		}
		_, err := s.Commit(limited(t), []store.Op{{Kind: store.Put, Key: "k", Expect: rev}})
		denied(t, "Commit", err)
		_, err = s.Get(limited(t), nil, "k")
		denied(t, "Get", err)
		for _, prefixes := range [][]string{{"k"}, {"k", "l"}} {
			for _, err := range s.Watch(limited(t), 0, prefixes...) {
				denied(t, "Watch", err)
			}
		}
	})
}
