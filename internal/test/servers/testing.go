package servers

import (
	"context"
	"errors"
	"time"
)

// TB has the methods of *testing.T, *testing.B and *testing.F that a server needs.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Log(args ...any)
	Fatal(args ...any)
	Skip(args ...any)
}

// StartLimit bounds the time that a test waits for a server, including the build of its program on
// a busy machine.
const StartLimit = 40 * time.Minute

type server interface {
	LogEnd() string
	Close() error
}

// NewEtcd starts an etcd for a test.
func NewEtcd(t TB, options EtcdOptions) *Etcd {
	t.Helper()
	return begin(t, StartEtcd, options)
}

// NewPostgres starts a PostgreSQL for a test.
func NewPostgres(t TB, options PostgresOptions) *Postgres {
	t.Helper()
	return begin(t, StartPostgres, options)
}

// NewKube starts a kube-apiserver for a test.
func NewKube(t TB, options KubeOptions) *Kube {
	t.Helper()
	return begin(t, StartKube, options)
}

func begin[S server, O any](t TB, start func(context.Context, O) (S, error), options O) S {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), StartLimit)
	defer cancel()
	s, err := start(ctx, options)
	if errors.Is(err, ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.LogEnd())
		}
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	})
	return s
}
