package plugin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// TestExportOnFullDisk: an export for which there is no room changes nothing, and so does an
// uninstall; when there is room, both go through.
func TestExportOnFullDisk(t *testing.T) {
	_, fs := mounted(t, 8<<20)
	n := &node{TB: t, dir: fs, bin: ours(t)}
	c := conf("net", one24)
	for i := range 40 {
		n.must(add1(fmt.Sprint("c", i), c))
	}
	n.settle("net", c)
	plugins := t.TempDir()
	dest := filepath.Join(plugins, pluginName)
	if err := copyFile(other(t, binaries.HostLocal), dest); err != nil {
		t.Fatal(err)
	}
	n.mustWord(dest+": installed\n", "install", plugins)
	fill := filepath.Join(fs, "fill")
	command("dd", "if=/dev/zero", "of="+fill, "bs=4k")
	if err := command("sync", "-f", fs); err != nil {
		t.Fatal(err)
	}
	before := n.ls("net")
	for _, args := range [][]string{{"export"}, {"uninstall", plugins}} {
		if a := n.word(args...); a.code != 1 || !strings.Contains(a.stderr, "no space left") {
			t.Errorf("%v: %+v", args, a)
		}
		if after := n.ls("net"); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%v: %v, was %v", args, after, before)
		}
		n.must(invocation{verb: "CHECK", container: "c1", ifname: "eth0", conf: c})
	}
	n.must(del1("c0", c))
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	n.mustWord("net: wrote back 39 attachments\n"+dest+": the original is back\n", "uninstall", plugins)
}

