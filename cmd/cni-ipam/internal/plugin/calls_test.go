//go:build unix

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// callRow is a command, which a table runs as often as it makes calls, each time with another one that fails.
type callRow struct {
	from string // what holds a, b and c of the network before: "shared", "ours" or "files"; "left" holds nothing of a shared one
	line string // a verb and containers, or a word and its arguments; DIR/conf has the configuration
}

// sharedRows have each command that calls a shared store, the first call after each kind of past too.
var sharedRows = []callRow{
	{"shared", "ADD new"}, {"left", "ADD new"}, {"shared", "DEL a"}, {"left", "DEL a"}, {"shared", "CHECK a"}, {"shared", "GC a b"}, {"shared", "STATUS"},
	{"shared", "show -o json -conf DIR/conf"}, {"shared", "check -conf DIR/conf"}, {"shared", "gc -keep - -max 100% -conf DIR/conf"},
	{"shared", "gc -conf DIR/conf net a"}, {"shared", "gc -drained -conf DIR/conf"},
}

// keepList is the standard input of a word.
const keepList = "a\nb\n# end\n"

// noSharedRow says why a word has no row there.
var noSharedRow = map[string]string{
	"install": "is a command for local networks", "uninstall": "is a command for local networks", "version": "opens no network",
}

// everyCommand fails t unless each verb and each word has a row, or a reason.
func everyCommand(t *testing.T, rows []callRow, reasons map[string]string) {
	t.Helper()
	for _, command := range slices.Concat(slices.Collect(maps.Keys(verbs)), slices.Collect(maps.Keys(words))) {
		has := slices.ContainsFunc(rows, func(r callRow) bool { return strings.Fields(r.line)[0] == command })
		if has == (reasons[command] != "") {
			t.Errorf("%s has a row: %v; a reason to have none: %q", command, has, reasons[command])
		}
	}
}

// life is a network of which one command is run.
type life struct {
	*node
	callRow
	aside string // where the files that the line names are
	conf  string
	run   func(invocation, []string) answer // carries out a call of a runtime, or else a word of a person
}

// newLife makes the past of a row.
func newLife(n *node, r callRow, conf string, run func(invocation, []string) answer) *life {
	l := &life{n, r, n.TempDir(), conf, run}
	l.put(filepath.Join(l.aside, "conf"), strings.ReplaceAll(conf, "%DIR%", l.dir))
	for _, c := range []string{"a", "b", "c"} {
		first := add1(c, conf)
		if l.from == "files" {
			l.put(filepath.Join(l.dir, "net", map[string]string{"a": "10.1.2.2", "b": "10.1.2.3", "c": "10.1.2.4"}[c]), c+"\r\neth0")
		} else if a := l.run(first, nil); a.code != 0 {
			l.Fatal(a)
		} else if l.from == "left" {
			l.command("DEL " + c)
		}
	}
	return l
}

// command runs a line.
func (l *life) command(line string) answer {
	f := strings.Fields(strings.ReplaceAll(line, "DIR", l.aside))
	if verbs[f[0]] == nil {
		return l.run(invocation{}, f)
	}
	i := invocation{verb: f[0], ifname: "eth0", conf: l.conf}
	switch f = f[1:]; {
	case i.verb == "GC":
		valid := `"type":"bridge","cni.dev/valid-attachments":[{"containerID":"` + strings.Join(f, `","ifname":"eth0"},{"containerID":"`) + `","ifname":"eth0"}]`
		i.conf = strings.Replace(l.conf, `"type":"bridge"`, valid, 1)
	case len(f) > 0:
		i.container = f[0]
	}
	return l.run(i, nil)
}

// again repeats what failed, as a runtime or a person does. Of an ADD the runtime does not know whether it was carried out.
func (l *life) again() answer {
	if l.line == "ADD new" {
		l.command("DEL new")
	}
	return l.command(l.line)
}

// attachments returns who holds what; of "new", only that it holds something.
func attachments(s hostlocal.State) string {
	held := map[string]string{}
	for _, h := range s.Holdings {
		held[h.Attachment.Container] = fmt.Sprint(h.Addresses)
	}
	if held["new"] != "" {
		held["new"] = "an address"
	}
	return fmt.Sprint(held)
}

