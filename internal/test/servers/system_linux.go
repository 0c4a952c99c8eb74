package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// attributes has a program die with its parent, however that ends, and keeps the keyboard's interrupt for the latter.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// unprivileged is attributes for PostgreSQL, whose processes end together by SIGQUIT, and which refuses to run as root.
func unprivileged() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential(), Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}

// credential returns the user that PostgreSQL runs as, or nil for the present one.
func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

// give makes the user of PostgreSQL the owner of a directory.
func give(dir string) error {
	if c := credential(); c != nil {
		return os.Chown(dir, int(c.Uid), int(c.Gid))
	}
	return nil
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
func quit(p *os.Process) error      { return p.Signal(syscall.SIGQUIT) }
func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }

// pause stops a process and returns when all of its threads stand still, which is a moment after the signal.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !still(p.Pid) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// still reports whether no thread of a process runs.
func still(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state comes after the name, which is in parentheses and may hold any byte.
		if i := bytes.LastIndexByte(text, ')'); i >= 0 && !bytes.ContainsAny(text[i:min(i+3, len(text))], "TtZX") {
			return false
		}
	}
	return true
}

// lock takes the lock of a file, which ends with the process at the latest. It polls, because a blocking flock does not end with ctx.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			_ = file.Close()
			return nil, context.Cause(ctx)
		}
	}
}
