//go:build unix

package plugin

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestInstall(t *testing.T) {
	n := newNode(t, ours(t))
	dest := filepath.Join(n.dir, "host-local")
	if err := os.WriteFile(dest, []byte("original"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{dest + ": installed\n", ""} {
		n.mustWord(want, "install", n.dir)
	}
	mine, err := os.ReadFile(n.bin)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"host-local": string(mine), "host-local.original": "original"} {
		if b, err := os.ReadFile(filepath.Join(n.dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An update of the package puts another one in place: that is what is wanted later.
	if err := os.WriteFile(dest, []byte("another"), 0o755); err == nil {
		n.mustWord(dest+": installed\n", "install", n.dir)
	}
	if b, _ := os.ReadFile(dest + ".original"); string(b) != "another" {
		t.Errorf("kept %q", b)
	}
	if got := n.must(invocation{env: []string{"CNI_COMMAND=VERSION"}}); got.stdout == "" {
		t.Error(got)
	}
	if a := n.word("install", filepath.Join(n.dir, "none")); a.code != 1 {
		t.Error(a)
	}
	if entries, err := os.ReadDir(n.dir); err != nil || len(entries) != 3 {
		t.Error(entries, err)
	}
}

// TestRecordThatCannotBeWritten: a record that cannot get its name leaves no other file.
func TestRecordThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	dest := filepath.Join(dir, "host-local")
	if err := os.Mkdir(dest+recordSuffix, 0o755); err != nil {
		t.Fatal(err)
	}
	err := writeRecord(dest, "")
	if entries, _ := os.ReadDir(dir); err == nil || len(entries) != 1 {
		t.Error(err, entries)
	}
}

// TestInstallKnowsItsVersions: an older version of this plugin is not kept as the original, an
// original that a person swapped back is left alone by the word that looks again, and a look
// at what is installed already takes little memory.
func TestInstallKnowsItsVersions(t *testing.T) {
	n := newNode(t, ours(t))
	bin, image := filepath.Join(n.dir, "bin"), filepath.Join(n.dir, "image")
	for _, dir := range []string{bin, image} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(n.bin)
	if err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(bin, "host-local")
	version := func(v string) *node {
		t.Helper()
		path := filepath.Join(image, v)
		if err := os.WriteFile(path, append(slices.Clone(program), v...), 0o755); err != nil {
			t.Fatal(err)
		}
		return &node{TB: t, dir: n.dir, bin: path}
	}
	installs := func(v string, args ...string) {
		t.Helper()
		m := version(v)
		out, err := m.command(nil, append(append([]string{"install"}, args...), bin)...).CombinedOutput()
		if b, _ := os.ReadFile(dest); err != nil || !strings.HasSuffix(string(b), v) {
			t.Fatalf("%s: %s %v", v, out, err)
		}
	}
	content := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != want || (err != nil) != (want == "") {
			t.Fatalf("%s: %d bytes, %v, want %q", path, len(b), err, want)
		}
	}
	// No host-local at first; then another installer brings it, and then a person swaps back.
	installs("v1")
	installs("v2")
	content(dest+originalSuffix, "")
	n.put(dest+".x", "the original")
	if err := os.Rename(dest+".x", dest); err != nil {
		t.Fatal(err)
	}
	installs("v3")
	content(dest+originalSuffix, "the original")
	installs("v4")
	content(dest+originalSuffix, "the original")
	if err := os.Rename(dest+originalSuffix, dest); err != nil {
		t.Fatal(err)
	}
	w := word{dataDirs: []string{t.TempDir()}, stdout: io.Discard, every: 1}
	if err := w.install([]string{bin}); !errors.Is(err, errSwappedBack) {
		t.Fatal(err)
	}
	content(dest, "the original")
	installs("v5")
	content(dest+originalSuffix, "the original")

	if err := w.install([]string{bin}); err != nil { // the program of the test
		t.Fatal(err)
	}
	if heap := allocated(func() { err = w.install([]string{bin}) }); err != nil || heap > 1<<20 {
		t.Errorf("a look took %d bytes, %v", heap, err)
	}
}

// afterFirst puts a program in place when the word has printed its first line.
type afterFirst struct {
	dest string
	once sync.Once
	err  error
}

func (a *afterFirst) Write(b []byte) (int, error) {
	a.once.Do(func() {
		if a.err = os.WriteFile(a.dest+".x", []byte("update"), 0o755); a.err == nil {
			a.err = os.Rename(a.dest+".x", a.dest)
		}
	})
	return len(b), a.err
}

// TestUpdateMeanwhile: a package that brings host-local while a word runs does not lose it.
// install keeps it, and uninstall leaves it in place.
func TestUpdateMeanwhile(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(filepath.Dir(self), sharedName)
	content := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v, want %q", path, len(b), err, want)
		}
	}
	n := newNode(t, ours(t))
	bin := t.TempDir()
	dest := filepath.Join(bin, "host-local")
	n.put(helper, "helper") // install prints a line for it before it looks at dest again
	defer os.Remove(helper)
	w := word{dataDirs: []string{n.dir}, stdout: &afterFirst{dest: dest}}
	if err := w.install([]string{bin}); err != nil {
		t.Fatal(err)
	}
	content(dest+originalSuffix, "update")
	if theirs, err := isTheirs(dest); err != nil || theirs {
		t.Errorf("host-local is not this plugin: %v", err)
	}

	n.must(add1("a", conf("net", one24)))
	n.put(dest+originalSuffix, "before")
	w.stdout = &afterFirst{dest: dest}
	if err := w.uninstall([]string{bin}); err != nil {
		t.Fatal(err)
	}
	content(dest, "update") // the update replaces the original that has just come back
}

// TestUpdateAtTheExchange: an update that comes after the last look, at the moment in which a word
// replaces the program, stays or is kept.
func TestUpdateAtTheExchange(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, ours(t))
	bin := t.TempDir()
	dest := filepath.Join(bin, "host-local")
	if other := filepath.Join(bin, "x"); !exchangeable(n, other) {
		t.Skip("SKIPPED, the file system has no exchange")
	}
	content := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v, want %q", path, len(b), err, want)
		}
	}
	helper := filepath.Join(filepath.Dir(self), sharedName)
	n.put(dest, "before")
	n.put(helper, "helper") // install prints a line for it after it kept the program
	w := word{dataDirs: []string{n.dir}, stdout: &afterFirst{dest: dest}}
	err = w.install([]string{bin})
	os.Remove(helper)
	if err != nil {
		t.Fatal(err)
	}
	content(dest+originalSuffix, "update")
	if theirs, err := isTheirs(dest); err != nil || theirs {
		t.Errorf("host-local is not this plugin: %v", err)
	}

	change, err := w.original(dest)
	if err != nil {
		t.Fatal(err)
	}
	n.put(dest+".x", "newer")
	if err := os.Rename(dest+".x", dest); err != nil {
		t.Fatal(err)
	}
	if err := change(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an update was replaced: %v", err)
	}
	content(dest, "newer")
	content(dest+originalSuffix, "update")
}

// exchangeable reports whether the file system at path can exchange two files.
func exchangeable(n *node, path string) bool {
	n.put(path+"1", "")
	n.put(path+"2", "")
	defer os.Remove(path + "1")
	defer os.Remove(path + "2")
	return exchange(path+"1", path+"2")
}

// allocated returns how many bytes a function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
