//go:build e2e && linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// tryDeployments has the API server try what kustomize makes of the kustomizations and
// Helm of the chart, without carrying it out: every field must be known and right.
func (c *cluster) tryDeployments(t *testing.T) {
	t.Helper()
	values := filepath.Join(c.dir, "values.yaml")
	for _, d := range []struct{ name, values string }{
		{"kustomization ../deploy/range", ""}, {"kustomization ../deploy/multicidr", ""},
		{"chart ../deploy/chart kube-system", "config: {cluster-cidr: [10.0.0.0/16, \"fd00::/56\"], node-cidr-mask-size-ipv4: 25}"},
		{"chart ../deploy/chart default", "config: {cidr-allocator-type: MultiCIDRRangeAllocator}\nmonitoring: {dashboard: true}\nimagePullSecrets: [{name: s}]\nargs: [-v=4]"},
	} {
		args := strings.Fields(d.name)
		dir, err := filepath.Abs(args[1])
		if err != nil {
			t.Fatal(err)
		}
		args[1] = dir
		if d.values != "" {
			if err := os.WriteFile(values, []byte(d.values), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, values)
		}
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "./render"}, args...)...)
		cmd.Dir, cmd.Env = "../../../internal/tools/manifests", append(os.Environ(), "GOWORK=off")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", d.name, err, errs.String())
		}
		if n := c.applyAll(t, d.name, bytes.NewReader(out), "All"); n < 9 {
			t.Errorf("%s: %d objects", d.name, n)
		}
	}
}

// apply applies what a manifest holds; a field that there is not is an error.
func (c *cluster) apply(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	c.applyAll(t, path, file)
}

// applyAll applies the resources of a manifest one after another, as kubectl apply
// --server-side does, and returns how many.
func (c *cluster) applyAll(t *testing.T, path string, manifest io.Reader, dryRun ...string) (created int) {
	t.Helper()
	resources := map[string]string{
		"ConfigMap": "/api/v1/namespaces/%/configmaps", "Service": "/api/v1/namespaces/%/services", "PodDisruptionBudget": "/apis/policy/v1/namespaces/%/poddisruptionbudgets",
		"ServiceAccount": "/api/v1/namespaces/%/serviceaccounts", "Deployment": "/apis/apps/v1/namespaces/%/deployments",
		"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"Role":                     "/apis/rbac.authorization.k8s.io/v1/namespaces/%/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/%/rolebindings",
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(manifest))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return created
		}
		var what metav1.PartialObjectMetadata
		if err == nil {
			err = yaml.Unmarshal(document, &what)
		}
		if err != nil {
			t.Fatal(err)
		}
		if what.Kind == "" {
			continue // a document of comments
		}
		at := strings.Replace(resources[what.Kind], "%", what.Namespace, 1)
		request := c.client.RESTClient().Patch(types.ApplyPatchType).AbsPath(at, what.Name).Param("fieldManager", "e2e").Param("force", "true")
		for _, d := range dryRun {
			request.Param("dryRun", d)
		}
		err = request.Param("fieldValidation", "Strict").Body(document).Do(t.Context()).Error()
		if err != nil {
			t.Fatalf("%s: %s %s: %v", filepath.Base(path), what.Kind, what.Name, err)
		}
		created++
	}
}

// checkRights asks the API server what the service account must and must not be able
// to do.
func (c *cluster) checkRights(t *testing.T) {
	t.Helper()
	for _, q := range []struct {
		may  bool
		what authorizationv1.ResourceAttributes
	}{
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Resource: "events", Namespace: "default"}},
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "clustercidrs", Subresource: "status", Group: "networking.x-k8s.io"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Resource: "clustercidrs", Group: "networking.x-k8s.io"}},
		{false, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes"}},
		{false, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status"}},
		{false, authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "kube-system"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "kube-system"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Resource: "leases", Group: "coordination.k8s.io", Namespace: "kube-system", Name: "kube-scheduler"}},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:kube-system:node-ipam-controller", ResourceAttributes: &q.what}}
		wait(t, "an answer of RBAC, which may be behind", func() bool {
			return c.allowed(t.Context(), t, review) == q.may
		})
	}
}

func (c *cluster) allowed(ctx context.Context, t *testing.T, review *authorizationv1.SubjectAccessReview) bool {
	answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}
