package etcdtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// canLock says where lock is more than a promise.
var canLock = slices.Contains([]string{"darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd"}, runtime.GOOS)

func TestManyAskAndOneBuilds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache", "etcd")
	var builds atomic.Int32
	build := func(_ context.Context, _, out string) error {
		builds.Add(1)
		return os.WriteFile(out, []byte("whole"), 0o700)
	}
	var group sync.WaitGroup
	for range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			path, err := cachedIn(t.Context(), dir, "etcd", build)
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := os.ReadFile(path); string(text) != "whole" {
				t.Error(string(text), err)
			}
		}()
	}
	group.Wait()
	if n := builds.Load(); canLock && n != 1 {
		t.Errorf("built %d times", n)
	}
	onlyBinary(t, dir)
}

// onlyBinary checks that the directory holds the binary, the lock, and nothing else.
func onlyBinary(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".exe"); name != "etcd" && name != "lock" {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestAFailedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	half := func(_ context.Context, _, out string) error {
		if err := os.WriteFile(out, []byte("ha"), 0o700); err != nil {
			return err
		}
		return broken
	}
	if _, err := cachedIn(t.Context(), dir, "etcd", half); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "etcd")) {
		t.Error("half a binary is there")
	}
	onlyBinary(t, dir)
	whole := func(_ context.Context, _, out string) error { return os.WriteFile(out, nil, 0o700) }
	if _, err := cachedIn(t.Context(), dir, "etcd", whole); err != nil {
		t.Error("the lock is held: ", err)
	}
}

func TestWaitingForABuildEndsWithTheContext(t *testing.T) {
	if !canLock {
		t.Skip("no locks here")
	}
	dir := t.TempDir()
	building, finish := make(chan struct{}), make(chan struct{})
	built := make(chan error, 1)
	go func() {
		_, err := cachedIn(t.Context(), dir, "etcd", func(_ context.Context, _, out string) error {
			close(building)
			<-finish
			return os.WriteFile(out, nil, 0o700)
		})
		built <- err
	}()
	<-building
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := cachedIn(ctx, dir, "etcd", func(context.Context, string, string) error {
		t.Error("built at the same time")
		return nil
	})
	if !errors.Is(err, gone) {
		t.Error(err)
	}
	close(finish)
	if err := <-built; err != nil {
		t.Error(err)
	}
}

func TestTheBuildIsForThisMachine(t *testing.T) {
	got := buildEnv([]string{"PATH=/bin", "GOARCH=386", "GOFLAGS=-mod=vendor", "GOWORK=/x", "GOOS=plan9", "GOARCHIVE=y"})
	want := []string{"PATH=/bin", "GOARCHIVE=y", "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// skipping is a test that ends when it is skipped, unknown to the test it stands for.
type skipping struct {
	*testing.T
	skipped bool
}

func (s *skipping) Skip(...any) {
	s.skipped = true
	runtime.Goexit()
}

func TestTheEnvironmentDecides(t *testing.T) {
	t.Setenv(Env, "skip")
	if _, err := Start(t.Context(), Config{}); !errors.Is(err, ErrSkip) {
		t.Error(err)
	}
	test := &skipping{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(test, Config{})
	}()
	if <-done; !test.skipped {
		t.Error("New does not skip the test")
	}
	t.Setenv(Env, filepath.Join(t.TempDir(), "no-such-etcd"))
	if path, err := Binary(t.Context()); err != nil || path != os.Getenv(Env) {
		t.Error(path, err)
	}
	if _, err := Start(t.Context(), Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	for name, c := range map[string]Config{
		"too many":            {Members: 10},
		"fewer than none":     {Members: -1},
		"addresses for one":   {Members: 3, Client: []string{"127.0.0.1:1"}},
		"addresses for three": {AdvertisePeer: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}},
		"no port":             {Peer: []string{"127.0.0.1"}},
	} {
		if _, err := Prepare(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutAProxyTheTestFails(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the cache is elsewhere")
	}
	t.Setenv(Env, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOTOOLCHAIN", "local")
	_, err := Binary(t.Context())
	if !errors.Is(err, ErrBuild) || !strings.HasPrefix(err.Error(), "etcdtest: etcd: can't build "+Version) {
		t.Error(err)
	}
}
