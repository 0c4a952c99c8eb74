//go:build unix

package plugin

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fingerprint returns every entry below a directory with its type, mode, time of change,
// link and content.
func fingerprint(t testing.TB, dir string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link, _ := os.Readlink(path)
		sum := [32]byte{}
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(b)
		}
		lines = append(lines, fmt.Sprintf("%s %v %v %q %x", path, info.Mode(), info.ModTime().UnixNano(), link, sum))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestLookingChangesNothing: no word that looks changes a byte or a time, whether host-local
// has the network, this plugin, both in part, or neither; and host-local goes on where it was.
func TestLookingChangesNothing(t *testing.T) {
	n := newNode(t, other(t, "host-local"))
	c := conf("net", one24)
	for _, name := range []string{"a", "b"} {
		n.must(add1(name, c))
	}
	mine := newNode(t, ours(t))
	mine.dir = n.dir
	mine.must(add1("m", conf("taken", one24)))
	mine.must(add1("live", conf("taken", one24)))
	if err := os.WriteFile(filepath.Join(n.dir, "taken", "10.1.2.9"), []byte("late\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	mine.must(add1("x", conf("given", one24)))
	mine.mustWord("given: wrote back 1 attachments\n", "export", "given")
	if err := os.MkdirAll(filepath.Join(n.dir, "foreign", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "foreign", "README"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("live\n# end\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(list, later, later); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, n.dir)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"show"}, []string{"net    10.1.2.2  a     eth0  host-local\n", "taken  10.1.2.2  m     eth0  cni-ipam\n", "taken  10.1.2.9  late  eth0  host-local\n", "given  10.1.2.2  x     eth0  host-local\n"}},
		{[]string{"show", "-o", "json"}, []string{`"network": "taken"`, `"by": "cni-ipam"`, `"attachments": 3`, `"addresses": 3`, `"container": "m"`, `"0": "10.1.2.3"`}},
		{[]string{"check"}, []string{"net: ok, not taken over: 2 attachments in 3 files of host-local\n", "given: ok, not taken over: 1 attachments in 2 files of host-local\n",
			"taken: ok, 2 attachments, and 1 attachments in 1 files of host-local to be taken over by the next call\n", "foreign: ok, not taken over: 0 attachments in 0 files of host-local\n"}},
		{[]string{"export", "-n"}, []string{"taken: would write back 2 attachments\n"}},
		{[]string{"gc", "-n", "-max", "1", "-keep", list, "taken"}, []string{"taken: would release 10.1.2.2 of m/eth0\n"}},
		{[]string{"gc", "-n", "taken", "10.1.2.2"}, []string{"taken: would release 10.1.2.2 of m/eth0\n"}},
	} {
		a := n.word(c.args...)
		for _, want := range c.want {
			if a.code != 0 || !strings.Contains(a.stdout, want) {
				t.Errorf("%v: %d %q, want %q\n%s", c.args, a.code, a.stdout, want, a.stderr)
			}
		}
		if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
			t.Fatalf("%v changed\n%s\nto\n%s", c.args, strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	}
	if got := n.must(add1("c", c)).addresses(t); got[0] != "10.1.2.4/24" {
		t.Fatal(got)
	}
	n.must(invocation{verb: "CHECK", container: "a", ifname: "eth0", conf: c})
}

// TestOriginalAfterTakeover: something puts host-local back beside this plugin. Each of its
// calls on a network that was taken over fails and changes nothing, and those on other
// networks work.
func TestOriginalAfterTakeover(t *testing.T) {
	n := newNode(t, other(t, "host-local"))
	theirs, mine := n.bin, ours(t)
	c := conf("net", `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]`)
	for i := range 3 {
		n.must(add1(fmt.Sprint("a", i), c))
	}
	n.bin = mine
	n.must(add1("b", c))
	n.must(add1("b", conf("fresh", one24))) // host-local has never been there
	n.bin = theirs
	before := fingerprint(t, n.dir)
	for _, network := range []string{"net", "fresh"} {
		c := strings.Replace(c, `"net"`, `"`+network+`"`, 1)
		for _, i := range []invocation{add1("new", c), del1("a0", c), add1("a0", c), {verb: "CHECK", container: "a1", ifname: "eth0", conf: c}} {
			if a := n.call(i); a.code == 0 || !strings.Contains(a.stdout, "is a directory") {
				t.Errorf("%s: %d %s", i, a.code, a.stdout)
			}
		}
	}
	if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
		t.Fatalf("host-local changed\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	n.must(add1("other", conf("other", one24)))

	n.bin = mine
	n.mustWord("net: wrote back 4 attachments\n", "export", "net")
	n.bin = theirs
	if got := n.must(add1("c", c)).addresses(t); got[0] != "10.1.2.6/24" {
		t.Fatal(got)
	}
}

// TestTakenFiles: files that were taken over are moved aside until the next boot.
func TestTakenFiles(t *testing.T) {
	n := newNode(t, ours(t))
	boot := filepath.Join(n.dir, "boot_id")
	c := conf("net", one24+`,"bootIDFile":"%DIR%/boot_id"`)
	for round, finish := range []func(){
		func() {
			if err := os.WriteFile(boot, []byte("two"), 0o600); err != nil {
				t.Fatal(err)
			}
			n.must(del1("nobody", c))
		},
	} {
		if err := os.WriteFile(boot, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.must(add1(fmt.Sprint("new", round), c))
		late := fmt.Sprint("10.1.2.", 90+round)
		if err := os.WriteFile(filepath.Join(n.dir, "net", late), []byte(fmt.Sprint("late", round, "\r\neth0")), 0o600); err != nil {
			t.Fatal(err)
		}
		n.must(del1("nobody", c))
		aside := filepath.Join(n.dir, "net", takenName, late)
		if b, err := os.ReadFile(aside); err != nil || !strings.HasPrefix(string(b), "late") {
			t.Fatal(string(b), err)
		}
		n.must(del1("nobody", c))
		if _, err := os.Stat(aside); err != nil {
			t.Fatal(err)
		}
		finish()
		if _, err := os.Stat(filepath.Join(n.dir, "net", takenName)); !os.IsNotExist(err) {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	// An address that another attachment holds is not taken over, and the log does not say so.
	if err := os.WriteFile(filepath.Join(n.dir, "net", "10.1.2.2"), []byte("thief\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := n.must(del1("nobody", c)); strings.Contains(a.stderr, "took over") || !strings.Contains(a.stderr, "the file stays where it is") {
		t.Fatal(a.stderr)
	}
}

// TestOriginalWaitsAtTakeover: a call of host-local that waits for its lock while the network
// is taken over ends before this plugin hands out anything, and sees what is held.
func TestOriginalWaitsAtTakeover(t *testing.T) {
	n := newNode(t, other(t, "host-local"))
	c := conf("net", one24)
	n.must(add1("a", c))
	f, err := os.Open(filepath.Join(n.dir, "net", guardName))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	mine := &node{TB: t, dir: n.dir, bin: ours(t)}
	results := make(chan answer, 2)
	go func() { a, _ := mine.start(add1("mine", c), time.Hour); results <- a }()
	time.Sleep(200 * time.Millisecond)
	go func() { a, _ := n.start(add1("theirs", c), time.Hour); results <- a }()
	time.Sleep(200 * time.Millisecond)
	f.Close()
	seen := map[string]bool{"10.1.2.2/24": true}
	for range 2 {
		a := <-results
		if a.code != 0 {
			if !strings.Contains(a.stdout, "is a directory") {
				t.Error(a)
			}
			continue
		}
		if got := a.addresses(t)[0]; seen[got] {
			t.Errorf("%s twice", got)
		} else {
			seen[got] = true
		}
	}
	mine.must(del1("nobody", c))
	if got := heldOf(mine.state("net")).owners; len(got) != len(seen) {
		t.Errorf("%v, want %v", got, seen)
	}
}

// TestKilledCreation: what a call leaves that is killed while it makes a network goes with
// the next one.
func TestKilledCreation(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	for i := range 40 {
		n.start(add1("a", c), time.Duration(i*50)*time.Microsecond)
	}
	dir := filepath.Join(n.dir, "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stateName + ".0123abcd.new", guardName + ".new"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.must(del1("a", c))
	n.must(add1("b", c))
	for name := range n.ls("net") {
		if !slices.Contains([]string{guardName, lockName, stateName, bootName, spareName}, name) {
			t.Error(name)
		}
	}
}

// TestNoSyncs: no call of the plugin asks the disk to write, not even the one that makes a
// network.
func TestNoSyncs(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED, there is no strace here:", err)
	}
	n := newNode(t, ours(t))
	log := filepath.Join(n.dir, "log")
	for _, i := range []invocation{add1("a", conf("net", one24)), add1("b", conf("net", one24)), del1("a", conf("net", one24))} {
		cmd := exec.Command(strace, "-f", "-o", log, "-e", "trace=fsync,fdatasync,msync,sync,syncfs,sync_file_range", n.bin)
		cmd.Env = i.environment()
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir))
		if out, err := cmd.Output(); err != nil {
			t.Skipf("SKIPPED, strace does not work here: %v %s", err, out)
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "sync(") || strings.Contains(string(b), "sync_file") {
			t.Errorf("%s: %s", i.verb, b)
		}
	}
}
