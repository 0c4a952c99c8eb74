package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/pgtest"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	os.Exit(m.Run())
}

// TestStorm kills processes that share a database, and stops the server of one, while eight writers work.
func TestStorm(t *testing.T) {
	c := config{Writers: 8, Processes: 3, Duration: 4 * time.Second, Hold: 300 * time.Millisecond, Seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", c.Seed)
	for name, run := range map[string]func(context.Context, config, func(string, ...any)) error{"SQLite": stormSQLite, "PostgreSQL": stormPostgres} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			err := run(ctx, c, t.Logf)
			if errors.Is(err, pgtest.ErrSkip) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
