package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A user who may only read a SQLite file, and write nothing beside it, lists it: the file is complete if no process has it open.
func TestReaderOfSQLite(t *testing.T) {
	dir, err := os.MkdirTemp("", "reader") // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	defer os.Chmod(dir, 0o700)
	path := dir + "/ipam.sqlite"
	name := newStore(t, "sqlite://"+path)
	for of, mode := range map[string]os.FileMode{dir: 0o555, path: 0o444} {
		if err := os.Chmod(of, mode); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (string, error) {
		c := exec.Command("/proc/self/exe", "pool", "list", "-o", "name")
		c.Env = []string{asProgram + "=1", "IPAMCTL_STORE=" + name}
		c.Dir = "/"
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := list(); err != nil || len(out) != len("pods\nlb\npods6\n") {
		t.Errorf("%s, %v", out, err)
	}
	if os.Getuid() == 0 { // files of another user, whose process has the store open
		for _, beside := range []string{"-wal", "-shm"} {
			if err := os.WriteFile(path+beside, make([]byte, 32<<10), 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path + beside)
		}
		out, err := list()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != exitRefused || !strings.Contains(out, "another user") {
			t.Errorf("beside another user's process: %s, %v", out, err)
		}
		for _, beside := range []string{"-wal", "-shm"} {
			os.Remove(path + beside)
		}
	}
	rest, err := os.ReadDir(dir)
	if err != nil || len(rest) != 1 {
		t.Errorf("beside the file: %v, %v", rest, err)
	}
}
