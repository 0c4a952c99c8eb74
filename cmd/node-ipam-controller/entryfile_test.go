package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// entryText is an entry of the file: a default one, or one for nodes labelled size.
func entryText(name, pool, size string, more ...string) string {
	selector := ""
	if size != "" {
		selector = "\n  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: size, operator: In, values: [" + size + "]}]}]}"
	}
	return fmt.Sprintf("---\napiVersion: networking.x-k8s.io/v1\nkind: ClusterCIDR\nmetadata: {name: %s%s}\nspec:\n  perNodeHostBits: 8\n  ipv4: %s%s\n", name, strings.Join(more, ""), pool, selector)
}

const deletion = `, deletionTimestamp: "2026-01-02T03:04:05Z"`

// followed is a chooser that follows a file, in a bubble of synctest.
type followed struct {
	*testing.T
	*chooser
	path  string
	log   strings.Builder
	added atomic.Int32
}

const period = 10 * time.Second

func follow(t *testing.T, text string) *followed {
	f := &followed{T: t, path: filepath.Join(t.TempDir(), "entries.yaml")}
	f.write(text)
	o, err := parse(t, "-cluster-cidrs", f.path)
	if err != nil {
		t.Fatal(err)
	}
	if f.chooser, err = newChooser(o, slog.New(slog.NewTextHandler(&f.log, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go f.file.follow(ctx, period, func() { f.added.Add(1) })
	return f
}

func (f *followed) write(text string) {
	f.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// change writes the file and waits until it has been applied, if it can be.
func (f *followed) change(text string) {
	f.Helper()
	f.write(text)
	f.looks(2)
}

func (f *followed) looks(n int) {
	time.Sleep(time.Duration(n)*period + time.Second)
	synctest.Wait()
}

// load loads nodes as the controller does.
func (f *followed) load(nodes []nodeipam.Node) []*ipalloc.Error {
	problems := f.allocator.Load(nodes)
	f.loaded()
	return problems
}

// wantEntry checks from which entry a new node gets its CIDR, "" for none.
func (f *followed) wantEntry(name, size, want string) {
	f.Helper()
	as, err := f.allocator.Allocate(nodeipam.Node{Name: name, Labels: map[string]string{"size": size}})
	if as.Entry != want || (err == nil) != (want != "") {
		f.Errorf("%s of size %s: %v, %v, want one of %s", name, size, as, err, want)
	}
}

// wantEntries checks the entries and how many nodes each has.
func (f *followed) wantEntries(want string) {
	f.Helper()
	var got []string
	for e := range f.file.allocator.Entries() {
		s := fmt.Sprintf("%s %d", e.Name, e.Nodes)
		if e.Terminating {
			s += " terminating"
		}
		got = append(got, s)
	}
	if text := strings.Join(got, ", "); text != want {
		f.Errorf("entries %s, want %s", text, want)
	}
}

func TestEntriesFollowTheirFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := entryText("a", "10.1.0.0/16", ""), entryText("b", "10.2.0.0/16", "big")
		f := follow(t, a)
		if problems := f.load(nil); len(problems) > 0 {
			t.Fatal(problems)
		}
		f.wantEntry("n1", "big", "a")

		f.change(a + b) // an entry more, for nodes that come now
		f.wantEntry("n2", "big", "b")
		f.wantEntries("a 1, b 1")
		if f.added.Load() != 1 || !f.file.inForce() {
			t.Errorf("told %d times, in force %v\n%s", f.added.Load(), f.file.inForce(), f.log.String())
		}

		f.change(a) // b goes, when its node does
		f.wantEntries("a 1, b 1 terminating")
		f.wantEntry("n3", "big", "a")
		if as, ok := f.allocator.Lookup("n2"); !ok || as.Entry != "b" {
			t.Errorf("n2 has lost %v", as)
		}

		f.change(a + b) // too soon: an entry of that name is still there
		if f.file.inForce() {
			t.Error("an entry that could not be added is in force")
		}
		f.wantEntry("n4", "big", "a")
		f.allocator.Release("n2")
		f.wantEntries("a 3")
		f.looks(1) // now it can
		f.wantEntry("n5", "big", "b")
		f.wantEntries("a 3, b 1")
		if n := strings.Count(f.log.String(), "not in force"); n != 1 || !f.file.inForce() {
			t.Errorf("%d complaints:\n%s", n, f.log.String())
		}
	})
}

func TestWhatIsWrongWithTheFileChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := entryText("a", "10.1.0.0/16", "") + entryText("b", "10.2.0.0/16", "big")
		f := follow(t, good)
		f.load(nil)
		f.wantEntry("n1", "big", "b")
		for _, c := range []struct{ text, says string }{
			{"", "no ClusterCIDR in it"},
			{good + "---\napiVersion: v1\nkind: Node\n", "want ClusterCIDR"},
			{entryText("a", "10.3.0.0/16", "") + entryText("b", "10.2.0.0/16", "big"), "and cannot be changed"},
			{good + entryText("a", "10.1.0.0/16", ""), "a second entry of the name a"},
		} {
			f.change(c.text)
			if f.file.inForce() || !strings.Contains(f.log.String(), c.says) {
				t.Errorf("%q: in force %v, log:\n%s", c.text, f.file.inForce(), f.log.String())
			}
			f.wantEntries("a 0, b 1")
			f.looks(10)
			if n := strings.Count(f.log.String(), c.says); n != 1 {
				t.Errorf("said %d times: %s", n, c.says)
			}
			f.change(good)
			if !f.file.inForce() {
				t.Error("the good file is not in force")
			}
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		f.looks(1)
		if f.file.inForce() || !strings.Contains(f.log.String(), "no such file") {
			t.Error(f.log.String())
		}
		f.write(good)
		f.looks(1)
		f.wantEntries("a 0, b 1")
		if !f.file.inForce() || f.added.Load() != 0 {
			t.Error(f.log.String())
		}
	})
}

