package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestManyAskAndOneBuilds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("for Linux")
	}
	dir := filepath.Join(t.TempDir(), "cache", "x")
	var builds atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			path, err := cachedIn(t.Context(), dir, "x", func(_ context.Context, _, out string) error {
				builds.Add(1)
				return os.WriteFile(out, []byte("whole"), 0o700)
			})
			if text, failed := os.ReadFile(path); err != nil || failed != nil || string(text) != "whole" {
				t.Error(string(text), err, failed)
			}
		}()
	}
	group.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestAFailedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	_, err := cachedIn(t.Context(), dir, "x", func(_ context.Context, _, out string) error {
		return errors.Join(os.WriteFile(out, []byte("ha"), 0o700), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() != "lock" }) {
		t.Error(left, err)
	}
	if _, err := cachedIn(t.Context(), dir, "x", func(_ context.Context, _, out string) error { return os.WriteFile(out, nil, 0o700) }); err != nil {
		t.Error("the lock is held: ", err)
	}
}

func TestWaitingForABuildEndsWithTheContext(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("for Linux")
	}
	dir, gone := t.TempDir(), errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := cachedIn(t.Context(), dir, "x", func(_ context.Context, _, out string) error {
		if _, err := cachedIn(ctx, dir, "x", nil); !errors.Is(err, gone) {
			t.Error(err)
		}
		return os.WriteFile(out, nil, 0o700)
	})
	if err != nil {
		t.Error(err)
	}
}

// skipping is a test that ends when it is skipped.
type skipping struct {
	*testing.T
	skipped bool
}

func (s *skipping) Skip(...any) {
	s.skipped = true
	runtime.Goexit()
}

func TestTheEnvironmentDecides(t *testing.T) {
	for env, run := range map[string]struct {
		start func() error
		begin func(TB)
	}{
		etcdEnv:     {func() error { _, err := StartEtcd(t.Context(), EtcdOptions{}); return err }, func(t TB) { NewEtcd(t, EtcdOptions{}) }},
		kubeEnv:     {func() error { _, err := StartKube(t.Context(), KubeOptions{}); return err }, func(t TB) { NewKube(t, KubeOptions{}) }},
		postgresEnv: {func() error { _, err := StartPostgres(t.Context(), PostgresOptions{}); return err }, func(t TB) { NewPostgres(t, PostgresOptions{}) }},
	} {
		t.Setenv(env, "skip")
		if err := run.start(); !errors.Is(err, ErrSkip) || !strings.Contains(err.Error(), env) {
			t.Error(err)
		}
		test, done := &skipping{T: t}, make(chan struct{})
		go func() {
			defer close(done)
			run.begin(test)
		}()
		if <-done; !test.skipped {
			t.Errorf("%s=skip does not skip the test", env)
		}
	}
	t.Setenv(etcdEnv, filepath.Join(t.TempDir(), "no-such-etcd"))
	if _, err := StartEtcd(t.Context(), EtcdOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	t.Setenv(postgresEnv, t.TempDir())
	if _, err := StartPostgres(t.Context(), PostgresOptions{}); !errors.Is(err, ErrSkip) || !strings.Contains(err.Error(), "no PostgreSQL here") {
		t.Error(err)
	}
}

func TestTheBuildIsForThisMachine(t *testing.T) {
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOFLAGS", "-mod=vendor")
	out, err := goCommand(t.Context(), t.TempDir(), "env", "GOOS", "GOFLAGS", "CGO_ENABLED")
	if want := fmt.Sprintf("%s\n-mod=mod\n0\n", runtime.GOOS); err != nil || string(out) != want {
		t.Errorf("%q %v, want %q", out, err, want)
	}
}
