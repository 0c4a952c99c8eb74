package etcdtest

import (
	"os"
	"os/exec"
	"runtime"
)

// process is a program that was started. A nil one does not run.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it is gone and waited for
}

// launch starts a program with its output into a file. The thread that starts it
// stays until it ends: on Linux the program dies with that thread.
func launch(log *os.File, path string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // ProcessState says how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
