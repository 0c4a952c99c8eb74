package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/ipalloc/ipalloc/internal/test/etcdtest"
)

const (
	// Version is the version of the API server that is built.
	Version = "v1.36.3"
	// Env names the environment variable that says to do without a built API server.
	Env = "IPALLOC_KUBE"

	stagingVersion = "v0.36.4" // of the modules that Kubernetes keeps in its tree
)

// ErrSkip means that the environment says to do without an API server.
var ErrSkip = errors.New("left out, as " + Env + " says")

// Binary returns the path of a kube-apiserver, building it if it is not there yet. It
// fails with ErrSkip, or as etcdtest.Cached does.
func Binary(ctx context.Context) (string, error) {
	switch path := os.Getenv(Env); path {
	case "":
		return Program(ctx, "kube-apiserver")
	case "skip":
		return "", fmt.Errorf("kubetest: %w", ErrSkip)
	default:
		return path, nil
	}
}

// Program returns the path of a program of Kubernetes of the same version, building it
// if it is not there yet: kube-controller-manager, for example. It fails as
// etcdtest.Cached does.
func Program(ctx context.Context, name string) (string, error) {
	return etcdtest.Cached(ctx, name+"-"+Version, name, func(ctx context.Context, scratch, out string) error {
		return build(ctx, name, scratch, out)
	})
}

// build builds in a module that is made up for it, because Kubernetes cannot be built as
// a dependency without replacing what it keeps in its tree. It goes without inlining and
// without tables for debuggers, which cost a third of the compiler's time.
func build(ctx context.Context, program, scratch, out string) error {
	if err := writeModule(ctx, scratch); err != nil {
		return err
	}
	const version = "-s -w -X k8s.io/component-base/version.gitVersion=" + Version +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
	_, err := command(ctx, scratch, "go", "build", "-trimpath", "-gcflags=all=-l -dwarf=false", "-ldflags", version, "-o", out, "k8s.io/kubernetes/cmd/"+program)
	return err
}

func writeModule(ctx context.Context, dir string) error {
	answer, err := command(ctx, dir, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+Version)
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
	mod := "module apiserver.example\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes " + Version + "\n\n"
	for _, m := range regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) => \./staging`).FindAllSubmatch(text, -1) {
		mod += fmt.Sprintf("replace %s => %s %s\n", m[1], m[1], stagingVersion)
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600)
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOOS=", "GOARCH=")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, errs.String())
	}
	return out, nil
}
