//go:build unix

package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestGCWord: what is not in the list goes, short ids count, and what was added after the
// word began stays.
func TestGCWord(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	long := strings.Repeat("0123456789abcdef", 4)
	for _, name := range []string{"alive", "lost", long, "short-of-it"} {
		n.must(add1(name, c))
	}
	n.must(add1("lost", conf("second", one24)))
	var out, log bytes.Buffer
	list := "alive\n\n" + long[:12] + "   Running\nshort\n# end\n"
	stdin := &lateReader{text: list, first: func() { n.must(add1("late", c)) }}
	n.must(add1("alive", conf("second", one24)))
	for _, most := range []string{"", "1", "49%", "x", "-1"} { // believed within bounds
		args := []string{"gc", "-data-dir", n.dir, "-keep", "-", "-max", most, "net", "second"}
		if most == "" {
			args = slices.Delete(args, 5, 7)
		}
		if code := tool(args, strings.NewReader(list), &out, &log); code != 1 || out.Len() > 0 || !strings.Contains(log.String(), "-max") {
			t.Fatal(out.String(), log.String())
		}
		log.Reset()
	}
	if code := tool([]string{"gc", "-data-dir", n.dir, "-keep", "-", "-max", "50%", "net", "second"}, stdin, &out, &log); code != 0 {
		t.Fatal(log.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	want := []string{"net: released 10.1.2.3 of lost/eth0", "net: released 10.1.2.5 of short-of-it/eth0", "second: released 10.1.2.2 of lost/eth0"}
	if !slices.Equal(lines, want) {
		t.Fatalf("%q", lines)
	}
	var left []string
	for _, h := range n.state("net").Holdings {
		left = append(left, h.Attachment.Container)
	}
	if !slices.Equal(left, []string{long, "alive", "late"}) {
		t.Fatal(left)
	}
	for _, args := range [][]string{{"gc", "net"}, {"gc", "-keep", "/none", "net"}, {"gc", "-keep", os.DevNull, "net"}, {"gc", "-keep", os.DevNull}, {"free", "net"}, {"free", "net", "nobody"}, {"free", "none", "alive"}, {"repair"}, {"show", "-o", "xml"}} {
		if a := n.word(args...); a.code == 0 || a.stderr == "" {
			t.Errorf("%v: %+v", args, a)
		}
	}
	n.mustWord("net: released 10.1.2.2 of alive/eth0\n", "free", "net", "10.1.2.2")
	n.mustWord("net: released 10.1.2.4 of "+long+"/eth0\n", "free", "net", long)
	if a := n.word("version"); a.code != 0 || !strings.Contains(a.stdout, about) || !strings.Contains(a.stdout, "go1.") {
		t.Fatal(a)
	}
}

// TestGCBelievesNoOtherList: a list that is cut, empty, of another runtime, older than what is held, or without a network to
// apply it to releases nothing.
func TestGCBelievesNoOtherList(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	for _, name := range []string{"a", "b", "c"} {
		n.must(add1(name, c))
	}
	file := filepath.Join(t.TempDir(), "list")
	before := fingerprint(t, n.dir)
	for _, list := range []struct {
		text, want string
		age        time.Duration // of what is held when the list is made
		args       []string
	}{
		{"a\nb\n", "no end", time.Hour, []string{"net"}},
		{"a\nb # end", "no end", time.Hour, []string{"net"}},
		{"", "no end", time.Hour, []string{"net"}},
		{"# end\n", "another runtime", time.Hour, []string{"net"}},
		{"0123456789abcdef0123\n# end\n", "another runtime", time.Hour, []string{"net"}},
		{"a\nb\n# end\n", "the list is older", -time.Second, []string{"net"}},
		{"a\nb\n# end\n", "the list is older", 59 * time.Second, []string{"net"}},
		{"a\nb\n# end\n", "name of each NETWORK", time.Hour, nil},
		{"a\nb\n# end\n", "would release 10.1.2.4 of c/eth0", 61 * time.Second, []string{"-n", "net"}},
	} {
		n.put(file, list.text)
		info, err := os.Stat(filepath.Join(n.dir, "net", stateName))
		if err != nil {
			t.Fatal(err)
		}
		made := info.ModTime().Add(list.age)
		if err := os.Chtimes(file, made, made); err != nil {
			t.Fatal(err)
		}
		a := n.word(append([]string{"gc", "-keep", file, "-max", "100%"}, list.args...)...)
		if !strings.Contains(a.stdout+a.stderr, list.want) || (a.code == 0) != slices.Contains(list.args, "-n") {
			t.Errorf("%q: %+v, want %q", list.text, a, list.want)
		}
		if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
			t.Fatalf("%q changed something", list.text)
		}
	}
}

// lateReader calls first before it yields its text.
type lateReader struct {
	text  string
	first func()
	rest  *strings.Reader
}

func (r *lateReader) Read(b []byte) (int, error) {
	if r.rest == nil {
		r.first()
		r.rest = strings.NewReader(r.text)
	}
	return r.rest.Read(b)
}

// TestRepair: of a damaged state, what can be read is saved into a fresh one, in which
// everything fits together.
func TestRepair(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", `"ranges":[[{"subnet":"10.1.0.0/16"}]]`)
	for i := range 60 {
		n.must(add1(fmt.Sprint("container-", i), c))
	}
	whole := heldOf(n.state("net"))
	path := filepath.Join(n.dir, "net", stateName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n.mustWord("net: would save 60 attachments; nothing is missing\n", "repair", "-n", "net")
	saved := 0
	for page := 2; page < len(good)/4096; page++ {
		bad := slices.Clone(good)
		clear(bad[page*4096+16 : (page+1)*4096])
		if bytes.Equal(bad, good) {
			continue
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		a := n.word("repair", "net")
		if a.code != 0 {
			t.Logf("page %d: %s", page, a.stderr)
			continue
		}
		got := heldOf(n.state("net")) // which checks it
		for addr, who := range got.owners {
			if whole.owners[addr] != who {
				t.Fatalf("page %d: %s is held by %s, want %s", page, addr, who, whole.owners[addr])
			}
		}
		if len(got.owners) < len(whole.owners) && !strings.Contains(a.stdout, "some addresses may be free that a container uses") {
			t.Errorf("page %d: %d of %d are left, and it says %s", page, len(got.owners), len(whole.owners), a.stdout)
		}
		saved++
		n.must(add1("next", c))
		aside, err := filepath.Glob(path + ".damaged-*")
		if err != nil || len(aside) != 1 {
			t.Fatal(aside, err)
		}
		if err := os.Remove(aside[0]); err != nil {
			t.Fatal(err)
		}
	}
	if saved == 0 {
		t.Error("nothing could be repaired")
	}
	t.Logf("%d damaged files repaired", saved)
}

// TestInstall: the program takes the place of host-local, keeps what was there, and does
// nothing where it is already.
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
	w := word{stdout: io.Discard, every: 1}
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
	helper := filepath.Join(filepath.Dir(self), helperName)
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
	w := word{dataDir: n.dir, stdout: &afterFirst{dest: dest}}
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
	content(dest, "update")
	content(dest+originalSuffix, "before")
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
	helper := filepath.Join(filepath.Dir(self), helperName)
	n.put(dest, "before")
	n.put(helper, "helper") // install prints a line for it after it kept the program
	w := word{dataDir: n.dir, stdout: &afterFirst{dest: dest}}
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

// TestExportLooksFirst: what would stop an export in the middle stops it before it begins.
func TestExportLooksFirst(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	twice := filepath.Join(n.dir, "net", "10.1.2.2")
	n.put(twice, "thief\r\neth0")
	n.must(add1("b", c))
	for _, args := range [][]string{{"export", "-n"}, {"export"}, {"export"}} {
		if a := n.word(args...); a.code != 1 || !strings.Contains(a.stderr, "10.1.2.2 is there with another content") {
			t.Fatalf("%v: %+v", args, a)
		}
		n.must(del1("nobody", c)) // this plugin still serves it
	}
	if err := os.Remove(twice); err != nil {
		t.Fatal(err)
	}
	n.mustWord("net: wrote back 2 attachments\n", "export")
}

// TestPrintable: what a person reads has nothing that a terminal obeys.
func TestPrintable(t *testing.T) {
	n := newNode(t, ours(t))
	if err := os.Mkdir(filepath.Join(n.dir, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.put(filepath.Join(n.dir, "net", "10.1.2.2"), "a\x1b[2J\u009b\u202e\r\neth\x07")
	want := "net  10.1.2.2  a?[2J??  eth?  "
	n.mustWord(want+"host-local\n", "show")
	if a := n.must(add1("b", conf("net", one24))); strings.ContainsAny(a.stderr, "\x1b\x07") {
		t.Errorf("%q", a.stderr)
	}
	if a := n.word("show"); !strings.Contains(a.stdout, want+"cni-ipam\n") {
		t.Errorf("%q", a.stdout)
	}
	if a := n.word("free", "net", "10.1.2.2"); a.stdout != "net: released 10.1.2.2 of a?[2J??/eth?\n" {
		t.Errorf("%+v", a)
	}
}

// TestRepairOfNothing: a state in which nothing can be read is given up only by a flag.
func TestRepairOfNothing(t *testing.T) {
	n := newNode(t, ours(t))
	n.must(add1("a", conf("net", one24)))
	n.damage(filepath.Join(n.dir, "net", stateName), "garbage")
	if a := n.word("repair", "net"); a.code != 1 {
		t.Fatal(a)
	}
	if a := n.word("repair", "-lost", "net"); a.code != 0 || !strings.Contains(a.stdout, "saved 0 attachments") || !strings.Contains(a.stdout, "some addresses may be free that a container uses") {
		t.Fatal(a)
	}
	n.must(add1("b", conf("net", one24)))
}

// TestFlagsAnywhere: a flag counts wherever it stands, and a name that is wrong is found
// before the first network is touched.
func TestFlagsAnywhere(t *testing.T) {
	n := newNode(t, ours(t))
	manyFiles(t, filepath.Join(n.dir, "theirs"), 3)
	n.must(add1("a", conf("mine", one24)))
	n.must(add1("b", conf("mine", one24)))
	keep := filepath.Join(t.TempDir(), "keep")
	if err := os.WriteFile(keep, []byte("b\n# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(keep, later, later); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, n.dir)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"import", "theirs", "-n"}, 0, "theirs: would take over 3 attachments"},
		{[]string{"export", "mine", "-n"}, 0, "mine: would write back 2 attachments"},
		{[]string{"repair", "mine", "-n"}, 0, "mine: would save 2 attachments"},
		{[]string{"gc", "mine", "-n", "-max", "1", "-keep", keep}, 0, "mine: would release"},
		{[]string{"free", "mine", "a", "-n"}, 0, "mine: would release"},
		{[]string{"free", "mine", "-n", "a"}, 0, "mine: would release"},
		{[]string{"show", "mine", "-data-dir", t.TempDir()}, 2, "only uninstall takes more than one"},
		{[]string{"uninstall", "-conf", keep, t.TempDir()}, 2, "-conf"},
		{[]string{"install", "-conf", keep, t.TempDir()}, 2, "-conf"},
		{[]string{"export", "mine", "-x"}, 2, "-x"},
		{[]string{"export", "mine", "none"}, 1, "network none"},
		{[]string{"import", "theirs", "../x"}, 1, `"../x" is not the name`},
		{[]string{"repair", "mine", "none"}, 1, "network none"},
		{[]string{"gc", "-keep", keep, "mine", "none"}, 1, "network none"},
		{[]string{"export", "mine", "--", "-n"}, 1, `"-n" is not the name`},
	} {
		a := n.word(c.args...)
		if a.code != c.code || !strings.Contains(a.stdout+a.stderr, c.want) {
			t.Errorf("%v: %d %q %q, want %d %q", c.args, a.code, a.stdout, a.stderr, c.code, c.want)
		}
		if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
			t.Fatalf("%v changed\n%s\nto\n%s", c.args, strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	}
}
