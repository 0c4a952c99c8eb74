package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is a program that can be started again when it has ended. Its output goes to a file.
type process struct {
	name string
	log  string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd is gone and waited for
	from  int64         // where the output of cmd begins in the log
}

// errEnded: the program has ended, or was never started.
var errEnded = errors.New("does not run")

// run starts the program. The thread that starts it stays until it ends, because on Linux it dies with that thread.
func (p *process) run(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("servers: %s runs already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer func() { _ = log.Close() }() // the program has its own
	if p.from, err = log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("servers: start %s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, ended
	return nil
}

// running is Running under the lock.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Running reports whether the program runs, paused or not.
func (p *process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// do calls f with the process if it runs, and returns a channel that is closed when it has ended.
func (p *process) do(f func(*os.Process) error) (ended <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, fmt.Errorf("servers: %s %w", p.name, errEnded)
	}
	if err := f(p.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, fmt.Errorf("servers: %s: %w", p.name, err)
	}
	return p.ended, nil
}

// Kill ends the program by SIGKILL, paused or not, and returns when it has exited. It does nothing
// if the program does not run.
func (p *process) Kill() {
	if ended, err := p.do((*os.Process).Kill); err == nil {
		<-ended
	}
}

// Stop asks the program to end, as a service manager does, and returns when it has exited or ctx
// ends.
func (p *process) Stop(ctx context.Context) error {
	ended, err := p.do(terminate)
	if err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("servers: stop %s: %w", p.name, context.Cause(ctx))
	}
}

// Pause stops the program by SIGSTOP: its connections stay open and nothing answers. It returns when all threads stand still.
func (p *process) Pause() error {
	_, err := p.do(pause)
	return err
}

// Resume lets a paused program continue.
func (p *process) Resume() error {
	_, err := p.do(resume)
	return err
}

// await returns when ready returns nil. It fails if the program ends, with the end of its log, or if ctx does.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if !p.Running() {
			return fmt.Errorf("servers: %s %w:\n%s", p.name, errEnded, p.LogEnd())
		}
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("servers: waiting for %s: %w: %w\n%s", p.name, context.Cause(ctx), err, p.LogEnd())
		}
	}
}

// LogEnd returns the end of the program's output since its last start.
func (p *process) LogEnd() string {
	p.mu.Lock()
	from := p.from
	p.mu.Unlock()
	const tail = 8 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[min(len(text), max(int(from), len(text)-tail)):]))
}
