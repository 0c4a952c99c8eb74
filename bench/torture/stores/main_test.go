package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

func TestMain(m *testing.M) {
	if workerMain() || serveMain() {
		return
	}
	if status, done := contained(); done {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// TestStorm has each fault of each store once, and every answer explained.
func TestStorm(t *testing.T) { each(t, storm) }

// TestSettle has each fault of each store once under engines, and every unknown outcome settled.
func TestSettle(t *testing.T) { each(t, settle) }

func each(t *testing.T, run func(context.Context, string, config, func(string, ...any)) error) {
	c := config{Callers: 3, Hold: 300 * time.Millisecond, Seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", c.Seed)
	for name := range subjects {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), name, c, t.Logf)
			if errors.Is(err, servers.ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
