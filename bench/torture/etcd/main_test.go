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
	if isWorker() {
		os.Exit(work())
	}
	os.Exit(m.Run())
}

// short is the form of the programs for tests: every fault once.
func short(t *testing.T) (context.Context, config) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	c := config{Writers: 8, Processes: 3, Kills: 3, Hold: 1500 * time.Millisecond, Seed: uint64(time.Now().UnixNano())}
	if !testing.Short() {
		c.Kills = 10
	}
	t.Logf("seed %d", c.Seed)
	return ctx, c
}

func finish(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, servers.ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestStorm torments three members while eight writers in three processes work on them.
func TestStorm(t *testing.T) {
	ctx, c := short(t)
	finish(t, storm(ctx, c, t.Logf))
}

// TestKilledWriters kills writers before, during and after their one commit.
func TestKilledWriters(t *testing.T) {
	ctx, c := short(t)
	finish(t, killed(ctx, c, t.Logf))
}
