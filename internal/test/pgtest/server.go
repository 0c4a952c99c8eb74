package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Env names the environment variable that says which PostgreSQL to run: "skip" leaves out the tests that need one, a path is the
// directory of its programs.
const Env = "IPALLOC_POSTGRES"

// ErrSkip means that there is no PostgreSQL to run.
var ErrSkip = errors.New("SKIPPED, there is no PostgreSQL here")

// Config is what a server can be given; the zero value is useful.
type Config struct {
	// NoSync has the server not wait for the disk.
	NoSync bool
	// Dir is where the server makes its directory; "" is the directory for temporary files.
	Dir string
	// Settings are more settings of the server, as name=value.
	Settings []string
}

// Server is one PostgreSQL server. [Start] makes one.
type Server struct {
	bin, dir string
	config   Config
	cmd      *exec.Cmd
	ended    chan struct{}
}

// programs returns the directory of initdb and postgres.
func programs() (string, error) {
	var dirs []string
	switch env := os.Getenv(Env); env {
	case "skip":
		return "", fmt.Errorf("%w: left out, as %s says", ErrSkip, Env)
	case "":
		dirs, _ = filepath.Glob("/usr/lib/postgresql/*/bin")
		slices.Reverse(dirs)
		if path, err := exec.LookPath("initdb"); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	default:
		dirs = []string{env}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil && runtime.GOOS != "windows" {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: no initdb and postgres in %v", ErrSkip, dirs)
}

// Start makes a server with an empty database in a temporary directory and returns when it answers. Its errors match [ErrSkip] if
// there is no PostgreSQL.
func Start(ctx context.Context, config Config) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(config.Dir, "ipalloc-pg-")
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	s := &Server{bin: bin, dir: dir, config: config}
	if err := s.initialise(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: %w", err), s.Close())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// initialise makes the data directory.
func (s *Server) initialise(ctx context.Context) error {
	if err := give(s.dir); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", s.data())
	cmd.SysProcAttr, cmd.Dir, cmd.Env = unprivileged(), s.dir, environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func environment() []string { return append(os.Environ(), "LC_ALL=C", "HOME=/") }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// DSN returns the connection string of the database, to which more settings can be appended after a space.
func (s *Server) DSN() string { return "host=" + s.dir + " user=postgres dbname=postgres" }

// Dir returns the directory of the server's socket.
func (s *Server) Dir() string { return s.dir }

// Log returns what the server has logged.
func (s *Server) Log() string {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(log)
}

// Start starts a server that does not run, and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = log.Close() }()
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200"}
	if s.config.NoSync {
		args = append(args, "-c", "fsync=off")
	}
	for _, setting := range s.config.Settings {
		args = append(args, "-c", setting)
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.SysProcAttr, s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = unprivileged(), s.dir, environment(), log, log
	s.ended = make(chan struct{})
	started := make(chan error)
	go func(cmd *exec.Cmd, ended chan struct{}) {
		runtime.LockOSThread() // on Linux the server dies with this thread
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}(s.cmd, s.ended)
	if err := <-started; err != nil {
		s.cmd = nil
		return fmt.Errorf("pgtest: %w", err)
	}
	return s.await(ctx)
}

// await returns when the server answers.
func (s *Server) await(ctx context.Context) error {
	for {
		ready := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_isready"), "-q", "-h", s.dir)
		ready.Env = environment()
		if ready.Run() == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("pgtest: the server has ended:\n%s", s.Log())
		case <-ctx.Done():
			return fmt.Errorf("pgtest: start the server: %w\n%s", ctx.Err(), s.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server at once, without a checkpoint: the next start recovers from its log.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = quit(s.cmd.Process)
		<-s.ended
		s.cmd = nil
	}
}

// Revive returns when the server answers, and starts it if it has ended by itself.
func (s *Server) Revive(ctx context.Context) error {
	err := s.await(ctx)
	select {
	case <-s.ended:
		return s.Start(ctx)
	default:
		return err
	}
}

// Close ends the server and removes its directory.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}

// TB is what New needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Log(args ...any)
	Fatal(args ...any)
	Skip(args ...any)
}

// New starts a server for a test and ends it with the test, which shows its log if it fails. The test is skipped if there is no
// PostgreSQL.
func New(t TB, config Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := Start(ctx, config)
	if errors.Is(err, ErrSkip) {
		t.Skip(strings.TrimSpace(err.Error()))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	})
	return s
}