// same compares what a command said and left with what it does when nothing fails. The tables have a rule: an error, or that.
func (l *life) same(got, want answer, left, wantLeft string) {
	l.Helper()
	if got.code == 0 && (!strings.Contains(got.stdout, want.stdout) || left != wantLeft) {
		l.Errorf("%v succeeds with %q and leaves %s, want %q and %s", l.callRow, got.stdout, left, want.stdout, wantLeft)
	}
	if got.code != 0 && got.stdout+got.stderr == "" {
		l.Errorf("%v fails and does not say why", l.callRow)
	}
}

// inProcess carries out calls in this process.
func inProcess(n *node) func(invocation, []string) answer {
	return func(i invocation, word []string) (a answer) {
		var out, log bytes.Buffer
		if word != nil {
			a.code = tool(word, strings.NewReader(keepList), &out, &log)
			return answer{a.code, out.String(), log.String()}
		}
		getenv := func(name string) (value string) {
			for _, v := range i.environment() {
				if rest, ok := strings.CutPrefix(v, name+"="); ok {
					value = rest
				}
			}
			return value
		}
		b, err := run(getenv, strings.NewReader(strings.ReplaceAll(i.conf, "%DIR%", n.dir)), &log)
		if err != nil {
			return answer{1, err.Error(), log.String()}
		}
		return answer{0, string(b), log.String()}
	}
}

// leftInStore returns what the shared store and the directory hold in the end.
func (l *life) leftInStore(db store.Store) string {
	l.Helper()
	e, err := hostlocal.New(db, hostlocal.Config{Network: "net", Scope: "n/net", Keys: true})
	if err == nil {
		err = e.Check(l.Context())
	}
	all, exported := e.Export(l.Context())
	if err = errors.Join(err, exported); err != nil {
		l.Fatal(l.callRow, err)
	}
	return attachments(all)
}

// Whichever call of the shared store fails, and however, a command says so or does what it does when none fails, and repeated it ends so.
func TestEveryCallOfTheStoreFails(t *testing.T) {
	everyCommand(t, sharedRows, noSharedRow)
	defer func() { openRemote = nil }()
	for _, r := range sharedRows {
		want, left, _ := r.failing(t, faults.Outcome{}, -1, answer{}, "")
		if want.code != 0 {
			t.Fatal(r, want)
		}
		for name, outcome := range map[string]faults.Outcome{"fails": faults.Fail(faults.ErrInjected), "is in conflict": faults.Conflict("k"),
			"is made, and the answer lost": faults.Unknown(true), "is lost": faults.Unknown(false)} {
			for k, more := 0, true; more && !t.Failed(); k++ {
				if _, _, more = r.failing(t, outcome, k, want, left); t.Failed() {
					t.Logf("call %d %s", k, name)
				}
			}
		}
	}
}

// failing runs a command whose k-th call of the store has an outcome, its opening being the call 0, and repeats it if that fails. more reports whether it made as many.
func (r callRow) failing(t *testing.T, outcome faults.Outcome, k int, want answer, wantLeft string) (got answer, left string, more bool) {
	n := newNode(t, "")
	if err := os.Mkdir(filepath.Join(n.dir, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	memory, fails := store.NewMemory(), false
	db := faults.NewFaulty(memory)
	openRemote = func(context.Context, Remote) (*Session, error) {
		if fails && k == 0 {
			return nil, faults.ErrInjected
		}
		none := func() error { return nil }
		return &Session{Store: db, Lock: func(context.Context, string) (func() error, error) { return none, nil }, Close: none}, nil
	}
	l := newLife(n, r, sharedNet("net", one24+`,"store":"etcd://a:1/x","node":"n","statusFull":true`), inProcess(n))
	fails = true
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.N == k && (c.Kind == faults.Commit || errors.Is(outcome.Err, faults.ErrInjected) && !outcome.Unknown) {
			return outcome
		}
		return faults.Outcome{}
	})
	got = l.command(r.line)
	more, fails = db.Counts().Calls() >= k, false
	db.Script(nil)
	if left = l.leftInStore(memory); k < 0 {
		return got, left, false
	}
	l.same(got, want, left, wantLeft)
	if got.code != 0 {
		if a := l.again(); a.code != 0 && !strings.HasSuffix(r.line, "net a") || l.leftInStore(memory) != wantLeft {
			t.Errorf("%v, then again: %+v, leaves %s, want %s", r, a, l.leftInStore(memory), wantLeft)
		}
	}
	return got, left, more
}