// A file is written in pieces, and one of them is a file by itself.
func TestHalfAFileIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := entryText("a", "10.1.0.0/16", ""), entryText("b", "10.2.0.0/16", "big")
		f := follow(t, a+b)
		f.load(nil)
		f.wantEntry("n1", "big", "b")
		for range 3 {
			f.write(a)
			f.looks(1)
			f.write(a + b)
			f.looks(1)
		}
		f.wantEntries("a 0, b 1")
	})
}

// Before it leads, a program has no nodes and follows every change, so that it starts
// with the file as it is then.
func TestTheFileOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, entryText("a", "10.1.0.0/16", "")+entryText("b", "10.2.0.0/16", "big"))
		f.change(entryText("b", "10.3.0.0/16", "big") + entryText("c", "10.4.0.0/16", "", deletion))
		f.wantEntries("b 0, c 0")
		if !f.file.inForce() {
			t.Error(f.log.String())
		}
		n := node("n1", "10.4.7.0/24")
		n.Entry = "c"
		if problems := f.load([]nodeipam.Node{n}); len(problems) > 0 {
			t.Error(problems)
		}
		f.wantEntries("b 0, c 1 terminating")
		f.looks(3)
		f.wantEntries("b 0, c 1 terminating")
		f.wantEntry("n2", "big", "b")
		f.wantEntry("n3", "", "")
		f.allocator.Release("n1")
		f.wantEntries("b 1")
		f.change(entryText("b", "10.3.0.0/16", "big") + entryText("c", "10.4.0.0/16", "", deletion) + "# still there\n")
		f.wantEntries("b 1")
		f.change(entryText("b", "10.3.0.0/16", "big", deletion) + entryText("d", "10.5.0.0/16", ""))
		f.wantEntries("b 1 terminating, d 0")
	})
}
