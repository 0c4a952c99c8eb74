package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// edition builds this plugin as it would be with other forms of records, in a directory of its own.
func edition(t *testing.T, forms ...string) *node {
	t.Helper()
	dir := t.TempDir()
	bin, err := binaries.Ours(dir, "cni-ipam", forms...)
	if err != nil {
		t.Fatal(err)
	}
	return &node{TB: t, dir: filepath.Join(dir, "networks"), bin: bin}
}

// TestUpgradeOfForms goes from an edition that writes form 1 over one that reads form 2 to one that writes it, and back by one,
// under calls, as the update of a DaemonSet does. An edition that cannot read what is there replaces nothing.
func TestUpgradeOfForms(t *testing.T) {
	reads, writes := edition(t, "12"), edition(t, "22")
	first := newNode(t, ours(t))
	plugins := t.TempDir()
	dest := filepath.Join(plugins, pluginName)
	if err := copyFile(other(t, binaries.HostLocal), dest); err != nil {
		t.Fatal(err)
	}
	install := func(e *node) answer {
		m := &node{TB: t, dir: first.dir, bin: e.bin}
		return m.shownBy("install", "-data-dir", first.dir, plugins)
	}
	if a := install(first); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	at, c := &node{TB: t, dir: first.dir, bin: dest}, conf("net", one24)
	s := &handoverStorm{T: t, told: map[string]string{}}
	s.call(at, "ADD", "rest", c)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for w := range 3 {
		callers.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
					s.call(at, map[bool]string{false: "ADD", true: "DEL"}[k%2 == 1], fmt.Sprint("w", w, "-", k/2%3), c)
				}
			}
		})
	}
	for i, e := range []*node{reads, writes, reads, writes} {
		if a := install(e); a.code != 0 {
			t.Errorf("step %d: %+v", i, a)
		}
		if same, err := sameContent(e.bin, dest); err != nil || !same {
			t.Errorf("step %d: another program is in place, %v", i, err)
		}
		s.call(at, "ADD", fmt.Sprint("step", i), c)
	}
	close(stop)
	callers.Wait()
	before := fingerprint(t, plugins)
	const want = "has version 2, and this program reads version 1"
	if a := install(first); a.code != 1 || strings.Count(strings.TrimSpace(a.stdout), "\n") > 0 || !strings.Contains(a.stdout, want) || !strings.Contains(a.stdout, "nothing was replaced") {
		t.Errorf("%+v", a)
	}
	if after := fingerprint(t, plugins); !slices.Equal(after[1:], before[1:]) { // but for the time of the directory
		t.Errorf("changed to\n%s", strings.Join(after, "\n"))
	}
	var all []struct {
		Holdings []struct {
			Container string
			Addresses []netip.Addr
		}
	}
	out := (&node{TB: t, bin: writes.bin}).shownBy("show", "-o", "json", "-data-dir", first.dir)
	if err := json.Unmarshal([]byte(out.stdout), &all); err != nil {
		t.Fatal(out, err)
	}
	held := map[string]string{}
	for _, h := range all[0].Holdings {
		held[h.Container] = h.Addresses[0].String() + "/24"
	}
	s.compare(held)
	if len(held) < 5 {
		t.Errorf("%d attachments", len(held))
	}
}

// TestInstallOverAnotherForm: a state of the last edition before version 1 stops install, and what was in place stays.
func TestInstallOverAnotherForm(t *testing.T) {
	s := newServed(t)
	s.inVersion("k", 4)
	old := filepath.Join(t.TempDir(), "cni-ipam")
	if err := copyFile(s.bin, old); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(old, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("another version"); errors.Join(err, f.Close(), os.Rename(old, s.dest)) != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := fingerprint(t, s.plugins)
		if a := s.word("install", s.plugins); a.code != 1 || !strings.Contains(a.stderr, "has version 4, and this program reads version 1") {
			t.Fatalf("%+v", a)
		}
		if after := fingerprint(t, s.plugins); !slices.Equal(after, before) {
			t.Errorf("changed to\n%s", strings.Join(after, "\n"))
		}
	}
	s.inVersion("k", 1)
	s.mustWord(s.dest+": installed\n", "install", s.plugins)
	s.serves(0, false)
}

// TestEveryDataDirectory: commands find the networks of every data directory that a call has named, also where the directory of a
// network is a link to another disk.
func TestEveryDataDirectory(t *testing.T) {
	n := edition(t)
	second, disk, plugins := t.TempDir(), t.TempDir(), t.TempDir()
	dest := filepath.Join(plugins, pluginName)
	original := &node{TB: t, dir: n.dir, bin: dest}
	if err := errors.Join(copyFile(other(t, binaries.HostLocal), dest), os.MkdirAll(n.dir, 0o755), os.Symlink(disk, filepath.Join(n.dir, "linked"))); err != nil {
		t.Fatal(err)
	}
	n.must(add1("a", conf("plain", one24)))
	n.must(add1("a", conf("linked", one24)))
	elsewhere := strings.ReplaceAll(conf("elsewhere", one24), "%DIR%", second)
	n.must(add1("a", elsewhere))
	n.must(add1("b", elsewhere))
	if a := n.shownBy("check"); a.code != 0 || a.stdout != "linked: ok, 1 attachments\nplain: ok, 1 attachments\nelsewhere: ok, 2 attachments\n" {
		t.Fatalf("%+v", a)
	}
	if a := n.shownBy("install", plugins); a.code != 0 {
		t.Fatalf("%+v", a)
	}
	if a := n.shownBy("uninstall", plugins); a.code != 0 || strings.Count(a.stdout, "wrote back") != 3 {
		t.Fatalf("%+v", a)
	}
	for _, c := range []string{conf("plain", one24), conf("linked", one24), elsewhere} {
		original.must(add1("c", c))
		original.must(del1("a", c))
	}
	if _, err := os.Stat(filepath.Join(n.dir, listName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the list is left: %v", err)
	}
}

// TestAnotherDirectoryOfPlugins: a new version of k3s brings a directory with the original; from there the way back is open.
func TestAnotherDirectoryOfPlugins(t *testing.T) {
	s := newServed(t)
	current := filepath.Join(t.TempDir(), "current")
	next := t.TempDir()
	if err := errors.Join(copyFile(s.dest+originalSuffix, filepath.Join(next, pluginName)), os.Symlink(next, current)); err != nil {
		t.Fatal(err)
	}
	if a := s.word("uninstall", current, "a"); a.code != 0 || a.stdout != "a: wrote back 1 attachments\n" {
		t.Errorf("%+v", a)
	}
	if a := s.word("uninstall", current); a.code != 0 || strings.Count(a.stdout, "wrote back 1 attachments") != 2 {
		t.Errorf("%+v", a)
	}
	s.plugins, s.dest = current, filepath.Join(current, pluginName)
	s.serves(0, true)
	if a := s.word("uninstall", current, "a"); a.code != 0 {
		t.Errorf("%+v", a)
	}
}
