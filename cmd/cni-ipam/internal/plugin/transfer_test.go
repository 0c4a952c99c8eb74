package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// word calls the plugin as a person does.
func (n *node) word(args ...string) answer {
	n.Helper()
	args = append([]string{args[0], "-data-dir", n.dir}, args[1:]...)
	mine := *n
	if filepath.Base(n.bin) != "cni-ipam" {
		mine.bin = ours(n)
	}
	if args[0] == "export" { // what an uninstall does where the original is in place
		args = append([]string{"uninstall", n.originals()}, args[1:]...)
	}
	cmd := mine.command([]string{"PATH=" + os.Getenv("PATH")}, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Run()
	return answer{cmd.ProcessState.ExitCode(), out.String(), log.String()}
}

// originals returns a directory of plugins with a program that is not this plugin.
func (n *node) originals() string {
	dir := n.dir + ".plugins"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, pluginName), []byte("the original"), 0o755)); err != nil {
		n.Fatal(err)
	}
	return dir
}

// takeOver makes a call, which takes over the network that it is for.
func (n *node) takeOver(network string) answer {
	mine := *n
	mine.bin = ours(n)
	return mine.call(del1("nobody", conf(network, one24)))
}

func (n *node) mustWord(want string, args ...string) {
	n.Helper()
	if a := n.word(args...); a.code != 0 || a.stdout != want {
		n.Fatalf("%v: %d %q, want %q\n%s", args, a.code, a.stdout, want, a.stderr)
	}
}

