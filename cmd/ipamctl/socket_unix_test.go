//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A change beside a service on bbolt goes through its socket, which only its user reaches, and survives kill -9 of it. A client that
// goes away ends its watch, and the next service takes the place of the socket.
func TestBesideService(t *testing.T) {
	name := newBolt(t, cluster(t))
	path := strings.TrimPrefix(name, "bolt://")
	start := func() *exec.Cmd {
		t.Helper()
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "IPAMCTL_SERVICE="+path)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for {
			if in, err := net.Dial("unix", path+".sock"); err == nil {
				in.Close()
				return c
			}
			if err := wait(t.Context(), 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(want int, store, line string) string {
		t.Helper()
		status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": store}, strings.Fields(line)...)
		if status != want {
			t.Fatalf("%s: status %d\n%s%s", line, status, out, stderr)
		}
		return out + stderr
	}
	socket := "unix://" + path + ".sock"
	run(exitNotFound, socket, "pool list")
	c := start()
	if info, err := os.Stat(path + ".sock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	run(exitUnavailable, name, "release 10.1.0.0 --if-handle web-0")
	run(exitOK, socket, "assign --host x --handle beside 10.1.0.100")
	run(exitOK, socket, "pool set lb --priority 3")
	run(exitOK, socket, "watch --timeout 200ms")
	run(exitOK, socket, "check")
	run(exitOK, socket, "diff "+name)
	run(exitConflict, socket, "assign --host y --handle other 10.1.0.100")
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	run(exitUnavailable, socket, "pool list")
	c = start()
	if out := run(exitOK, socket, "show 10.1.0.100"); !strings.Contains(out, "beside") {
		t.Error(out)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	run(exitOK, name, "check")
}
