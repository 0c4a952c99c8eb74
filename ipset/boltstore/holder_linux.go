package boltstore

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockHolder returns a process that has a lock on the file of a name, or on a file that was removed under that name, and the
// name of the process; 0 if there is none or that can't be told. The kernel lists every lock:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:131090 0 EOF
func lockHolder(path string) (pid int, name string) {
	info, err := os.Stat(path)
	removed := errors.Is(err, fs.ErrNotExist)
	if err != nil && !removed {
		return 0, ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0, ""
	}
	defer locks.Close()
	for s := bufio.NewScanner(locks); s.Scan(); {
		words := strings.Fields(s.Text())
		if len(words) < 6 || words[1] != "FLOCK" || !removed && words[5] != place(info) {
			continue
		}
		pid, err := strconv.Atoi(words[4])
		if err == nil && pid > 0 && (!removed || hasRemoved(pid, path)) {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return pid, strings.TrimSpace(string(comm))
		}
	}
	return 0, ""
}

// place returns device and number of a file as the list of locks has them.
func place(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff|dev>>32&^uint64(0xfff), dev&0xff|dev>>12&^uint64(0xff)
	return fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino)
}

// hasRemoved reports whether a process has a file open that was removed under a name.
func hasRemoved(pid int, path string) bool {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return false
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == filepath.Join(dir, filepath.Base(path))+" (deleted)" {
			return true
		}
	}
	return false
}
