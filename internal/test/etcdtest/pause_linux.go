package etcdtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pause stops a process and returns when all of its threads stand still, which is a
// moment after the signal.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !still(p.Pid) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// still says whether no thread of a process runs; one that ends is as still.
func still(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return true
	}
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state comes after the name, which is in parentheses and may hold any.
		if i := bytes.LastIndexByte(text, ')'); i >= 0 && !bytes.ContainsAny(text[i:min(i+3, len(text))], "TtZX") {
			return false
		}
	}
	return true
}
