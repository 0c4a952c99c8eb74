package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/pgtest"
)

// asProgram makes the test binary be the program: the one that tests kill.
const asProgram = "VPN_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// each runs a test on an empty SQLite file and on an empty PostgreSQL. name is for -db.
func each(t *testing.T, test func(t *testing.T, name string, c *Control)) {
	open := func(t *testing.T, driver, dsn string) *Control {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		c, err := NewControl(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for group, p := range map[string]string{"staff": "100.64.0.0/24", "lab": "100.64.1.0/28", "six": "fd00::/64"} {
			if err := c.AddGroup(t.Context(), group, netip.MustParsePrefix(p)); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "vpn.sqlite")
		test(t, "sqlite://"+path, open(t, "sqlite", "file:"+path+"?_txlock=immediate"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		server := pgtest.New(t, pgtest.Config{NoSync: true})
		test(t, "postgres:///?"+strings.ReplaceAll(server.DSN(), " ", "&"), open(t, "pgx", server.DSN()))
	})
}

// A machine comes, moves and goes; what cannot be changes nothing.
func TestMachine(t *testing.T) {
	each(t, func(t *testing.T, _ string, c *Control) {
		ctx := t.Context()
		m, err := c.Enrol(ctx, "laptop", "lab")
		if err != nil || !netip.MustParsePrefix("100.64.1.0/28").Contains(m.Address) {
			t.Fatal(m, err)
		}
		if again, err := c.Enrol(ctx, "laptop", "lab"); again != m || err != nil {
			t.Error(again, err)
		}
		if _, err := c.Enrol(ctx, "laptop", "staff"); !errors.Is(err, ipalloc.ErrExists) {
			t.Error(err)
		}
		if _, err := c.Enrol(ctx, "phone", "nobody"); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Error(err)
		}
		to := netip.MustParseAddr("100.64.0.77")
		if moved, err := c.Move(ctx, "laptop", to); err != nil || moved.Address != to {
			t.Error(moved, err)
		}
		if other, err := c.Enrol(ctx, "desk", "staff"); err != nil || other.Address == to {
			t.Error(other, err)
		}
		if _, err := c.Move(ctx, "desk", to); !errors.Is(err, ipalloc.ErrOccupied) {
			t.Error(err)
		}
		if moved, err := c.Move(ctx, "desk", netip.Addr{}); err != nil || moved.Address == to {
			t.Error(moved, err)
		}
		if six, err := c.Enrol(ctx, "server", "six"); err != nil || !six.Address.Is6() {
			t.Error(six, err)
		}
		if err := c.Remove(ctx, "laptop"); err != nil {
			t.Error(err)
		}
		if err := c.Remove(ctx, "laptop"); !errors.Is(err, ipalloc.ErrNotFound) {
			t.Error(err)
		}
		if moved, err := c.Move(ctx, "desk", to); err != nil || moved.Address != to {
			t.Error(moved, err)
		}
		for i := range 20 { // more than the group has
			if _, err := c.Enrol(ctx, fmt.Sprint("lab", i), "lab"); err != nil && !errors.Is(err, ipalloc.ErrFull) {
				t.Error(err)
			}
		}
		if machines, err := c.Machines(ctx); err != nil || len(machines) != 2+14 { // a /28 without its first and last address
			t.Errorf("%d machines, %v", len(machines), err)
		}
		if err := c.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Programs that are killed at any moment leave no machine without an address and no address without a machine.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, name string, c *Control) {
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for i := range 8 {
					machine := fmt.Sprintf("m%d-%d", w, i)
					commands := [][]string{{"enrol", machine, "staff"}, {"move", machine}}
					if i%3 == 0 {
						commands = append(commands, []string{"remove", machine})
					}
					for n, words := range commands {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(20+(37*i+53*n)%180)*time.Millisecond)
						cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-db", name}, words...)...) // killed when ctx ends
						cmd.Env = append(os.Environ(), asProgram+"=1")
						_ = cmd.Run()
						cancel()
					}
				}
			})
		}
		wg.Wait()
		machines, err := c.Machines(t.Context())
		if err == nil {
			err = c.Verify(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d machines are left", len(machines))
	})
}

func TestCommands(t *testing.T) {
	db := "sqlite://" + filepath.Join(t.TempDir(), "vpn.sqlite")
	for _, tt := range []struct {
		words, stdout, stderr string
		status                int
	}{
		{"group staff 100.64.0.0/26", "", "", 0},
		{"enrol laptop staff", "laptop\tstaff\t100.64.0.1\n", "", 0},
		{"move laptop 100.64.0.9", "laptop\tstaff\t100.64.0.9\n", "", 0},
		{"list", "laptop\tstaff\t100.64.0.9\n", "", 0},
		{"verify", "", "", 0},
		{"remove laptop", "", "", 0},
		{"remove laptop", "", "vpn: not found: machine \"laptop\"\n", 1},
		{"list", "", "", 0},
		{"enrol laptop", "", usage, 2},
		{"", "", usage, 2},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), append([]string{"-db", db}, strings.Fields(tt.words)...), &stdout, &stderr)
		if status != tt.status || stdout.String() != tt.stdout || stderr.String() != tt.stderr {
			t.Errorf("%q: status %d, %q, %q", tt.words, status, stdout.String(), stderr.String())
		}
	}
}
