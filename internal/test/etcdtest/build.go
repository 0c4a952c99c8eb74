package etcdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	// Version is the version of the etcd server that is built.
	Version = "v3.6.16"
	// Env names the environment variable that says to do without a built etcd: "skip"
	// leaves out the tests that need one, a path is the etcd to run.
	Env = "IPALLOC_ETCD"

	serverModule = "go.etcd.io/etcd/server/v3"
	skipWord     = "skip"
)

// The sentinels of this package, for errors.Is.
var (
	// ErrSkip: the environment says to do without etcd.
	ErrSkip = errors.New("left out, as " + Env + " says")
	// ErrBuild: etcd could not be built; its modules may be out of reach.
	ErrBuild = errors.New("can't build")
)

// Binary returns the path of an etcd server, building it if it is not there yet: that
// downloads its modules and takes minutes. Whoever finds another process building it
// waits for that until ctx ends.
//
// It fails with ErrSkip if the environment says so, with ErrBuild if the go command
// fails, with its output, with the error of ctx, or with one of the file system. What
// is in the cache afterwards is a whole binary or none.
func Binary(ctx context.Context) (string, error) {
	switch path := os.Getenv(Env); path {
	case "":
	case skipWord:
		return "", fmt.Errorf("etcdtest: %w", ErrSkip)
	default:
		return path, nil
	}
	return Cached(ctx, "etcd-"+Version, "etcd", buildEtcd)
}

// Cached returns the path of a program in ipalloc/<dir> of the user's cache: etcd, or
// whatever else a test needs that takes minutes to build. If it is not there, build
// makes the file out, and may use the directory scratch. One process builds, others
// that ask meanwhile wait for it.
//
// It fails with what build fails with, with the error of ctx, or with one of the file
// system. What is in the cache afterwards is a whole program or none.
func Cached(ctx context.Context, dir, program string, build func(ctx context.Context, scratch, out string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("etcdtest: a place for %s: %w", program, err)
	}
	path, err := cachedIn(ctx, filepath.Join(cache, "ipalloc", dir), program, build)
	if err != nil {
		return "", fmt.Errorf("etcdtest: %s: %w", program, err)
	}
	return path, nil
}

// cachedIn is Cached in a directory of its own. The lock only spares work. It is the
// rename that keeps half a program out of sight, also where there are no locks.
func cachedIn(ctx context.Context, dir, program string, build func(ctx context.Context, scratch, out string) error) (string, error) {
	path := filepath.Join(dir, program)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
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
	if exists(path) { // somebody else has built it meanwhile
		return path, nil
	}
	scratch, err := os.MkdirTemp(dir, "build-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	out := filepath.Join(scratch, filepath.Base(path))
	if err := build(ctx, scratch, out); err != nil {
		return "", err
	}
	return path, os.Rename(out, path)
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// buildEtcd builds the server in a module made up for it: the server's own asks for
// its siblings by paths in its repository, so that go install refuses it.
func buildEtcd(ctx context.Context, scratch, out string) error {
	mod := "module etcd.example/server\n\ngo 1.26.0\n\nrequire " + serverModule + " " + Version + "\n"
	if err := os.WriteFile(filepath.Join(scratch, "go.mod"), []byte(mod), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, serverModule)
	cmd.Dir = scratch
	cmd.Env = buildEnv(os.Environ())
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w %s: %w\n%s", ErrBuild, Version, err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}

// buildEnv returns the environment without what is meant for the package under test:
// etcd is built for this machine, even for tests of a 32-bit program.
func buildEnv(environ []string) []string {
	ours := []string{"GOOS", "GOARCH", "GOWORK", "GOFLAGS", "CGO_ENABLED"}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name)
	})
	return append(environ, "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
}
