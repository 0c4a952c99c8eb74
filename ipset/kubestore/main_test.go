package kubestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc/internal/etcdtest"
	"github.com/ipalloc/ipalloc/internal/kubetest"
)

// guard is how long anything here may take before it is taken for hung.
const guard = 5 * time.Minute

// shared is the API server that most tests use, each with its own store.
var shared struct {
	sync.Once
	server *kubetest.Server
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
func sharedServer(t testing.TB) *kubetest.Server {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kubetest.StartLimit)
		defer cancel()
		if shared.server, shared.err = kubetest.Start(ctx, kubetest.Config{}); shared.err == nil {
			shared.err = applyFile(ctx, shared.server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "config/crd.yaml")
		}
		if shared.err == nil {
			shared.err = served(ctx, shared.server)
		}
	})
	if errors.Is(shared.err, kubetest.ErrSkip) || errors.Is(shared.err, etcdtest.ErrSkip) {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// applyFile creates the resource of a manifest.
func applyFile(ctx context.Context, s *kubetest.Server, path, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = request(ctx, s, http.MethodPost, path, string(text))
	return err
}

// request sends a request of an administrator with a body in YAML, or a patch in JSON.
func request(ctx context.Context, s *kubetest.Server, method, path, body string) (string, error) {
	client, err := rest.HTTPClientFor(configOf(s))
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s\n%s", method, path, resp.Status, answer)
	}
	return string(answer), err
}

// served returns when the API server serves the resource.
func served(ctx context.Context, s *kubetest.Server) error {
	for {
		_, err := request(ctx, s, http.MethodGet, objects("default"), "")
		if err == nil || ctx.Err() != nil {
			return err
		}
		_ = sleep(ctx, 50*time.Millisecond)
	}
}

// objects returns the path of the objects of a namespace.
func objects(namespace string) string {
	return "/apis/" + apiVersion + "/namespaces/" + namespace + "/" + resource
}

func configOf(s *kubetest.Server) *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: s.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
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
