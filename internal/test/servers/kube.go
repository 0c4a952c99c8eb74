package servers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// KubeOptions says what to run. The zero value is usable.
type KubeOptions struct {
	ServiceCIDRs string // by default 10.0.0.0/24
	Flags        []string
}

// Kube is a kube-apiserver with an etcd of its own. [StartKube] makes one. It asks RBAC about everyone but Token.
type Kube struct {
	process
	URL   string // https, with a certificate that the server made itself
	Token string // of an administrator
	Etcd  *Etcd  // one member

	path, dir string
	args      []string
}

// StartKube starts an API server and returns when it is ready. It fails with [ErrSkip].
func StartKube(ctx context.Context, options KubeOptions) (_ *Kube, err error) {
	s := &Kube{Token: "admin-of-the-test"}
	if s.path, err = program(kubeEnv, func() (string, error) { return KubeProgram(ctx, "kube-apiserver") }); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "kube-*"); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	s.name, s.log = "kube-apiserver", filepath.Join(s.dir, "log")
	if s.Etcd, err = StartEtcd(ctx, EtcdOptions{NoSync: true}); err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	s.URL = "https://" + addresses[0]
	key, tokens := filepath.Join(s.dir, "sa.key"), filepath.Join(s.dir, "tokens.csv")
	account, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(account)})
	if err := errors.Join(os.WriteFile(key, block, 0o600), os.WriteFile(tokens, []byte(s.Token+",admin,admin,system:masters\n"), 0o600)); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	if options.ServiceCIDRs == "" {
		options.ServiceCIDRs = "10.0.0.0/24"
	}
	s.args = append([]string{
		"--etcd-servers", s.Etcd.Endpoints()[0], "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", filepath.Join(s.dir, "certs"), "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", options.ServiceCIDRs,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
		"--service-account-signing-key-file", key, "--token-auth-file", tokens, "--authorization-mode", "RBAC",
		"--disable-admission-plugins", "ServiceAccount",
	}, options.Flags...)
	return s, s.Start(ctx)
}

// Start starts an API server that does not run, at the same address, and returns when it is ready.
func (s *Kube) Start(ctx context.Context) error {
	cmd := exec.Command(s.path, s.args...)
	cmd.SysProcAttr = attributes()
	if err := s.run(cmd); err != nil {
		return err
	}
	return s.await(ctx, func(ctx context.Context) error {
		_, err := ask(ctx, trusting, s.URL+"/readyz", s.Token)
		return err
	})
}

// Close kills the API server and its etcd, and removes their data.
func (s *Kube) Close() error {
	s.Kill()
	var err error
	if s.Etcd != nil {
		err = s.Etcd.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Request sends a request of an administrator and returns the answer. A body is YAML, or a merge patch in JSON with PATCH. A status
// other than success is an error.
func (s *Kube) Request(ctx context.Context, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return send(trusting, req, s.Token)
}

// Define creates the CustomResourceDefinitions of a file in YAML, and returns when the API server serves the paths.
func (s *Kube) Define(ctx context.Context, file string, paths ...string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		if _, err := s.Request(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document); err != nil {
			return err
		}
	}
	for _, path := range paths {
		served := func(ctx context.Context) error {
			_, err := s.Request(ctx, http.MethodGet, path, "")
			return err
		}
		if err := s.await(ctx, served); err != nil {
			return err
		}
	}
	return nil
}

// trusting accepts the certificate that the API server made itself.
var trusting = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

// ask sends a GET.
func ask(ctx context.Context, client *http.Client, url, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	return send(client, req, token)
}

func send(client *http.Client, req *http.Request, token string) (string, error) {
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("servers: %s %s: %s\n%s", req.Method, req.URL, resp.Status, answer)
	}
	return string(answer), err
}

// Kubeconfig writes a kubeconfig of the administrator and returns its path.
func (s *Kube) Kubeconfig() (string, error) {
	path := filepath.Join(s.dir, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: e, user: {token: %s}}]
contexts: [{name: e, context: {cluster: e, user: e}}]
current-context: e
`, s.URL, s.Token)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
