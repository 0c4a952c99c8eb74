package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc/internal/test/etcdtest"
	"github.com/ipalloc/ipalloc/internal/test/kubetest"
	"github.com/ipalloc/ipalloc/internal/test/pgtest"
)

// subject is a store with what it stands on.
type subject struct {
	place     string
	processes int
	faults    []fault // beside a killed and a stopped process
	close     func() error
}

// fault does something to what a store stands on; hold is how long it lasts.
type fault struct {
	name string
	do   func(ctx context.Context, hold time.Duration) error
}

// subjects is the table of stores and of what happens to them.
var subjects = map[string]func(ctx context.Context) (*subject, error){
	"bolt":     func(context.Context) (*subject, error) { return inFile("store.db", 1) },
	"sqlite":   func(context.Context) (*subject, error) { return inFile("store.sqlite", 3) },
	"postgres": onPostgres,
	"etcd":     onEtcd,
	"kube":     onKube,
}

func inFile(name string, processes int) (*subject, error) {
	dir, err := os.MkdirTemp("", "torture-stores-")
	if err != nil {
		return nil, err
	}
	place := filepath.Join(dir, name)
	if processes > 1 {
		place = "file:" + place
	}
	return &subject{place: place, processes: processes, close: func() error { return os.RemoveAll(dir) }}, nil
}

func onPostgres(ctx context.Context) (*subject, error) {
	server, err := pgtest.Start(ctx, pgtest.Config{NoSync: true})
	if err != nil {
		return nil, err
	}
	query := func(text string) func(context.Context, time.Duration) error {
		return func(ctx context.Context, _ time.Duration) error {
			db, err := sql.Open("pgx", server.DSN())
			if err == nil {
				_, err = db.ExecContext(ctx, text)
				_ = db.Close()
			}
			return err
		}
	}
	const others = ` FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`
	return &subject{place: server.DSN(), processes: 3, close: server.Close, faults: []fault{
		{"server stopped at once", func(ctx context.Context, _ time.Duration) error {
			server.Stop()
			return server.Start(ctx)
		}},
		{"sessions ended", query("SELECT pg_terminate_backend(pid)" + others)},
		{"statements cancelled", query("SELECT pg_cancel_backend(pid)" + others)},
		{"table locked", query("BEGIN; LOCK TABLE ipalloc_records; SELECT pg_sleep(0.3); COMMIT")},
	}}, nil
}

// wait returns after a time, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func onEtcd(ctx context.Context) (*subject, error) {
	c, err := etcdtest.Start(ctx, etcdtest.Config{Members: 3, NoSync: true})
	if err != nil {
		return nil, err
	}
	place := ""
	for i, e := range c.Endpoints() {
		if i > 0 {
			place += ","
		}
		place += e
	}
	leader := func(begin func(*etcdtest.Member) error, end func(*etcdtest.Member) error) func(context.Context, time.Duration) error {
		return func(ctx context.Context, hold time.Duration) error {
			m, err := c.Leader(ctx)
			if err == nil {
				err = begin(m)
			}
			if err != nil {
				return err
			}
			wait(ctx, hold)
			if err := end(m); err != nil {
				return err
			}
			return c.WaitHealthy(ctx)
		}
	}
	kill := func(m *etcdtest.Member) error { m.Kill(); return nil }
	return &subject{place: place, processes: 3, close: c.Close, faults: []fault{
		{"leader killed", leader(kill, (*etcdtest.Member).Start)},
		{"leader stopped", leader((*etcdtest.Member).Pause, (*etcdtest.Member).Resume)},
		{"history compacted", func(ctx context.Context, _ time.Duration) error {
			client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			resp, err := client.Get(ctx, "x")
			if err == nil {
				_, err = client.Compact(ctx, resp.Header.Revision)
			}
			return err
		}},
	}}, nil
}

// kubeUser has the role that the README of kubestore gives.
const kubeUser = "system:serviceaccount:default:controller"

const binding = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ipalloc-store}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ipalloc-store}
subjects: [{kind: ServiceAccount, name: controller, namespace: default}]
`

func onKube(ctx context.Context) (*subject, error) {
	server, err := kubetest.Start(ctx, kubetest.Config{})
	if err != nil {
		return nil, err
	}
	const objects = "/apis/store.ipalloc.dev/v1/namespaces/default/storeobjects"
	config := filepath.Join("..", "..", "ipset", "kubestore", "config") // from bench/torture, or from its test
	if _, err := os.Stat(config); err != nil {
		config = filepath.Join("..", config)
	}
	err = server.Define(ctx, filepath.Join(config, "crd.yaml"), objects)
	role, err2 := os.ReadFile(filepath.Join(config, "rbac.yaml"))
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	if err = errors.Join(err, err2); err == nil {
		_, err = server.Request(ctx, http.MethodPost, rbac+"roles", string(role))
	}
	if err == nil {
		_, err = server.Request(ctx, http.MethodPost, rbac+"rolebindings", binding)
	}
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	member := server.EtcdCluster().Members()[0]
	return &subject{place: server.URL + " " + server.Token, processes: 3, close: server.Close, faults: []fault{
		{"API server killed", func(ctx context.Context, _ time.Duration) error {
			server.Kill()
			return server.Restart(ctx)
		}},
		{"API server stopped", func(ctx context.Context, hold time.Duration) error {
			err := server.Pause()
			wait(ctx, hold)
			if err == nil {
				err = server.Resume()
			}
			return err
		}},
		{"its etcd stopped", func(ctx context.Context, hold time.Duration) error {
			err := member.Pause()
			wait(ctx, hold)
			if err == nil {
				err = member.Resume()
			}
			return err
		}},
	}}, nil
}