// ls returns the names in a network's directory.
func (n *node) ls(network string) map[string]bool {
	n.Helper()
	entries, err := os.ReadDir(filepath.Join(n.dir, network))
	if err != nil {
		n.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

func names(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, name := range list {
		m[name] = true
	}
	return m
}

// TestSwap goes the way of the README: host-local, then this plugin in its place, and back again.
func TestSwap(t *testing.T) {
	n := newNode(t, other(t, "host-local"))
	theirs, mine := n.bin, ours(t)
	c := conf("net", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]`)
	for i := range 4 {
		n.must(add1(fmt.Sprint("a", i), c))
	}
	n.must(del1("a1", c))
	first := n.files("net")

	n.mustWord("net: ok, not taken over: 3 attachments in 8 files of host-local\n", "check")
	n.bin = mine
	n.must(invocation{verb: "CHECK", container: "a2", ifname: "eth0", conf: c})
	if got := heldOf(n.state("net")); !got.equal(heldOf(first)) {
		t.Fatalf("%v, want %v", got, heldOf(first))
	}
	if got := n.ls("net"); !maps.Equal(got, names("lock", lockName, stateName, bootName, takenName, spareName)) {
		t.Fatal(got)
	}
	n.fails(add1("a0", c), 999, "10.1.2.2 has been allocated to a0, duplicate allocation is not allowed")
	if got := n.must(add1("b0", c)).addresses(t); got[0] != "10.1.2.6/24" || got[1] != "fd00::6/64" {
		t.Fatal(got)
	}
	n.must(del1("a0", c))
	second := n.state("net")
	n.mustWord("net  10.1.2.4  a2  eth0  cni-ipam\nnet  fd00::4   a2  eth0  cni-ipam\nnet  10.1.2.5  a3  eth0  cni-ipam\nnet  fd00::5   a3  eth0  cni-ipam\nnet  10.1.2.6  b0  eth0  cni-ipam\nnet  fd00::6   b0  eth0  cni-ipam\n", "show", "net")
	n.mustWord("net: ok, 3 attachments\n", "check")

	n.mustWord("net: wrote back 3 attachments\n", "export")
	n.mustWord("there is no network of this plugin in "+n.dir+"\n", "export")
	if got := n.ls("net"); got[stateName] || !got["10.1.2.6"] || !got["last_reserved_ip.1"] {
		t.Fatal(got)
	}
	n.bin = theirs // which goes on
	n.must(invocation{verb: "CHECK", container: "b0", ifname: "eth0", conf: c})
	if got := n.must(add1("c0", c)).addresses(t); got[0] != "10.1.2.7/24" || got[1] != "fd00::7/64" {
		t.Fatal(got)
	}
	n.must(del1("a2", c))
	if got := heldOf(n.files("net")); len(got.owners) != len(heldOf(second).owners) {
		t.Fatal(got)
	}
	n.bin = mine
	for _, container := range []string{"a3", "b0", "c0"} {
		n.must(del1(container, c))
	}
	if s := n.state("net"); len(s.Holdings) != 0 {
		t.Fatal(s)
	}
	if a := n.word("export", "../x"); a.code != 1 {
		t.Fatal(a)
	}
	if a := n.word("check", "nowhere"); a.code != 1 || n.word("fly").code != 2 {
		t.Fatal(a)
	}
}

// TestFormsOfFiles: what a directory of host-local may hold.
func TestFormsOfFiles(t *testing.T) {
	n := newNode(t, ours(t))
	dir := filepath.Join(n.dir, "net")
	if err := os.MkdirAll(filepath.Join(dir, "10.1.2.200"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"10.1.2.2": "c1\r\neth0", "10.1.2.3": "  c2\r\neth1\n", "10.1.2.4": "old", "10.1.2.5": "old2\n", "fd00::7": "c1\r\neth0",
		"10.1.2.6": "", "10.1.2.7": " \r\n", "10.1.2.8": "nul\x00\r\neth0", "10.1.2.9": "\r\neth0", "10.1.2.10": "a\r\nb\r\nc",
		"last_reserved_ip.0": "10.1.2.7", "last_reserved_ip.1": "damaged", "last_reserved_ip.01": "10.1.2.1", "last_reserved_ip.x": "10.1.2.1",
		"lock": "", "README": "10.1.2.99", "10.1.2.099": "c9\r\neth0", "::ffff:10.1.2.98": "c9\r\neth0", "FD00::8": "c9\r\neth0", "10.1.2.97": strings.Repeat("long", 2000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := conf("net", one24)
	a := n.must(add1("new", c))
	if got := a.addresses(t); got[0] != "10.1.2.11/24" {
		t.Fatal(got) // after the cursor, past what is held
	}
	want := "map[10.1.2.10:a/b\r\nc 10.1.2.11:new/eth0 10.1.2.2:c1/eth0 10.1.2.3:c2/eth1 10.1.2.4:old/ 10.1.2.5:old2/ 10.1.2.8:nul\uFFFD/eth0 10.1.2.9:eth0/ fd00::7:c1/eth0], last map[0:10.1.2.11]"
	if got := strings.ReplaceAll(fmt.Sprint(heldOf(n.state("net"))), "netip.", ""); !sameSet(got, want) {
		t.Fatalf("%s\nwant %s", got, want)
	}
	// What is not host-local's is where it was.
	if got := n.ls("net"); !maps.Equal(got, names("lock", lockName, stateName, bootName, takenName, spareName, "README", "10.1.2.099", "::ffff:10.1.2.98", "FD00::8", "10.1.2.97", "10.1.2.200",
		"last_reserved_ip.01", "last_reserved_ip.x")) {
		t.Fatal(got)
	}
	if !strings.Contains(a.stderr, "took over 7 attachments") || !strings.Contains(a.stderr, "without a name: 10.1.2.6 10.1.2.7") {
		t.Fatal(a.stderr)
	}
	n.must(del1("old", c)) // answers to any interface
	n.must(del1("c2", c))  // of another interface: stays
	if got := heldOf(n.state("net")).owners; len(got) != 8 {
		t.Fatal(got)
	}
	// And back: what it was, in host-local's form, and in again, with the longest name there may be.
	longest := strings.Repeat("x", 1024)
	n.must(add1(longest, c))
	if a := n.word("export"); a.code != 0 {
		t.Fatal(a)
	}
	for name, want := range map[string]string{"10.1.2.2": "c1\r\neth0", "10.1.2.5": "old2", "fd00::7": "c1\r\neth0", "last_reserved_ip.0": "10.1.2.12"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "10.1.2.2")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	n.must(invocation{verb: "CHECK", container: longest, ifname: "eth0", conf: c})
}

// sameSet compares two texts word by word.
func sameSet(a, b string) bool {
	count := map[string]int{}
	for _, w := range strings.Fields(strings.Trim(a, "map[]")) {
		count[strings.Trim(w, "map[],")]++
	}
	for _, w := range strings.Fields(strings.Trim(b, "map[]")) {
		count[strings.Trim(w, "map[],")]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// settle makes the network's directory look as if nothing had changed in it for an hour.
func (n *node) settle(network string, c string) {
	n.Helper()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(n.dir, network), past, past); err != nil {
		n.Fatal(err)
	}
	n.must(del1("nobody", c))
}

// TestLateFile: a call of host-local that had begun before the swap ends after it; and the clock may go anywhere.
func TestLateFile(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	n.settle("net", c)
	late := filepath.Join(n.dir, "net", "10.1.2.3")
	if err := os.WriteFile(late, []byte("late\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n.must(add1("b", c)).addresses(t); got[0] != "10.1.2.4/24" {
		t.Fatal(got)
	}
	if _, err := os.Stat(late); err == nil {
		t.Fatal("the late file is still there")
	}
	// An address that is taken: the file stays, aloud, and whoever has it keeps it.
	if err := os.WriteFile(filepath.Join(n.dir, "net", "10.1.2.2"), []byte("thief\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := n.must(add1("c", c)); !strings.Contains(a.stderr, "occupied, held by \"a/eth0\"") || a.addresses(t)[0] != "10.1.2.5/24" {
		t.Fatal(a)
	}
	if a := n.word("export"); a.code != 1 || !strings.Contains(a.stderr, "10.1.2.2 is there with another content") {
		t.Fatal(a)
	}
	if err := os.Remove(filepath.Join(n.dir, "net", "10.1.2.2")); err != nil {
		t.Fatal(err)
	}
	n.mustWord("net: wrote back 4 attachments\n", "export") // goes on
	n.takeOver("net")
	n.mustWord("net: ok, 4 attachments\n", "check")
	for i, offset := range []time.Duration{1000 * time.Hour, -1000 * time.Hour, time.Minute} {
		at := time.Now().Add(offset)
		if err := os.Chtimes(filepath.Join(n.dir, "net"), at, at); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.dir, "net", fmt.Sprint("10.1.2.", 6+i)), []byte("x\r\neth"+strconv.Itoa(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(n.dir, "net"), at, at); err != nil {
			t.Fatal(err)
		}
		n.must(invocation{verb: "CHECK", container: "x", ifname: "eth" + strconv.Itoa(i), conf: c})
	}
}

// manyFiles writes a directory of host-local with n attachments.
func manyFiles(t testing.TB, dir string, n int) (want held) {
	t.Helper()
	s := hostlocal.State{Cursors: map[int]netip.Addr{0: netip.MustParseAddr("10.1.0.77")}}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		s.Holdings = append(s.Holdings, hostlocal.Holding{Attachment: hostlocal.Attachment{Container: fmt.Sprint("c", i), Interface: "eth0"}, Addresses: []netip.Addr{a}})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := writeLegacy(dir, s); err != nil {
		t.Fatal(err)
	}
	return heldOf(s)
}

// TestInterruptedImport kills imports and exports until one gets through.
func TestInterruptedImport(t *testing.T) {
	files := 1500
	if testing.Short() {
		files = 400
	}
	n := newNode(t, ours(t))
	want := manyFiles(t, filepath.Join(n.dir, "net"), files)
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/16"}]]`)
	random := rand.New(rand.NewPCG(5, 5))
	// The steps grow, so that their number does not with the time that a busy machine takes.
	later := func(limit time.Duration) time.Duration {
		return limit + limit/10 + time.Duration(random.IntN(6))*time.Millisecond
	}
	kills := 0
	for round := range 2 {
		for limit := time.Millisecond; ; limit = later(limit) {
			if _, killed := n.start(del1("nobody", c), limit); !killed {
				break
			}
			kills++
		}
		if got := heldOf(n.state("net")); !got.equal(want) {
			t.Fatalf("round %d: %d held of %d", round, len(got.owners), len(want.owners))
		}
		for limit := time.Millisecond; ; limit = later(limit) {
			cmd := exec.Command(n.bin, "uninstall", n.originals(), "-data-dir", n.dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(limit, func() { cmd.Process.Kill() })
			cmd.Wait()
			timer.Stop()
			if cmd.ProcessState.ExitCode() == 0 {
				break
			}
			kills++
		}
		if got := heldOf(n.files("net")); !got.equal(want) {
			t.Fatalf("round %d: %d files of %d", round, len(got.owners), len(want.owners))
		}
	}
	t.Logf("%d imports and exports killed", kills)
}

// TestFirstUses: many first calls at once take over what is there, once.
func TestFirstUses(t *testing.T) {
	n := newNode(t, ours(t))
	want := manyFiles(t, filepath.Join(n.dir, "net"), 300)
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/16"}]]`)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if a, _ := n.start(add1(fmt.Sprint("new", i), c), time.Hour); a.code != 0 {
				t.Error(a)
			}
		}()
	}
	wg.Wait()
	got := heldOf(n.state("net"))
	for a, who := range want.owners {
		if got.owners[a] != who {
			t.Errorf("%s: %v, want %v", a, got.owners[a], who)
		}
	}
	if len(got.owners) != len(want.owners)+16 {
		t.Errorf("%d held, want %d", len(got.owners), len(want.owners)+16)
	}
}
