package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// kubeUser has the role that the README of kubestore gives.
const kubeUser = "system:serviceaccount:default:controller"

const binding = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ipalloc-store}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ipalloc-store}
subjects: [{kind: ServiceAccount, name: controller, namespace: default}]
`

// define gives an API server the resource of the store, and the user its role.
func define(ctx context.Context, server *servers.Kube) error {
	const objects = "/apis/store.ipalloc.dev/v1/namespaces/default/storeobjects"
	config := filepath.Join("..", "..", "ipset", "kubestore", "config") // from bench/torture, or from its test
	if _, err := os.Stat(config); err != nil {
		config = filepath.Join("..", config)
	}
	role, err := os.ReadFile(filepath.Join(config, "rbac.yaml"))
	if err == nil {
		err = server.Define(ctx, filepath.Join(config, "crd.yaml"), objects)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	if err == nil {
		_, err = server.Request(ctx, http.MethodPost, rbac+"roles", string(role))
	}
	if err == nil {
		_, err = server.Request(ctx, http.MethodPost, rbac+"rolebindings", binding)
	}
	return err
}

func onKube(ctx context.Context) (*subject, error) {
	server, err := servers.StartKube(ctx, servers.KubeOptions{})
	if err != nil {
		return nil, err
	}
	if err := define(ctx, server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	g, err := newGateway(server.URL)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	none := func(f func() error) func(context.Context) error { return func(context.Context) error { return f() } }
	member := server.Etcd.Members()[0]
	return &subject{place: g.server.URL + " " + server.Token, processes: 3, close: func() error { g.server.Close(); return server.Close() }, faults: []fault{
		{"API server killed", func(ctx context.Context, _ []*remote, _ time.Duration) error {
			server.Kill()
			return server.Start(ctx)
		}},
		lasting("API server stopped", none(server.Pause), none(server.Resume)),
		lasting("its etcd stopped", none(member.Pause), none(member.Resume)),
		g.answers("403 while roles load", http.StatusForbidden, `{"kind":"Status","code":403,"reason":"Forbidden","message":"not yet"}`, all),
		g.answers("404 of a proxy", http.StatusNotFound, "default backend - 404", all),
		g.answers("429", http.StatusTooManyRequests, `{"kind":"Status","code":429,"reason":"TooManyRequests"}`, all),
		g.answers("409", http.StatusConflict, `{"kind":"Status","code":409,"reason":"Conflict"}`, writes),
		lasting("watch cache behind", none(func() error { return g.delay(true) }), none(func() error { return g.delay(false) })),
	}}, nil
}

func all(*http.Request) bool      { return true }
func writes(r *http.Request) bool { return r.Method != http.MethodGet }

// answers is a fault that has the gateway answer every other request of a kind by itself, one at least.
func (g *gateway) answers(name string, code int, body string, of func(*http.Request) bool) fault {
	var asked atomic.Int64
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if !of(r) || asked.Add(1)%2 == 0 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
		return true
	}
	return lasting(name, func(context.Context) error {
		asked.Store(0)
		g.refuse.Store(&refuse)
		return nil
	}, func(ctx context.Context) error {
		for asked.Load() == 0 && ctx.Err() == nil {
			wait(ctx, time.Millisecond)
		}
		g.refuse.Store(nil)
		return ctx.Err()
	})
}
