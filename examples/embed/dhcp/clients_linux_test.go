package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wires are a server's network namespace and one of each client, joined by a bridge.
type wires struct {
	*testing.T
	server string
	dir    string
	said   *bufio.Reader // lines of the server
	cmd    *exec.Cmd
}

func (w *wires) ip(args ...string) {
	w.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

func newWires(t *testing.T, clients ...string) *wires {
	for _, program := range []string{"ip", "dhclient", "udhcpc"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED, needs root and the program %s: %v", program, err)
		}
	}
	w := &wires{T: t, dir: t.TempDir(), server: fmt.Sprintf("dhcp-%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", w.server).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, namespaces can't be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { w.ip("netns", "del", w.server) })
	w.ip("-n", w.server, "link", "add", "br0", "type", "bridge")
	w.ip("-n", w.server, "addr", "add", "192.168.1.1/24", "dev", "br0")
	w.ip("-n", w.server, "link", "set", "br0", "up")
	for i, c := range clients {
		w.ip("netns", "add", w.ns(c))
		t.Cleanup(func() { w.ip("netns", "del", w.ns(c)) })
		w.ip("-n", w.server, "link", "add", "to-"+c, "type", "veth", "peer", "name", "eth0", "netns", w.ns(c))
		w.ip("-n", w.server, "link", "set", "to-"+c, "master", "br0", "up")
		w.ip("-n", w.ns(c), "link", "set", "eth0", "address", fmt.Sprintf("02:00:00:00:00:%02x", i+1))
		w.ip("-n", w.ns(c), "link", "set", "eth0", "up")
	}
	w.start()
	t.Cleanup(func() { w.kill() })
	return w
}

func (w *wires) ns(client string) string { return w.server + "-" + client }

// start starts the server: the test binary, which then is the program.
func (w *wires) start() {
	w.Helper()
	w.cmd = exec.Command("ip", "netns", "exec", w.server, os.Args[0])
	w.cmd.Env = append(os.Environ(), serverVariable+"=-interface br0 -range 192.168.1.100-192.168.1.102 "+
		"-reserve 02:00:00:00:00:01=192.168.1.9 -file "+filepath.Join(w.dir, "leases.db"))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	w.said = bufio.NewReader(out)
	w.until("serving")
}

func (w *wires) kill() {
	_ = w.cmd.Process.Kill() // ip has replaced itself by the server
	_, _ = io.Copy(io.Discard, w.said)
	_ = w.cmd.Wait()
}

// until reads what the server says up to a line that contains all words.
func (w *wires) until(words ...string) {
	w.Helper()
	for {
		line, err := w.said.ReadString('\n')
		if err != nil {
			w.Fatalf("the server ended before it said %q: %v", words, err)
		}
		w.Log(strings.TrimSpace(line))
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return
		}
	}
}

// script sets the address that a client of either kind has got.
const script = `#!/bin/sh
case "$reason$1" in
BOUND|RENEW|REBIND|REBOOT) ip addr replace "$new_ip_address/24" dev "$interface" ;;
bound|renew) ip addr replace "$ip/24" dev "$interface" ;;
*) ip addr flush dev "$interface" ;;
esac
`

