//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ipalloc/ipalloc/internal/etcdtest"
)

const (
	kubernetesVersion = "v1.36.3"
	stagingVersion    = "v0.36.4" // of the modules that Kubernetes keeps in its tree
)

// apiServer returns the path of kube-apiserver, building it first if it is not there.
func apiServer(t *testing.T) string {
	t.Helper()
	path, err := etcdtest.Cached(t.Context(), "kube-apiserver-"+kubernetesVersion, "kube-apiserver", func(ctx context.Context, scratch, out string) error {
		t.Log("building kube-apiserver, which takes minutes the first time")
		return buildAPIServer(ctx, scratch, out)
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildAPIServer builds in a module that is made up for it: Kubernetes can't be built
// as a dependency without replacing what it keeps in its tree. It goes without inlining
// and without tables for debuggers, which cost a third of the compiler's time; going
// without optimisation besides saves nothing more.
func buildAPIServer(ctx context.Context, scratch, out string) error {
	if err := writeModule(ctx, scratch); err != nil {
		return err
	}
	const version = "-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
	_, err := command(ctx, scratch, "go", "build", "-trimpath", "-gcflags=all=-l -dwarf=false", "-ldflags", version, "-o", out, "k8s.io/kubernetes/cmd/kube-apiserver")
	return err
}

func writeModule(ctx context.Context, dir string) error {
	answer, err := command(ctx, dir, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+kubernetesVersion)
	if err != nil {
		return err
	}
	var info struct{ GoMod string }
	if err := json.Unmarshal(answer, &info); err != nil {
		return err
	}
	text, err := os.ReadFile(info.GoMod)
	if err != nil {
		return err
	}
	mod := "module apiserver.example\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes " + kubernetesVersion + "\n\n"
	for _, m := range regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) => \./staging`).FindAllSubmatch(text, -1) {
		mod += fmt.Sprintf("replace %s => %s %s\n", m[1], m[1], stagingVersion)
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, errs.String())
	}
	return out, nil
}
