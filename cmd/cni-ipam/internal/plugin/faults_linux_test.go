package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadOnlyDirectory: without the right to write, everything fails and says so.
func TestReadOnlyDirectory(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	for _, dir := range []string{n.dir, filepath.Join(n.dir, "net")} {
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o755)
	}
	// The superuser may write anywhere, so somebody else calls, for whom the program and the directory have to be in reach.
	call := func(i invocation) answer {
		t.Helper()
		cmd := exec.Command(n.bin)
		cmd.Env = i.environment()
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir))
		if os.Geteuid() == 0 {
			const nobody = 65534
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			for dir := n.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
				os.Chmod(dir, 0o755)
			}
			os.Chmod(n.dir, 0o555)
			os.Chmod(scratch, 0o755)
		}
		out, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Skip("SKIPPED, another user can't run the program here:", err)
		}
		return answer{code: cmd.ProcessState.ExitCode(), stdout: string(out)}
	}
	for _, i := range []invocation{add1("b", c), del1("a", c), {verb: "CHECK", container: "a", ifname: "eth0", conf: c}, add1("b", conf("other", one24))} {
		a := call(i)
		if f := a.failure(); a.code != 1 || f.Code != 5 || !strings.Contains(f.Msg, "permission denied") {
			t.Errorf("%s: %d %s", i.verb, a.code, a.stdout)
		}
	}
	a := call(invocation{conf: c, env: []string{"CNI_COMMAND=STATUS", "CNI_PATH=/x"}})
	if f := a.failure(); a.code != 1 || f.Code != 50 {
		t.Errorf("%d %s", a.code, a.stdout)
	}
}

// smallDisk mounts a file system of 256 KiB for the test.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("SKIPPED, no file system can be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestDiskFull: an ADD for which there is no room fails and leaves nothing; what is held stays, and a DEL makes room.
func TestDiskFull(t *testing.T) {
	n := newNode(t, ours(t))
	smallDisk(t, n.dir)
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/16"}]]`)
	n.must(add1("first", c))
	n.settle("net", c)
	if got := n.ls("net"); !got[spareName] {
		t.Fatalf("a directory that is quiet has no spare: %v", got)
	}
	filler := filepath.Join(n.dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fill := func() {
		for {
			if _, err := f.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
	fill()
	told := map[string]bool{"first": true}
	failed := 0
	for i := 0; failed < 5 && i < 2000; i++ {
		name := fmt.Sprint("container-with-a-long-name-so-that-pages-fill-", i)
		a := n.call(add1(name, c))
		if a.code == 0 {
			told[name] = true
		} else if f := a.failure(); f.Code == 5 && strings.Contains(f.Msg, "no space left") {
			failed++
		} else {
			t.Fatal(a)
		}
	}
	if failed == 0 {
		t.Fatal("there was always room")
	}
	// A DEL never fails for want of space, with the disk as full as it can be.
	fill()
	for i := range 20 {
		name := fmt.Sprint("container-with-a-long-name-so-that-pages-fill-", i)
		if told[name] {
			n.must(del1(name, c))
			delete(told, name)
			fill()
		}
	}
	t.Logf("the spare was needed: %v", !n.ls("net")[spareName])
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s := n.state("net")
	if len(s.Holdings) != len(told) {
		t.Fatalf("%d held, %d told", len(s.Holdings), len(told))
	}
	for _, h := range s.Holdings {
		if !told[h.Attachment.Container] {
			t.Fatalf("%s holds %v and was told that it does not", h.Attachment, h.Addresses)
		}
		n.must(del1(h.Attachment.Container, c))
	}
	n.must(add1("last", c))
}

// TestSpare: a release for which there is no room gives the spare back and tries again, once;
// when the directory is quiet, there is a spare again.
func TestSpare(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	p := place{dir: filepath.Join(n.dir, "net"), network: "net", tool: true}
	for _, want := range []int{1, 2} { // without a spare, and with one
		calls := 0
		err := p.releasing(func(*state) error {
			calls++
			if n.ls("net")[spareName] {
				return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
			}
			if want == 1 {
				return syscall.ENOSPC
			}
			return nil
		})
		if calls != want || (err == nil) != (want == 2) {
			t.Fatalf("%d calls, want %d: %v", calls, want, err)
		}
		n.settle("net", c)
		if !n.ls("net")[spareName] {
			t.Fatal("no spare")
		}
	}
	n.must(del1("a", c))
}
