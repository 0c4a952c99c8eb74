package kubetest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/etcdtest"
)

// Server is an API server with its etcd. Its methods may be called from several
// goroutines, but for Kill and Restart.
type Server struct {
	URL   string // https, with a certificate that the server made itself
	Token string // of an administrator
	Etcd  string // the URL of the etcd
	Dir   string // a directory that Close removes

	etcd    *etcdtest.Cluster
	program *etcdtest.Program
	path    string
	args    []string
}

// Config says what to run. The zero Config is usable.
type Config struct {
	ServiceCIDRs string // by default 10.0.0.0/24
	Flags        []string
}

// Start starts an API server and returns when it is ready.
func Start(ctx context.Context, config Config) (_ *Server, err error) {
	s := &Server{Token: "admin-of-kubetest"}
	if s.path, err = Binary(ctx); err != nil {
		return nil, err
	}
	if s.Dir, err = os.MkdirTemp("", "kube-*"); err != nil {
		return nil, fmt.Errorf("kubetest: %w", err)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.etcd, err = etcdtest.Start(ctx, etcdtest.Config{NoSync: true}); err != nil {
		return nil, err
	}
	s.Etcd = s.etcd.Endpoints()[0]
	addresses, err := etcdtest.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	key, tokens := filepath.Join(s.Dir, "sa.key"), filepath.Join(s.Dir, "tokens.csv")
	if err := writeKey(key); err != nil {
		return nil, err
	}
	if err := os.WriteFile(tokens, []byte(s.Token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return nil, fmt.Errorf("kubetest: %w", err)
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	s.URL = "https://" + addresses[0]
	if config.ServiceCIDRs == "" {
		config.ServiceCIDRs = "10.0.0.0/24"
	}
	s.args = append([]string{
		"--etcd-servers", s.Etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", filepath.Join(s.Dir, "certs"), "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", config.ServiceCIDRs,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
		"--service-account-signing-key-file", key, "--token-auth-file", tokens, "--authorization-mode", "RBAC",
		"--disable-admission-plugins", "ServiceAccount",
	}, config.Flags...)
	return s, s.Restart(ctx)
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("kubetest: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		return fmt.Errorf("kubetest: %w", err)
	}
	return nil
}

// Kill ends the API server by SIGKILL. Its etcd keeps running.
func (s *Server) Kill() { s.program.Kill() }

// EtcdCluster returns the etcd: one member, which can be killed and started while the API server does not run.
func (s *Server) EtcdCluster() *etcdtest.Cluster { return s.etcd }

// Pause stops the API server by SIGSTOP; Resume lets it continue.
func (s *Server) Pause() error { return s.program.Pause() }

// Resume lets a paused API server continue.
func (s *Server) Resume() error { return s.program.Resume() }

// Restart starts the API server at the same address, and returns when it is ready.
func (s *Server) Restart(ctx context.Context) (err error) {
	s.program, err = etcdtest.Run(filepath.Join(s.Dir, "kube-apiserver.log"), s.path, s.args...)
	if err != nil {
		return err
	}
	for {
		if s.ready(ctx) {
			return nil
		}
		if !s.program.Running() {
			return fmt.Errorf("kubetest: kube-apiserver ended:\n%s", s.program.LogEnd())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("kubetest: waiting for kube-apiserver: %w\n%s", context.Cause(ctx), s.program.LogEnd())
		}
	}
}

// probe trusts the certificate that the server made itself.
var probe = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

func (s *Server) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := probe.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// LogEnd returns the end of the API server's log.
func (s *Server) LogEnd() string { return s.program.LogEnd() }

// Close kills the API server and its etcd, and removes the directory.
func (s *Server) Close() error {
	if s.program != nil {
		s.program.Kill()
	}
	var err error
	if s.etcd != nil {
		err = s.etcd.Close()
	}
	return errors.Join(err, os.RemoveAll(s.Dir))
}

// New starts an API server for a test and ends it with the test, which shows the end of
// the log if it fails. The test is skipped if the environment says so.
func New(t etcdtest.TB, config Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), StartLimit)
	defer cancel()
	s, err := Start(ctx, config)
	if errors.Is(err, ErrSkip) || errors.Is(err, etcdtest.ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.LogEnd())
		}
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	})
	return s
}

// StartLimit is how long a test may wait for its API server, the build on a busy machine
// included.
const StartLimit = 40 * time.Minute
