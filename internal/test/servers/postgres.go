package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// PostgresOptions says what to run. The zero value is usable.
type PostgresOptions struct {
	// NoSync has the server not wait for the disk.
	NoSync bool
	// Dir is where the server makes its directory; "" is the directory for temporary files.
	Dir string
	// Settings are more settings of the server, as name=value.
	Settings []string
}

// Postgres is one PostgreSQL server on a Unix socket. [StartPostgres] makes one.
type Postgres struct {
	process
	bin, dir string
	options  PostgresOptions
}

// postgresPrograms returns the directory of initdb and postgres.
func postgresPrograms() (string, error) {
	var dirs []string
	dir, err := program(postgresEnv, func() (string, error) {
		dirs, _ = filepath.Glob("/usr/lib/postgresql/*/bin")
		slices.Reverse(dirs)
		if path, err := exec.LookPath("initdb"); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	if dir != "" {
		dirs = []string{dir}
	}
	for _, dir := range dirs {
		if exists(filepath.Join(dir, "initdb")) && exists(filepath.Join(dir, "postgres")) && runtime.GOOS != "windows" {
			return dir, nil
		}
	}
	return "", fmt.Errorf("servers: %w, there is no PostgreSQL here: no initdb and postgres in %v", ErrSkip, dirs)
}

// StartPostgres makes a server with an empty database and returns when it answers. It fails with [ErrSkip] if there is no PostgreSQL.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	return newPostgres(ctx, bin, options, "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "-D")
}

// Standby returns a hot standby of the server, which streams its log asynchronously: a second server, on a copy of the data. The
// caller closes it. The statement SELECT pg_promote() makes it a primary.
func (s *Postgres) Standby(ctx context.Context) (*Postgres, error) {
	return newPostgres(ctx, s.bin, s.options, "pg_basebackup", "-h", s.dir, "-U", "postgres", "-R", "-c", "fast", "-X", "stream", "--no-sync", "-D")
}

// newPostgres starts a server on a data directory that a command makes, whose last argument it is.
func newPostgres(ctx context.Context, bin string, options PostgresOptions, command string, args ...string) (*Postgres, error) {
	dir, err := os.MkdirTemp(options.Dir, "ipalloc-pg-")
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	s := &Postgres{process: process{name: "postgres", log: filepath.Join(dir, "log")}, bin: bin, dir: dir, options: options}
	if err = give(dir); err == nil {
		cmd := s.command(ctx, command, append(args, s.data())...)
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = fmt.Errorf("servers: %s: %w\n%s", command, failed, out)
		}
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// command returns a command of the server's programs that runs as the server's user.
func (s *Postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir, cmd.Env = unprivileged(), s.dir, append(os.Environ(), "LC_ALL=C", "HOME=/")
	return cmd
}

func (s *Postgres) data() string { return filepath.Join(s.dir, "data") }

// DSN returns the connection string of the database. More settings can be appended after a space.
func (s *Postgres) DSN() string { return "host=" + s.dir + " user=postgres dbname=postgres" }

// Dir returns the directory of the server's socket.
func (s *Postgres) Dir() string { return s.dir }

// Start starts a server that does not run, and returns when it answers.
func (s *Postgres) Start(ctx context.Context) error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200"}
	if s.options.NoSync {
		args = append(args, "-c", "fsync=off")
	}
	for _, setting := range s.options.Settings {
		args = append(args, "-c", setting)
	}
	// The server outlives ctx.
	if err := s.run(s.command(context.Background(), "postgres", args...)); err != nil {
		return err
	}
	return s.await(ctx, s.ready)
}

func (s *Postgres) ready(ctx context.Context) error {
	return s.command(ctx, "pg_isready", "-q", "-h", s.dir).Run()
}

// Stop ends the server at once, without a checkpoint: the next start recovers from its log.
func (s *Postgres) Stop() {
	if ended, err := s.do(quit); err == nil {
		<-ended
	}
}

// Revive returns when the server answers, and starts it if it has ended by itself.
func (s *Postgres) Revive(ctx context.Context) error {
	err := s.await(ctx, s.ready)
	if !s.Running() {
		return s.Start(ctx)
	}
	return err
}

// Close ends the server and removes its directory.
func (s *Postgres) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}
