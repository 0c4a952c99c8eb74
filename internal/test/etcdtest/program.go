package etcdtest

import (
	"fmt"
	"os"
	"path/filepath"
)

// Program is any other program that a test runs beside an etcd. Make one with [Run].
type Program struct {
	log string
	p   *process
}

// Run starts a program and appends its output to a file. On Linux the program ends
// with the process that started it, however that ends.
func Run(log, path string, args ...string) (*Program, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcdtest: %w", err)
	}
	defer func() { _ = file.Close() }()
	p, err := launch(file, path, args)
	if err != nil {
		return nil, fmt.Errorf("etcdtest: start %s: %w", filepath.Base(path), err)
	}
	return &Program{log: log, p: p}, nil
}

// Running reports whether the program has not ended.
func (r *Program) Running() bool { return r.p.running() }

// Kill ends the program by SIGKILL, paused or not, and returns when it is gone.
func (r *Program) Kill() {
	if r.p.running() {
		_ = r.p.cmd.Process.Kill() // fails for one that has ended
		<-r.p.ended
	}
}

// Pause stops the program by SIGSTOP, as [Member.Pause] does.
func (r *Program) Pause() error { return pause(r.p.cmd.Process) }

// Resume lets a paused program continue.
func (r *Program) Resume() error { return resume(r.p.cmd.Process) }

// LogEnd returns the end of the program's output.
func (r *Program) LogEnd() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}
