package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// localRows have each command, from each kind of past that it tells apart.
var localRows = []callRow{
	{"ours", "ADD new"}, {"files", "ADD new"}, {"ours", "DEL a"}, {"files", "DEL a"}, {"ours", "CHECK a"}, {"files", "CHECK a"}, {"ours", "GC a b"}, {"ours", "STATUS"},
	{"ours", "show -o json"}, {"files", "show -o json"}, {"ours", "check"}, {"files", "check"}, {"exported", "ADD new"},
	{"ours", "gc -keep - -max 100% net"}, {"ours", "gc net a"}, {"ours", "gc -drained net"}, {"ours", "gc -n -drained net"},
	{"ours", "install DIR/bin"}, {"installed", "uninstall DIR/bin"}, {"installed", "uninstall -n DIR/bin"}, {"ours", "version"},
}

// asProgram carries out calls as a process, traced if the node is.
func asProgram(n *node) func(invocation, []string) answer {
	return func(i invocation, word []string) answer {
		env := i.environment()
		if word != nil {
			env, word = []string{"PATH=" + os.Getenv("PATH")}, append([]string{word[0], "-data-dir", n.dir}, word[1:]...)
		}
		cmd := n.command(env, word...)
		cmd.Stdin = strings.NewReader(keepList)
		if word == nil {
			cmd.Stdin = strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir))
		}
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		if err := cmd.Run(); cmd.ProcessState == nil {
			n.Fatal(err)
		}
		said := regexp.MustCompile(`\S+(/\d{3,}/|damaged-)\S+`).ReplaceAllString(out.String(), "PATH")
		return answer{cmd.ProcessState.ExitCode(), said, log.String()}
	}
}

// leftInFiles returns what the directories hold in the end.
func (l *life) leftInFiles() string {
	l.Helper()
	v, err := l.place("net").look(true)
	theirs, unread := isTheirs(filepath.Join(l.aside, "bin", pluginName))
	if err = errors.Join(err, unread); err != nil {
		l.Fatal(l.callRow, err)
	}
	v.state.Holdings = append(v.state.Holdings, v.files.Holdings...)
	return fmt.Sprint(attachments(v.state), v.ours, theirs)
}

// Whichever system call about a file fails, a command says so or does what it does when none fails, and repeated it ends so.
func TestEveryCallOfTheSystemFails(t *testing.T) {
	everyCommand(t, localRows, nil)
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED, the tracer fails calls of amd64 alone")
	}
	stride := 1
	if testing.Short() {
		stride = 13
	}
	newNode(t, ours(t)).traced("kill=1")
	for i, r := range localRows {
		t.Run(r.from+" "+r.line, func(t *testing.T) {
			t.Parallel()
			past := r.past(t)
			want, left, _ := past.failingFile(t, 0, answer{}, "")
			if want.code != 0 {
				t.Fatal(want)
			}
			k, more := 1+i%stride, true
			for ; more; k += stride {
				_, _, more = past.failingFile(t, k, want, left)
			}
			t.Logf("%d calls", k)
		})
	}
}

// past makes the past of a row, of which each failure gets a copy.
func (r callRow) past(t *testing.T) *life {
	n := newNode(t, ours(t))
	if err := os.Mkdir(filepath.Join(n.dir, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := r
	switch r.from {
	case "installed", "exported":
		before.from = "ours"
	}
	l := newLife(n, before, conf("net", one24+`,"statusFull":true`), asProgram(n))
	if err := os.Mkdir(filepath.Join(l.aside, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.put(filepath.Join(l.aside, "bin", pluginName), "the original")
	switch r.from {
	case "installed":
		l.done(l.command("install DIR/bin"))
	case "exported":
		l.done(l.command("uninstall DIR/bin"))
	}
	return l
}

// failingFile runs the command of a past whose k-th system call about a file fails, and repeats it if the command does. more
// reports whether there was one.
func (past *life) failingFile(t *testing.T, k int, want answer, wantLeft string) (got answer, left string, more bool) {
	n, aside := newNode(t, past.bin), t.TempDir()
	if err := errors.Join(os.CopyFS(n.dir, os.DirFS(past.dir)), os.CopyFS(aside, os.DirFS(past.aside))); err != nil {
		t.Fatal(err)
	}
	l := &life{n, past.callRow, aside, past.conf, asProgram(n)}
	if k > 0 {
		n.trace = fmt.Sprint("fail=", k)
	}
	got = l.command(l.line)
	n.trace = ""
	log, name, more := strings.Cut(got.stderr, failedLine)
	got.stderr = log
	if left = l.leftInFiles(); k == 0 {
		return got, left, false
	}
	if name == "write" && got.code != 0 && got.stdout == "" {
		got.stderr = "it could not be written"
	}
	l.same(got, want, left, wantLeft)
	if got.code != 0 {
		if a := l.again(); a.code != 0 && !strings.HasSuffix(l.line, "net a") || l.leftInFiles() != wantLeft {
			t.Errorf("then again: %+v, leaves %s, want %s", a, l.leftInFiles(), wantLeft)
		}
	}
	if t.Failed() {
		t.Fatalf("call %d, %s, failed: %+v", k, name, got)
	}
	return got, left, more
}

// done expects a call to succeed.
func (l *life) done(a answer) {
	l.Helper()
	if a.code != 0 {
		l.Fatal(a)
	}
}
