//go:build unix

package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGCWord: what is not in the list goes, short ids count, and what was added after the
// word began stays.
func TestGCWord(t *testing.T) {
	listTime = 0
	defer func() { listTime = time.Minute }()
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
	for _, most := range []string{"1", "49%", "x", "-1"} { // believed within bounds
		args := []string{"gc", "-data-dir", n.dir, "-keep", "-", "-max", most, "net", "second"}
		if code := tool(args, strings.NewReader(list), &out, &log); code != 1 || out.Len() > 0 || !strings.Contains(log.String(), "-max") {
			t.Fatal(out.String(), log.String())
		}
		log.Reset()
	}
	if code := tool([]string{"gc", "-data-dir", n.dir, "-keep", "-", "net", "second"}, stdin, &out, &log); code != 0 {
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
	for _, args := range [][]string{{"gc", "net"}, {"gc", "-keep", "/none", "net"}, {"gc", "-keep", os.DevNull, "net"}, {"gc", "-keep", os.DevNull}, {"gc", "net", "nobody"}, {"gc", "none", "alive"}, {"gc", "-drained"}, {"gc", "-drained", "-keep", os.DevNull, "net"}, {"show", "-o", "xml"}} {
		if a := n.word(args...); a.code == 0 || a.stderr == "" {
			t.Errorf("%v: %+v", args, a)
		}
	}
	n.mustWord("net: released 10.1.2.2 of alive/eth0\n", "gc", "net", "10.1.2.2")
	n.mustWord("net: released 10.1.2.4 of "+long+"/eth0\n", "gc", "net", long)
	if a := n.word("version"); a.code != 0 || !strings.Contains(a.stdout, about()) || !strings.Contains(a.stdout, "go1.") {
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
		{"a\nb\n# end\n", "", -time.Second, []string{"net"}}, // c was added later
		{"a\nb\n# end\n", "", 58 * time.Second, []string{"net"}},
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
		if !strings.Contains(a.stdout+a.stderr, list.want) || (a.code == 0) != (list.want == "" || slices.Contains(list.args, "-n")) {
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

// TestInstall: the program takes the place of host-local, keeps what was there, and does
// nothing where it is already.
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
	if a := n.word("gc", "net", "10.1.2.2"); a.stdout != "net: released 10.1.2.2 of a?[2J??/eth?\n" {
		t.Errorf("%+v", a)
	}
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
		{[]string{"export", "mine", "-n"}, 0, "mine: would write back 2 attachments"},
		{[]string{"gc", "mine", "-n", "-max", "1", "-keep", keep}, 0, "mine: would release"},
		{[]string{"gc", "mine", "a", "-n"}, 0, "mine: would release"},
		{[]string{"gc", "mine", "-n", "a"}, 0, "mine: would release"},
		{[]string{"show", "mine", "-data-dir", filepath.Join(n.dir, "none")}, 1, "no such file"},
		{[]string{"uninstall", "-conf", keep, t.TempDir()}, 2, "-conf"},
		{[]string{"install", "-conf", keep, t.TempDir()}, 2, "-conf"},
		{[]string{"export", "mine", "-x"}, 2, "-x"},
		{[]string{"export", "mine", "none"}, 1, "network none"},
		{[]string{"check", "theirs", "../x"}, 1, `"../x" is not the name`},
		{[]string{"check", "mine", "none"}, 1, "network none"},
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
