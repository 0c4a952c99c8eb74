//go:build e2e && linux

package e2e

import (
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// launch starts a program with its output at the end of a file.
func launch(log, path string, args ...string) (*exec.Cmd, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // should the test end without a cleanup
	return cmd, cmd.Start()
}

// supervised is a program that is started again when it ends by itself, as one that
// has lost its lease does, until it is killed.
type supervised struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	killed bool
	ended  chan struct{}
}

func supervise(t *testing.T, log, path string, args ...string) *supervised {
	s := &supervised{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for {
			s.mu.Lock()
			if s.killed {
				s.mu.Unlock()
				return
			}
			cmd, err := launch(log, path, args...)
			s.cmd = cmd
			s.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			_ = cmd.Wait()
			time.Sleep(100 * time.Millisecond) // so that one that can't start does not keep the machine busy
		}
	}()
	t.Cleanup(s.kill)
	return s
}

// signal sends a signal to the program, if it runs.
func (s *supervised) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// kill is kill -9.
func (s *supervised) kill() {
	s.mu.Lock()
	s.killed = true
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
	}
	s.mu.Unlock()
	<-s.ended
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// tail returns the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// wait waits until ok; that it takes minutes means that it will not happen.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("no end of waiting for %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
