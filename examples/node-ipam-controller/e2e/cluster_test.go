//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	kubernetesVersion = "v1.36.3"
	stagingVersion    = "v0.36.4" // of the modules that Kubernetes keeps in its tree
	token             = "end-to-end"
)

// binaries returns the directory of kube-apiserver and etcd, building them first if
// they are not there. Both come from one module that is made up for it: Kubernetes
// can't be built as a dependency without replacing what it keeps in its tree.
func binaries(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "ipalloc", "kubernetes-"+kubernetesVersion)
	src := filepath.Join(dir, "src")
	if err := os.MkdirAll(src, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		writeModule(t, src)
		t.Logf("building %s, which takes minutes the first time", name)
		const version = "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
		command(t, src, "go", "build", "-trimpath", "-ldflags", version, "-o", path+".new", pkg)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeModule(t *testing.T, src string) {
	var info struct{ GoMod string }
	if err := json.Unmarshal(command(t, src, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+kubernetesVersion), &info); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(info.GoMod)
	if err != nil {
		t.Fatal(err)
	}
	mod := "module ipalloc.example/apiserver\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes " + kubernetesVersion + "\n\n"
	for _, m := range regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) => \./staging`).FindAllSubmatch(text, -1) {
		mod += fmt.Sprintf("replace %s => %s %s\n", m[1], m[1], stagingVersion)
	}
	if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, errs.String())
	}
	return out
}

// launch starts a program with its output at the end of a file.
func launch(log, path string, args ...string) (*exec.Cmd, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // should the test end without a cleanup
	return cmd, cmd.Start()
}

// start runs a program until the test ends.
func start(t *testing.T, log, path string, args ...string) {
	t.Helper()
	cmd, err := launch(log, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// supervised is a program that is started again when it ends by itself, as one that
// has lost its lease does, until it is killed.
type supervised struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	killed bool
	ended  chan struct{}
}

func supervise(t *testing.T, log, path string, args ...string) *supervised {
	s := &supervised{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for {
			s.mu.Lock()
			if s.killed {
				s.mu.Unlock()
				return
			}
			cmd, err := launch(log, path, args...)
			s.cmd = cmd
			s.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			_ = cmd.Wait()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	t.Cleanup(s.kill)
	return s
}

// kill is kill -9.
func (s *supervised) kill() {
	s.mu.Lock()
	s.killed = true
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
	}
	s.mu.Unlock()
	<-s.ended
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// cluster is an API server with its etcd.
type cluster struct {
	dir    string
	url    string
	etcd   string
	client *kubernetes.Clientset
}

func newCluster(t *testing.T, bin string, serviceCIDRs string) *cluster {
	dir := t.TempDir()
	c := &cluster{dir: dir, etcd: fmt.Sprintf("http://127.0.0.1:%d", freePort(t))}
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	logs := []string{filepath.Join(dir, "etcd.log"), filepath.Join(dir, "kube-apiserver.log")}
	start(t, logs[0], filepath.Join(bin, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--log-level", "error",
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync")
	port := freePort(t)
	key := filepath.Join(dir, "sa.key")
	writeKey(t, key)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, logs[1], filepath.Join(bin, "kube-apiserver"),
		"--etcd-servers", c.etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", fmt.Sprint(port),
		"--cert-dir", filepath.Join(dir, "certs"), "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", serviceCIDRs,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
		"--service-account-signing-key-file", key, "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow",
		"--disable-admission-plugins", "ServiceAccount")
	c.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	config := &rest.Config{Host: c.url, BearerToken: token, QPS: 5000, Burst: 5000, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, log := range logs {
				t.Logf("the end of %s:\n%s", log, tail(log))
			}
		}
	})
	wait(t, "the API server", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
	})
	return c
}

func writeKey(t *testing.T, path string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// wait waits until ok; that it takes minutes means that it will not happen.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("no end of waiting for %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// kubeconfig writes a kubeconfig for the given URL.
func (c *cluster) kubeconfig(t *testing.T, name, url string) string {
	path := filepath.Join(c.dir, name)
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e, cluster: {server: %q, insecure-skip-tls-verify: %v}}]
users: [{name: e, user: {token: %s}}]
contexts: [{name: e, context: {cluster: e, user: e}}]
current-context: e
`, url, strings.HasPrefix(url, "https"), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// put writes to etcd behind the API server's back.
func (c *cluster) put(t *testing.T, key string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	c.post(t, "put", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key)), "value": base64.StdEncoding.EncodeToString(data)})
}

// remove removes what put wrote.
func (c *cluster) remove(t *testing.T, key string) {
	c.post(t, "deleterange", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key))})
}

func (c *cluster) post(t *testing.T, verb string, request map[string]string) {
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(c.etcd+"/v3/kv/"+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}
