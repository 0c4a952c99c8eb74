package kubetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Request sends a request of an administrator and returns the answer. A body is YAML, or
// a merge patch in JSON with PATCH. A status that is no success is an error.
func (s *Server) Request(ctx context.Context, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := probe.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("kubetest: %s %s: %s\n%s", method, path, resp.Status, answer)
	}
	return string(answer), err
}

// Define creates the CustomResourceDefinitions of a file in YAML, and returns when the
// API server serves the paths.
func (s *Server) Define(ctx context.Context, file string, paths ...string) error {
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
		for {
			_, err := s.Request(ctx, http.MethodGet, path, "")
			if err == nil {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return err
			}
		}
	}
	return nil
}

// Kubeconfig writes a kubeconfig of the administrator and returns its path.
func (s *Server) Kubeconfig() (string, error) {
	path := filepath.Join(s.Dir, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: e, user: {token: %s}}]
contexts: [{name: e, context: {cluster: e, user: e}}]
current-context: e
`, s.URL, s.Token)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
