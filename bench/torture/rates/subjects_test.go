package rates

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx" // the driver pgx
)

// subjects are the stores, each beside the program that it stands on.
var subjects = []struct {
	name string
	open func(ctx context.Context, dir string) (*subject, error)
}{
	{"bbolt", onBolt}, {"SQLite", onSQLite}, {"PostgreSQL", onPostgres}, {"etcd, one member", onEtcd}, {"API server", onKube},
}

func onBolt(ctx context.Context, dir string) (*subject, error) {
	s, err := boltstore.Open(ctx, filepath.Join(dir, "store.db"), boltstore.Options{})
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, "bare.db"), 0o600, nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	db.MaxBatchDelay = time.Millisecond // the best of 20 microseconds to 10 milliseconds; 0 is no batching at all
	bucket, inside := []byte("bare"), atomic.Int64{}
	bare := func(_ context.Context, caller int) error {
		write := db.Batch
		if inside.Add(1) == 1 {
			write = db.Update // a lone caller has nothing to wait for
		}
		defer inside.Add(-1)
		return write(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			return b.Put(fmt.Append(nil, caller), []byte(value))
		})
	}
	return &subject{store: s, bare: bare, close: func() error { return errors.Join(s.Close(), db.Close()) }}, nil
}

// inserts returns a bare write to a table that it makes.
func inserts(ctx context.Context, db *sql.DB, id string) (func(context.Context, int) error, error) {
	_, err := db.ExecContext(ctx, "CREATE TABLE bare (id "+id+", caller integer NOT NULL, value text NOT NULL)")
	return func(ctx context.Context, caller int) error {
		_, err := db.ExecContext(ctx, "INSERT INTO bare (caller, value) VALUES ($1, $2)", caller, value)
		return err
	}, err
}

func onSQLite(ctx context.Context, dir string) (*subject, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "store.sqlite"))
	if err != nil {
		return nil, err
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	plain, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bare.sqlite")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	plain.SetMaxOpenConns(1) // else most calls find the file locked
	bare, err := inserts(ctx, plain, "integer PRIMARY KEY")
	return &subject{store: s, bare: bare, close: func() error { return errors.Join(db.Close(), plain.Close()) }}, err
}

func onPostgres(ctx context.Context, _ string) (*subject, error) {
	server, err := servers.StartPostgres(ctx, servers.PostgresOptions{})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", server.DSN())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	db.SetMaxOpenConns(32) // the server takes 100
	db.SetMaxIdleConns(32)
	closeAll := func() error { return errors.Join(db.Close(), server.Close()) }
	s, err := sqlstore.Open(ctx, db, sqlstore.Options{})
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	bare, err := inserts(ctx, db, "bigserial PRIMARY KEY")
	return &subject{store: s, bare: bare, close: closeAll}, err
}

func onEtcd(ctx context.Context, _ string) (*subject, error) {
	c, err := servers.StartEtcd(ctx, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s, err := etcdstore.Open(ctx, client, "/rates/", etcdstore.Options{})
	bare := func(ctx context.Context, caller int) error {
		_, err := client.Put(ctx, fmt.Sprint("/bare/", caller), value)
		return err
	}
	return &subject{store: s, bare: bare, close: func() error { return errors.Join(client.Close(), c.Close()) }}, err
}

func onKube(ctx context.Context, _ string) (*subject, error) {
	server, err := servers.StartKube(ctx, servers.KubeOptions{})
	if err != nil {
		return nil, err
	}
	crd := filepath.Join("..", "..", "..", "ipset", "kubestore", "config", "crd.yaml")
	config := &rest.Config{Host: server.URL, BearerToken: server.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if err := server.Define(ctx, crd, "/apis/store.ipalloc.dev/v1/namespaces/default/storeobjects"); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	s, err := kubestore.Open(ctx, config, "default", "rates", kubestore.Options{})
	var made sync.Map // callers whose object exists
	bare := func(ctx context.Context, caller int) error {
		method, path := http.MethodPut, fmt.Sprintf("/api/v1/namespaces/default/configmaps/bare-%d", caller)
		if _, ok := made.LoadOrStore(caller, true); !ok {
			method, path = http.MethodPost, "/api/v1/namespaces/default/configmaps"
		}
		body := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare-%d"}, "data": {"value": %q}}`
		_, err := server.Request(ctx, method, path, fmt.Sprintf(body, caller, value))
		return err
	}
	return &subject{store: s, bare: bare, close: server.Close}, err
}
