package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// The programs under test are the real ones, each run as a runtime runs it.

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cni-ipam-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch, defaultDataDir = dir, filepath.Join(dir, "networks")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var buildOurs = sync.OnceValues(func() (string, error) { return binaries.Ours(scratch, "cni-ipam") })

// ours returns the path of this plugin.
func ours(t testing.TB) string {
	t.Helper()
	path, err := buildOurs()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// other returns the path of a program of the CNI project; without it, the test is skipped.
func other(t testing.TB, name string) string {
	t.Helper()
	path, err := binaries.Other(name)
	if errors.Is(err, binaries.ErrUnavailable) {
		t.Skip("SKIPPED, its module cannot be had here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// invocation is one call of a plugin. %DIR% in the configuration stands for the data directory.
type invocation struct {
	verb, container, ifname, args string
	conf                          string
	env                           []string // in place of what is made of the fields above
	unset                         string   // a variable that is left out
}

// answer is what came of it.
type answer struct {
	code           int
	stdout, stderr string
}

func (i invocation) environment() []string {
	env := i.env
	if env == nil {
		env = []string{
			"CNI_COMMAND=" + i.verb, "CNI_CONTAINERID=" + i.container, "CNI_IFNAME=" + i.ifname, "CNI_ARGS=" + i.args,
			"CNI_NETNS=/no/such/namespace", "CNI_PATH=/no/such/path",
		}
	}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return i.unset != "" && strings.HasPrefix(v, i.unset+"=") })
}

func (i invocation) String() string {
	return fmt.Sprintf("%s %s/%s %q %s", i.verb, i.container, i.ifname, i.args, i.conf)
}

// node is a directory with a plugin that works in it.
type node struct {
	testing.TB
	dir, bin string
	trace    string // how its calls are traced; see traceVar
}

// command returns a run of the plugin that has not begun.
func (n *node) command(env []string, args ...string) *exec.Cmd {
	path := n.bin
	if n.trace != "" {
		path, args, env = os.Args[0], append([]string{n.bin}, args...), append(env, "CNI_IPAM_TEST_TRACE="+n.trace)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = env
	return cmd
}

func newNode(t testing.TB, bin string) *node {
	t.Helper()
	return &node{TB: t, dir: t.TempDir(), bin: bin}
}

func (n *node) call(i invocation) answer {
	n.Helper()
	cmd := n.command(i.environment())
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		n.Fatal(err)
	}
	n.clean(out.String())
	return answer{cmd.ProcessState.ExitCode(), out.String(), log.String()}
}

// clean checks that stdout has nothing or one JSON value.
func (n *node) clean(stdout string) {
	n.Helper()
	var v any
	if stdout != "" && n.bin == ours(n) && json.Unmarshal([]byte(stdout), &v) != nil {
		n.Fatalf("stdout: %s", stdout)
	}
}

// must expects a call to succeed.
func (n *node) must(i invocation) answer {
	n.Helper()
	a := n.call(i)
	if a.code != 0 {
		n.Fatalf("%s: %d, %s%s", i, a.code, a.stdout, a.stderr)
	}
	return a
}

// failure is an error as it stands on stdout.
type failure struct {
	CNIVersion   string
	Code         int
	Msg, Details string
}

// fails expects a call to fail with a code and a text.
func (n *node) fails(i invocation, code int, text string) failure {
	n.Helper()
	a := n.call(i)
	f := a.failure()
	if a.code != 1 || f.Code != code || !strings.Contains(f.Msg, text) || f.CNIVersion != "1.1.0" {
		n.Fatalf("%s: %d, %s, want code %d and %q", i, a.code, a.stdout, code, text)
	}
	return f
}

func (a answer) failure() (f failure) {
	if json.Unmarshal([]byte(a.stdout), &f) != nil {
		f.Msg = a.stdout
	}
	return f
}

// addresses returns the addresses of a result, of any version.
func (a answer) addresses(t testing.TB) (as []string) {
	t.Helper()
	var r struct {
		IPs []struct{ Address string }
		IP4 struct{ IP string }
		IP6 struct{ IP string }
	}
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, a.stdout)
	}
	for _, ip := range r.IPs {
		as = append(as, ip.Address)
	}
	for _, ip := range []string{r.IP4.IP, r.IP6.IP} {
		if ip != "" {
			as = append(as, ip)
		}
	}
	return as
}

// held is who has which address, and where each set goes on.
type held struct {
	owners  map[netip.Addr]hostlocal.Attachment
	cursors map[int]netip.Addr
}

func (h held) String() string { return fmt.Sprintf("%v, last %v", h.owners, h.cursors) }

func (h held) equal(g held) bool {
	return maps.Equal(h.owners, g.owners) && maps.Equal(h.cursors, g.cursors)
}

func heldOf(s hostlocal.State) held {
	h := held{map[netip.Addr]hostlocal.Attachment{}, s.Cursors}
	for _, g := range s.Holdings {
		for _, a := range g.Addresses {
			h.owners[a] = g.Attachment
		}
	}
	return h
}

// state reads what a node with this plugin holds; it opens what is there and changes nothing in it.
func (n *node) state(network string) hostlocal.State {
	n.Helper()
	v, err := place{dir: filepath.Join(n.dir, network), network: network}.look(true)
	if errors.Is(err, os.ErrNotExist) {
		return hostlocal.State{}
	}
	if err != nil {
		n.Fatal(err)
	}
	return v.state
}

// files reads what a node with host-local holds.
func (n *node) files(network string) hostlocal.State {
	n.Helper()
	l, err := readLegacy(filepath.Join(n.dir, network))
	if errors.Is(err, os.ErrNotExist) {
		return hostlocal.State{}
	}
	if err != nil {
		n.Fatal(err)
	}
	return l.State
}

// write replaces the files of a network.
func (n *node) write(network string, s hostlocal.State) {
	n.Helper()
	dir := filepath.Join(n.dir, network)
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
	if err == nil {
		_, err = writeLegacy(dir, s)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// conf returns a configuration of version 1.1.0 for a network with the given ipam keys and more.
func conf(network, ipam string, more ...string) string {
	extra := ""
	for _, m := range more {
		extra += "," + m
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"bridge"%s,"ipam":{"type":"host-local","dataDir":"%%DIR%%",%s}}`, network, extra, ipam)
}

const one24 = `"ranges":[[{"subnet":"10.1.2.0/24"}]]`

func add1(container, conf string) invocation {
	return invocation{verb: "ADD", container: container, ifname: "eth0", conf: conf}
}

func del1(container, conf string) invocation {
	return invocation{verb: "DEL", container: container, ifname: "eth0", conf: conf}
}
