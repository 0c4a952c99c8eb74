package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

// lab is a few network namespaces: a host and two containers.
type lab struct {
	*testing.T
	host, a, b string
}

// newLab makes the namespaces, or skips the test where that is not allowed.
func newLab(t *testing.T) *lab {
	t.Helper()
	ip, err := exec.LookPath("ip")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("SKIPPED, needs root and the program ip:", err)
	}
	l := &lab{T: t}
	for i, at := range []*string{&l.host, &l.a, &l.b} {
		*at = fmt.Sprintf("cni-ipam-%d-%d", os.Getpid(), i)
		if out, err := exec.Command(ip, "netns", "add", *at).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED, namespaces can't be made here: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command(ip, "netns", "del", *at).CombinedOutput(); err != nil {
				t.Errorf("ip netns del: %v: %s", err, out)
			}
		})
	}
	if out, err := exec.Command(ip, "-n", l.host, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, namespaces can't be made here: %v: %s", err, out)
	}
	return l
}

func nsPath(name string) string { return filepath.Join("/var/run/netns", name) }

// inHost runs a script in the host's namespace, with a directory of its own where libcni keeps its results.
func (l *lab) inHost(env []string, script string) (string, error) {
	cmd := exec.Command("ip", "netns", "exec", l.host, "sh", "-ec", "mkdir -p /var/lib/cni && mount --bind \"$RESULTS\" /var/lib/cni\n"+script)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
	}
	return string(out), err
}

// in calls f in a namespace.
func (l *lab) in(name string, f func() error) {
	l.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		ns, err := netns.GetFromName(name)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		l.Fatalf("in %s: %v", name, err)
	}
}

// ping sends echo requests from a namespace to an address until one is answered.
func (l *lab) ping(from, to string) {
	l.Helper()
	l.in(from, func() error {
		network, request, reply := "ip4:icmp", byte(8), byte(0)
		if strings.Contains(to, ":") {
			network, request, reply = "ip6:ipv6-icmp", 128, 129
		}
		c, err := net.Dial(network, to)
		if err != nil {
			return err
		}
		defer c.Close()
		const patience = time.Minute // a hang guard
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := c.Write(echo(request)); err != nil {
				continue // an IPv6 address may still be looked for twice
			}
			if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				return err
			}
			buf := make([]byte, 1500)
			for {
				n, err := c.Read(buf)
				if err != nil {
					break // ask once more
				}
				answer := buf[:n]
				if request == 8 && n > 0 { // IPv4 comes with its header
					answer = answer[min(n, int(answer[0]&15)*4):]
				}
				if len(answer) > 0 && answer[0] == reply {
					return nil
				}
			}
		}
		return fmt.Errorf("no answer from %s", to)
	})
}

// echo returns an echo request. The kernel fills in the checksum of IPv6.
func echo(kind byte) []byte {
	m := []byte{kind, 0, 0, 0, 0x12, 0x34, 0, 1}
	if kind == 8 {
		sum := uint32(kind)<<8 + 0x1234 + 1
		binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	}
	return m
}

// TestNamespaces has cnitool call the real bridge and ptp plugins, which leave the addresses to this one, for two namespaces
// that then ping each other.
func TestNamespaces(t *testing.T) {
	tool := other(t, "cnitool")
	for _, main := range []string{
		`"type":"bridge","bridge":"cni0","isGateway":true`,
		`"type":"ptp"`,
	} {
		t.Run(strings.Split(main, `"`)[3], func(t *testing.T) {
			l := newLab(t)
			n := newNode(t, ours(t))
			confs, results := t.TempDir(), t.TempDir()
			list := strings.ReplaceAll(`{"cniVersion":"1.1.0","name":"lab","plugins":[{`+main+`,"ipam":{"type":"host-local","dataDir":"%DIR%",
				"ranges":[[{"subnet":"10.123.45.0/24"}],[{"subnet":"fd00:123::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}`, "%DIR%", n.dir)
			if err := os.WriteFile(filepath.Join(confs, "lab.conflist"), []byte(list), 0o644); err != nil {
				t.Fatal(err)
			}
			env := []string{"TOOL=" + tool, "NETCONFPATH=" + confs, "CNI_PATH=" + pluginDir(t, "bridge", "ptp"), "RESULTS=" + results, "A=" + nsPath(l.a), "B=" + nsPath(l.b)}
			call := func(script string) string {
				t.Helper()
				out, err := l.inHost(env, script)
				if err != nil {
					t.Fatalf("%s: %v", script, err)
				}
				return out
			}
			call(`"$TOOL" status lab "$A"`)
			first := call(`"$TOOL" add lab "$A"`)
			second := call(`"$TOOL" add lab "$B"`)
			for _, want := range []struct{ out, address string }{{first, "10.123.45.2/24"}, {first, "fd00:123::2/64"}, {second, "10.123.45.3/24"}, {second, "fd00:123::3/64"}} {
				if !strings.Contains(want.out, want.address) {
					t.Fatalf("%s: no %s", want.out, want.address)
				}
			}
			l.ping(l.a, "10.123.45.3")
			l.ping(l.b, "10.123.45.2")
			l.ping(l.a, "fd00:123::3")
			l.ping(l.b, "fd00:123::2")
			call(`"$TOOL" check lab "$A" && "$TOOL" check lab "$B"`)
			call(`"$TOOL" del lab "$B"`)
			if _, err := l.inHost(env, `"$TOOL" check lab "$B"`); err == nil {
				t.Fatal("check after del")
			}
			if s := n.state("lab"); len(s.Holdings) != 1 || len(s.Holdings[0].Addresses) != 2 {
				t.Fatal(s)
			}
			call(`"$TOOL" gc lab "$A"`) // without arguments cnitool deletes what is cached
			if s := n.state("lab"); len(s.Holdings) != 0 {
				t.Fatal(s)
			}
		})
	}
}
