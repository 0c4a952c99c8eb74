package etcdtest

import (
	"context"
	"errors"
	"strings"
	"time"
)

// TB is what New needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Log(args ...any)
	Fatal(args ...any)
	Skip(args ...any)
}

// startLimit is how long a test may wait for its cluster, the build of etcd on a busy
// machine included.
const startLimit = 20 * time.Minute

// New starts a cluster for a test and ends it with the test, which shows the ends of
// the logs if it fails. The test fails here if that can't be done, and is skipped if
// the environment says so.
func New(t TB, config Config) *Cluster {
	t.Helper()
	return begin(t, config, Start)
}

// NewPrepared prepares a cluster for a test as New starts one: the test starts it.
func NewPrepared(t TB, config Config) *Cluster {
	t.Helper()
	return begin(t, config, Prepare)
}

func begin(t TB, config Config, f func(context.Context, Config) (*Cluster, error)) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := f(ctx, config)
	if errors.Is(err, ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			var logs strings.Builder
			c.WriteLogs(&logs)
			t.Log(logs.String())
		}
		if err := c.Close(); err != nil {
			t.Log(err)
		}
	})
	return c
}