// TestPlantedNames: nothing is written through a link, and nothing waits for a pipe, at a name that a word writes to.
func TestPlantedNames(t *testing.T) {
	n := newNode(t, ours(t))
	victim := filepath.Join(t.TempDir(), "victim")
	n.put(victim, "as it was")
	n.put(victim+".empty", "")
	unharmed := func(what string) {
		t.Helper()
		for path, want := range map[string]string{victim: "as it was", victim + ".empty": ""} {
			if b, err := os.ReadFile(path); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v", what, b, err)
			}
		}
		if _, err := os.Lstat(victim + ".none"); err == nil {
			t.Errorf("%s: the target of a link was made", what)
		}
	}
	plant := func(network, name, kind string) {
		t.Helper()
		path := filepath.Join(n.dir, network, name)
		os.Remove(path)
		var err error
		if kind == "pipe" {
			err = syscall.Mkfifo(path, 0o600)
		} else {
			err = os.Symlink(victim+kind, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, kind := range []string{"", ".empty", ".none", "pipe"} {
		for _, name := range []string{"10.1.2.2", cursorPrefix + "0", spareName} {
			network := fmt.Sprint("net", i, "-", strings.ReplaceAll(name, ".", "-"))
			c := conf(network, one24)
			n.must(add1("a", c))
			plant(network, name, kind)
			done := make(chan answer, 1)
			go func() { done <- n.word("export", network) }()
			select {
			case a := <-done:
				if legacy := name[0] != 'i'; legacy != (a.code == 1) {
					t.Errorf("%s as %q: %+v", name, kind, a)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s as %q: the word waits", name, kind)
			}
			n.call(del1("a", c))
			unharmed(fmt.Sprintf("%s as %q", name, kind))
		}
	}
	// The record beside an installed program.
	n = newNode(t, n.bin)
	plugins := t.TempDir()
	n.put(filepath.Join(plugins, pluginName), "the original")
	if err := os.Symlink(victim, filepath.Join(plugins, pluginName+recordSuffix)); err != nil {
		t.Fatal(err)
	}
	if a := n.word("install", plugins); a.code != 0 {
		t.Errorf("%+v", a)
	}
	if a := n.word("uninstall", plugins); a.code != 0 {
		t.Errorf("%+v", a)
	}
	unharmed("install")
}

// TestInstallAfterKill: what an install that was killed left is no obstacle to the next one, which
// in a container has the same process id.
func TestInstallAfterKill(t *testing.T) {
	bin := t.TempDir()
	dest := filepath.Join(bin, pluginName)
	n := newNode(t, ours(t))
	for _, suffix := range []string{"", ".new-", ".kept-", recordSuffix + ".new-"} {
		if suffix != "" {
			suffix += fmt.Sprint(os.Getpid())
		}
		n.put(dest+suffix, "some program")
	}
	w := word{dataDirs: []string{n.dir}, stdout: io.Discard}
	done := make(chan error, 1)
	go func() { done <- w.install([]string{bin}) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it tries again and again")
	}
	if theirs, err := isTheirs(dest); err != nil || theirs {
		t.Errorf("not installed: %v", err)
	}
	if b, err := os.ReadFile(dest + originalSuffix); err != nil || string(b) != "some program" {
		t.Errorf("kept %q, %v", b, err)
	}
	if err := w.uninstall([]string{bin}); err != nil {
		t.Error(err)
	}
	var left []string
	entries, _ := os.ReadDir(bin)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{pluginName, pluginName + recordSuffix}) {
		t.Errorf("left: %v", left)
	}
}

// TestUninstallOutlastsCalls: a call of this plugin that had begun before the original was back,
// and is about to take over or make a network after all were given back, leaves that to host-local.
func TestUninstallOutlastsCalls(t *testing.T) {
	s := newServed(t)
	slow := (&node{TB: t, dir: s.dir, bin: s.dest}).traced("delay=mkdirat:1500ms")
	c := conf("late", one24)
	done := make(chan answer, 1)
	go func() { a, _ := slow.start(add1("late", c), time.Hour); done <- a }()
	time.Sleep(300 * time.Millisecond) // it has begun, and has made nothing
	if a := s.word("uninstall", s.plugins); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	if told := <-done; told.code == 0 { // it ended before the programs were exchanged
		(&node{TB: t, dir: s.dir, bin: s.dest}).must(invocation{verb: "CHECK", container: "late", ifname: "eth0", conf: c})
	} else if told.failure().Code != 11 { // the runtime repeats it
		t.Errorf("%+v", told)
	}
	s.networks = append(s.networks, "late")
	s.serves(0, true)
}

// TestWrongDirectory: a word that is given the directory above that of the networks, or one of
// something else, makes nothing there, and uninstall says that it found no network.
func TestWrongDirectory(t *testing.T) {
	s := newServed(t)
	right := s.dir
	above := filepath.Join(filepath.Dir(right), "above")
	if err := os.Mkdir(above, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(right, filepath.Join(above, "networks")); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(filepath.Join(above, "networks"), right)
	s.dir = above
	before := fingerprint(t, above)
	for _, args := range [][]string{{"export"}, {"check"}, {"check", "networks"}, {"show"}, {"uninstall", "-n", s.plugins}} {
		a := s.word(args...)
		if a.code != 0 {
			t.Errorf("%v: %+v", args, a)
		}
		if after := fingerprint(t, above); !slices.Equal(after, before) {
			t.Fatalf("%v changed\n%s\nto\n%s", args, strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		if args[0] == "uninstall" && !strings.Contains(a.stdout, "no network of this plugin in "+above) {
			t.Errorf("%+v", a)
		}
	}
}

// TestWordsOfAnotherUser: a word of a user who may not write says so before it changes anything.
func TestWordsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, needs root to become another user")
	}
	s := newServed(t)
	for _, dir := range []string{s.dir, s.plugins, scratch} {
		for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			os.Chmod(dir, 0o755)
		}
	}
	list := filepath.Join(s.dir, "list")
	s.put(list, "q\n# end\n")
	before := append(fingerprint(t, s.dir), fingerprint(t, s.plugins)...)
	for _, args := range [][]string{{"gc", "-drained", "a"}, {"gc", "a", "p"}, {"install", s.plugins}, {"uninstall", "-n", s.plugins}, {"uninstall", s.plugins}} {
		cmd := s.command([]string{"PATH=" + os.Getenv("PATH")}, append([]string{args[0], "-data-dir", s.dir}, args[1:]...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if args[0] == "install" { // it is installed already
			continue
		}
		if err == nil || !bytes.Contains(out, []byte("permission denied")) {
			t.Errorf("%v: %s", args, out)
		}
	}
	if after := append(fingerprint(t, s.dir), fingerprint(t, s.plugins)...); !slices.Equal(after, before) {
		t.Fatalf("changed\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
