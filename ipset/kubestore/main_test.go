package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// guard is how long anything here may take before it is taken for hung.
const guard = 5 * time.Minute

// shared is the API server that most tests use, each with its own store.
var shared struct {
	sync.Once
	server *servers.Kube
	err    error
}

func TestMain(m *testing.M) {
	if env := os.Getenv(writerEnv); env != "" {
		fmt.Fprintln(os.Stderr, "a writer ended:", writer(env))
		os.Exit(1)
	}
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// sharedServer returns the API server that tests share.
func sharedServer(t testing.TB) *servers.Kube {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), servers.StartLimit)
		defer cancel()
		if shared.server, shared.err = servers.StartKube(ctx, servers.KubeOptions{}); shared.err == nil {
			shared.err = define(ctx, shared.server)
		}
	})
	if errors.Is(shared.err, servers.ErrSkip) {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// objects returns the path of the objects of a namespace.
func objects(namespace string) string {
	return "/apis/" + apiVersion + "/namespaces/" + namespace + "/" + resource
}

// user is whom the role of README and config/rbac.yaml is bound to.
const user = "system:serviceaccount:default:controller"

// define creates the definition of the resource, and the role with its binding, and returns when both work.
func define(ctx context.Context, server *servers.Kube) error {
	if err := server.Define(ctx, "config/crd.yaml", objects("default")); err != nil {
		return err
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	role, err := os.ReadFile("config/rbac.yaml")
	if err != nil {
		return err
	}
	if _, err := server.Request(ctx, http.MethodPost, rbac+"roles", string(role)); err != nil {
		return err
	}
	binding := "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: ipalloc-store}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ipalloc-store}\nsubjects: [{kind: ServiceAccount, name: controller, namespace: default}]\n"
	if _, err := server.Request(ctx, http.MethodPost, rbac+"rolebindings", binding); err != nil {
		return err
	}
	c, err := newClient(configOf(server), "default")
	for err == nil {
		if _, err := c.get(ctx, "nothing"); !is(err, http.StatusForbidden) {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // RBAC learns of the binding a moment later
	}
	return err
}

// configOf returns the configuration of a program that has the role and nothing else.
func configOf(s *servers.Kube) *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: s.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Impersonate: rest.ImpersonationConfig{UserName: user}}
}

// limited is a context that ends a test that hangs.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	t.Cleanup(cancel)
	return ctx
}

var names atomic.Int64

// newName returns the name of a store that no other test uses.
func newName() string { return fmt.Sprintf("test-%d", names.Add(1)) }

// openAt opens a store of the shared API server; change may alter the configuration.
func openAt(t testing.TB, name string, o Options, change ...func(*rest.Config)) *Store {
	t.Helper()
	config := configOf(sharedServer(t))
	for _, f := range change {
		f(config)
	}
	s, err := Open(limited(t), config, "default", name, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
