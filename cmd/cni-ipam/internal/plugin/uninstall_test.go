//go:build unix

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// served is a node on which this plugin is installed and has three networks.
type served struct {
	*node
	plugins, dest string
	networks      []string
}

func newServed(t *testing.T) *served {
	t.Helper()
	n := newNode(t, ours(t))
	s := &served{node: n, plugins: t.TempDir(), networks: []string{"a", "k", "z"}}
	s.dest = filepath.Join(s.plugins, "host-local")
	if err := copyFile(other(t, binaries.HostLocal), s.dest); err != nil {
		t.Fatal(err)
	}
	s.mustWord(s.dest+": installed\n", "install", s.plugins)
	for _, network := range s.networks {
		s.must(add1("p", conf(network, one24)))
	}
	return s
}

// serves verifies that one program has every network, and that calls at the path of the plugin
// get what they ask for.
func (s *served) serves(round int, original bool) {
	s.Helper()
	if theirs, err := isTheirs(s.dest); err != nil || theirs != original {
		s.Errorf("the original is in place: %v, %v", theirs, err)
	}
	at := &node{TB: s.TB, dir: s.dir, bin: s.dest}
	for _, network := range s.networks {
		c := conf(network, one24)
		for _, i := range []invocation{{verb: "STATUS", conf: c}, add1(fmt.Sprint("q", round), c), del1(fmt.Sprint("q", round), c)} {
			if a := at.call(i); a.code != 0 {
				s.Errorf("round %d: %s %s: %s", round, network, i.verb, a.stdout)
			}
		}
	}
}

// TestUninstallIsOneDecision: if anything is in the way, no network changes hands and the status
// is not 0; when it is out of the way, all do.
func TestUninstallIsOneDecision(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*served) (mend func())
		want   string
	}{
		"a file in the way": {func(s *served) func() {
			path := filepath.Join(s.dir, "k", "10.1.2.2")
			s.put(path, "thief\r\neth0")
			return func() { os.Remove(path) }
		}, "10.1.2.2 is there with another content"},
		"an export that fails in the middle": {func(s *served) func() {
			path := filepath.Join(s.dir, "k", bootName)
			os.Remove(path)
			if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
				t.Fatal(err)
			}
			return func() { os.RemoveAll(path) }
		}, "goes on with every network"},
		"no original": {func(s *served) func() {
			if err := os.Rename(s.dest+originalSuffix, s.dest+".x"); err != nil {
				t.Fatal(err)
			}
			return func() { os.Rename(s.dest+".x", s.dest+originalSuffix) }
		}, "host-local.original is gone"},
		"this plugin as the original": {func(s *served) func() {
			if err := os.Rename(s.dest+originalSuffix, s.dest+".x"); err != nil {
				t.Fatal(err)
			}
			if err := copyFile(s.bin, s.dest+originalSuffix); err != nil {
				t.Fatal(err)
			}
			return func() { os.Rename(s.dest+".x", s.dest+originalSuffix) }
		}, "host-local.original is gone"},
		"a directory without it": {func(s *served) func() {
			right := s.plugins
			s.plugins = filepath.Join(right, "none")
			return func() { s.plugins = right }
		}, "no such file"},
		"a data directory that is not there": {func(s *served) func() {
			right := s.dir
			s.dir = filepath.Join(right, "none")
			return func() { s.dir = right }
		}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(t)
			s.TB = t
			dir := s.dir
			mend := c.breaks(s)
			before := fingerprint(t, dir)
			for _, args := range [][]string{{"uninstall", "-n"}, {"uninstall"}, {"uninstall"}} {
				if a := s.word(append(args, s.plugins)...); a.code != 1 && !(len(args) == 2 && a.code == 0 && strings.Contains(name, "middle")) || a.code == 1 && !strings.Contains(a.stderr, c.want) {
					t.Errorf("%v: %+v", args, a)
				}
			}
			if after := fingerprint(t, dir); !strings.Contains(name, "middle") && !slices.Equal(after, before) {
				t.Errorf("changed\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			other := s.dir
			s.dir = dir
			s.serves(0, false)
			s.dir = other
			mend()
			if a := s.word("uninstall", "-n", s.plugins); a.code != 0 || strings.Count(a.stdout, "would write back") != 3 || !strings.Contains(a.stdout, "would put the original back") {
				t.Errorf("%+v", a)
			}
			for range 2 { // again is no change
				if a := s.word("uninstall", s.plugins); a.code != 0 {
					t.Errorf("%+v", a)
				}
				s.serves(1, true)
			}
		})
	}
}

// TestUninstallOfDamage: a state that was damaged in this boot stops it, and every network stays as it was; one of an earlier boot
// does not, for a command knows the boot as calls do.
func TestUninstallOfDamage(t *testing.T) {
	s := newServed(t)
	s.damage(filepath.Join(s.dir, "k", stateName), "empty")
	for range 2 {
		if a := s.word("uninstall", s.plugins); a.code != 1 || !strings.Contains(a.stderr, "network k") || !strings.Contains(a.stderr, "drain the node and reboot") {
			t.Errorf("%+v", a)
		}
	}
	s.networks = []string{"a", "z"}
	s.serves(0, false)
	link := filepath.Join(s.dir, "k", bootName)
	if err := errors.Join(os.Remove(link), os.Symlink("01234567-89ab-cdef-0123-456789abcdef", link)); err != nil {
		t.Fatal(err)
	}
	if a := s.word("check", "k"); a.code != 1 || !strings.Contains(a.stderr, "no container of it is alive") {
		t.Errorf("%+v", a)
	}
	if a := s.word("uninstall", s.plugins); a.code != 0 {
		t.Errorf("%+v", a)
	}
	s.networks = []string{"a", "k", "z"}
	s.serves(1, true)
}

// TestUninstallLooksEverywhere: a second data directory that is named is part of the decision;
// without a record, the program itself says what it is; of an update of the package, the new
// program comes back; the command for shared networks goes.
func TestUninstallLooksEverywhere(t *testing.T) {
	s := newServed(t)
	second := newNode(t, s.bin)
	second.must(add1("p", conf("b", one24)))
	update := filepath.Join(s.plugins, "update")
	if err := copyFile(s.dest+originalSuffix, update); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(update, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("a newer one"); err != nil || f.Close() != nil || os.Rename(update, s.dest) != nil {
		t.Fatal(err)
	}
	s.mustWord(s.dest+": installed\n", "install", s.plugins)
	s.put(filepath.Join(s.plugins, sharedName), mark)
	if err := os.Remove(s.dest + recordSuffix); err != nil {
		t.Fatal(err)
	}
	if a := s.word("uninstall", "-data-dir", second.dir, s.plugins); a.code != 0 || strings.Count(a.stdout, ": wrote back 1 attachments") != 4 {
		t.Fatalf("%+v", a)
	}
	s.serves(0, true)
	if b, err := os.ReadFile(s.dest); err != nil || !strings.HasSuffix(string(b), "a newer one") {
		t.Errorf("the old original is back, %v", err)
	}
	var left []string
	entries, _ := os.ReadDir(s.plugins)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{"host-local", "host-local" + recordSuffix}) {
		t.Errorf("left: %v", left)
	}
}

// TestFirstCallNotesTheBoot: damage after the first call of a network, in the same boot, is not
// taken for that of an earlier one.
func TestFirstCallNotesTheBoot(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	n.damage(filepath.Join(n.dir, "net", stateName), "garbage")
	n.fails(add1("b", c), 5, "drain the node and reboot")
}