// client returns a DHCP client in a client's namespace. It is killed at the end of the test.
func (w *wires) client(name, program string, args ...string) *exec.Cmd {
	w.Helper()
	path := filepath.Join(w.dir, "script")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		w.Fatal(err)
	}
	flags := []string{"-i", "eth0", "-f", "-s", path}
	if program == "dhclient" { // with a lease in its file it begins in INIT-REBOOT
		flags = []string{"-1", "-v", "-sf", path, "-lf", filepath.Join(w.dir, name+".leases"), "-pf", filepath.Join(w.dir, name+".pid"), "eth0"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	w.Cleanup(cancel)
	c := exec.CommandContext(ctx, "ip", slices.Concat([]string{"netns", "exec", w.ns(name), program}, args, flags)...)
	c.WaitDelay = time.Second // dhclient leaves a process behind that has its output
	return c
}

// run runs a client to its end, which must say so.
func (w *wires) run(c *exec.Cmd, say string) {
	w.Helper()
	out, err := c.CombinedOutput()
	if !strings.Contains(string(out), say) {
		w.Errorf("%v does not say %q: %v: %s", c.Args, say, err, out)
	}
}

// has waits until a client has set its address.
func (w *wires) has(client, address string) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.Command("ip", "-n", w.ns(client), "addr", "show", "dev", "eth0").CombinedOutput()
		if strings.Contains(string(out), address+"/") {
			return
		}
		if err != nil || time.Now().After(deadline) {
			w.Fatalf("%s has no %s: %v: %s", client, address, err, out)
		}
	}
}

// once are the flags of a udhcpc that ends with its lease, or after ten seconds without one.
var once = []string{"-q", "-n", "-t", "10", "-T", "1"}

// Two kinds of clients bind, renew, reboot, decline, release, find no address, and meet a server that was killed.
func TestRealClients(t *testing.T) {
	w := newWires(t, "a", "b", "c", "d", "e")
	ack := func(a string) []string { return []string{"REQUEST", a, "ACK"} }

	a := w.client("a", "udhcpc") // reserved by its hardware address
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	w.until(ack("192.168.1.9")...)
	w.has("a", "192.168.1.9") // it renews from there
	for _, step := range []struct {
		signal os.Signal
		says   []string
	}{
		{syscall.SIGUSR1, ack("192.168.1.9")},
		{syscall.SIGUSR2, []string{"RELEASE", "192.168.1.9", "done"}},
	} {
		if err := a.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		w.until(step.says...)
	}
	_ = a.Process.Kill()
	_ = a.Wait()
	w.run(w.client("a", "udhcpc", once...), "lease of 192.168.1.9 obtained") // the reservation has outlived the release

	w.run(w.client("b", "dhclient"), "bound to 192.168.1.100")
	w.run(w.client("b", "dhclient", "-x"), "") // ends without a release, as at a shutdown
	w.run(w.client("b", "dhclient"), "DHCPACK of 192.168.1.100")
	w.until(ack("192.168.1.100")...)
	w.until(ack("192.168.1.100")...)

	w.ip("-n", w.server, "addr", "add", "192.168.1.101/32", "dev", "br0") // something that knows no DHCP
	w.run(w.client("c", "udhcpc", append(once, "-a2000")...), "lease of 192.168.1.102 obtained")
	w.until("DECLINE", "192.168.1.101", "done")

	w.run(w.client("d", "udhcpc", append(once, "-t", "2")...), "no lease, failing")
	w.until("02:00:00:00:00:04 DISCOVER", "not enough addresses")

	w.run(w.client("b", "dhclient", "-r"), "DHCPRELEASE of 192.168.1.100")
	w.until("RELEASE", "192.168.1.100", "done")

	w.kill()
	w.start()
	w.run(w.client("c", "udhcpc", append(once, "-r", "192.168.1.102")...), "lease of 192.168.1.102 obtained")

	// A client with a valid lease of another server on this wire keeps it: no NAK.
	lease := `lease { interface "eth0"; fixed-address 192.168.1.200; option dhcp-server-identifier 192.168.1.2; option dhcp-lease-time 864000;
		renew 5 2036/01/01 00:00:00; rebind 5 2036/01/01 00:00:00; expire 5 2036/01/01 00:00:00; }`
	if err := os.WriteFile(filepath.Join(w.dir, "e.leases"), []byte(lease), 0o600); err != nil {
		t.Fatal(err)
	}
	e := w.client("e", "dhclient", "-d")
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	w.until("REQUEST", "192.168.1.200", "no answer")
	_ = e.Process.Kill()
	_ = e.Wait()
}
