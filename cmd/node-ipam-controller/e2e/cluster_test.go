//go:build e2e && linux

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// cluster is an API server with its etcd.
type cluster struct {
	dir    string
	url    string
	etcd   string
	client *kubernetes.Clientset // of an administrator
	admin  string                // its token
	token  string                // of the controller's service account
}

// newCluster starts an API server that asks RBAC about everybody but the administrator.
func newCluster(t *testing.T, serviceCIDRs string) *cluster {
	server := servers.NewKube(t, servers.KubeOptions{ServiceCIDRs: serviceCIDRs})
	c := &cluster{dir: t.TempDir(), url: server.URL, admin: server.Token, etcd: server.Etcd.Endpoints()[0]}
	config := &rest.Config{Host: c.url, BearerToken: server.Token, QPS: 5000, Burst: 5000, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// login makes the service account of the manifests the one that kubeconfigs are of.
func (c *cluster) login(t *testing.T) {
	t.Helper()
	request, err := c.client.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "node-ipam-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.token = request.Status.Token
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
`, url, strings.HasPrefix(url, "https"), c.token)
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
