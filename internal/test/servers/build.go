package servers

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
	"runtime"
	"slices"
	"strings"
)

// The versions of the programs that are built.
const (
	EtcdVersion = "v3.6.16"
	KubeVersion = "v1.36.3"

	stagingVersion = "v0.36.4" // of the modules that Kubernetes keeps in its tree
)

// The environment variables that name the programs to run.
const (
	etcdEnv     = "IPALLOC_ETCD"
	kubeEnv     = "IPALLOC_KUBE"
	postgresEnv = "IPALLOC_POSTGRES"
)

// ErrSkip means that the environment says to do without a server.
var ErrSkip = errors.New("SKIPPED")

// program returns what the environment names, or else what built returns.
func program(env string, built func() (string, error)) (string, error) {
	switch path := os.Getenv(env); path {
	case "":
		return built()
	case "skip":
		return "", fmt.Errorf("servers: %w, left out as %s says", ErrSkip, env)
	default:
		return path, nil
	}
}

func etcdProgram(ctx context.Context) (string, error) {
	return program(etcdEnv, func() (string, error) {
		return cached(ctx, "etcd-"+EtcdVersion, "etcd", func(ctx context.Context, scratch, out string) error {
			// The server's own module replaces its siblings by paths in its repository.
			const server = "go.etcd.io/etcd/server/v3"
			return buildIn(ctx, scratch, "require "+server+" "+EtcdVersion+"\n", "-ldflags", "-s -w", "-o", out, server)
		})
	})
}

// KubeProgram returns the path of a program of Kubernetes of [KubeVersion], building it if the cache has none: kube-controller-manager,
// for example.
func KubeProgram(ctx context.Context, name string) (string, error) {
	return cached(ctx, name+"-"+KubeVersion, name, func(ctx context.Context, scratch, out string) error {
		mod, err := kubeModule(ctx, scratch)
		if err != nil {
			return err
		}
		const version = "-s -w -X k8s.io/component-base/version.gitVersion=" + KubeVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
		// Inlining and tables for debuggers cost a third of the compiler's time.
		return buildIn(ctx, scratch, mod, "-gcflags=all=-l -dwarf=false", "-ldflags", version, "-o", out, "k8s.io/kubernetes/cmd/"+name)
	})
}

// kubeModule returns a go.mod for programs of Kubernetes, which replaces what Kubernetes keeps in its tree.
func kubeModule(ctx context.Context, dir string) (string, error) {
	answer, err := goCommand(ctx, dir, "mod", "download", "-json", "k8s.io/kubernetes@"+KubeVersion)
	if err != nil {
		return "", err
	}
	var info struct{ GoMod string }
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", err
	}
	text, err := os.ReadFile(info.GoMod)
	if err != nil {
		return "", err
	}
	mod := "require k8s.io/kubernetes " + KubeVersion + "\n\n"
	for _, m := range regexp.MustCompile(`(?m)^\s*(k8s\.io/[a-z-]+) => \./staging`).FindAllSubmatch(text, -1) {
		mod += fmt.Sprintf("replace %s => %s %s\n", m[1], m[1], stagingVersion)
	}
	return mod, nil
}

// buildIn builds a program in a module made for it.
func buildIn(ctx context.Context, dir, mod string, args ...string) error {
	mod = "module program.example\n\ngo 1.26.0\n\n" + mod
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		return err
	}
	_, err := goCommand(ctx, dir, append([]string{"build", "-trimpath"}, args...)...)
	return err
}

// goCommand runs the go command for this machine, even where the tests are those of another architecture.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOOS", "GOARCH", "GOWORK", "GOFLAGS", "CGO_ENABLED"}, name)
	})
	cmd.Env = append(cmd.Env, "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), errs.Bytes())
	}
	return out, nil
}

// A builder makes the file out, and may use the directory scratch.
type builder func(ctx context.Context, scratch, out string) error

// cached returns the path of a program in a directory of the user's cache, and has it built if it is not there.
func cached(ctx context.Context, dir, name string, build builder) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("servers: a place for %s: %w", name, err)
	}
	path, err := cachedIn(ctx, filepath.Join(cache, "ipalloc", dir), name, build)
	if err != nil {
		return "", fmt.Errorf("servers: %s: %w", name, err)
	}
	return path, nil
}

// cachedIn is cached in any directory. The lock only saves work; it is the rename that keeps half a program out of sight.
func cachedIn(ctx context.Context, dir, name string, build builder) (string, error) {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	path := filepath.Join(dir, name)
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // another process has built it meanwhile
		return path, nil
	}
	scratch, err := os.MkdirTemp(dir, "build-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	out := filepath.Join(scratch, name)
	if err := build(ctx, scratch, out); err != nil {
		return "", err
	}
	return path, os.Rename(out, path)
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
