package main

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/etcdtest"
	"github.com/ipalloc/ipalloc/internal/kubetest"
	"github.com/ipalloc/ipalloc/internal/pgtest"
)

func TestMain(m *testing.M) {
	if workerMain() {
		return
	}
	os.Exit(m.Run())
}

// TestStorm has each fault of each store once, and every answer explained.
func TestStorm(t *testing.T) {
	c := config{Callers: 3, Hold: 300 * time.Millisecond, Seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", c.Seed)
	for name := range subjects {
		t.Run(name, func(t *testing.T) {
			err := storm(t.Context(), name, c, t.Logf)
			if errors.Is(err, pgtest.ErrSkip) || errors.Is(err, etcdtest.ErrSkip) || errors.Is(err, kubetest.ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
