package plugin

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitForOpen waits until a process has the lock file of host-local open.
func (n *node) waitForOpen(network string) {
	n.Helper()
	f, err := os.Open(filepath.Join(n.dir, network, guardName))
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	for range 2000 {
		if free, known := unopened(f); !known {
			n.Skip("SKIPPED, the file system has no leases")
		} else if !free {
			return
		}
		time.Sleep(time.Millisecond)
	}
	n.Fatal("no call of host-local opened its lock file")
}

// TestLateCallsOfTheOriginal: a call of host-local that has opened its lock file, and asks
// for the lock a while after this plugin began to take the network over, keeps its word: what
// it added is held, what it released is not.
func TestLateCallsOfTheOriginal(t *testing.T) {
	n := newNode(t, other(t, "host-local"))
	late := n.traced("delay=flock:300ms")
	mine := newNode(t, ours(t))
	mine.dir = n.dir
	for i, call := range []invocation{add1("late", ""), del1("b", "")} {
		call.conf = conf(fmt.Sprint("net", i), one24)
		n.must(add1("a", call.conf))
		n.must(add1("b", call.conf))
		done := make(chan answer, 1)
		go func() { a, _ := late.start(call, time.Hour); done <- a }()
		n.waitForOpen(fmt.Sprint("net", i))
		told := map[string]string{"a": "10.1.2.2/24", "b": "10.1.2.3/24", "mine": mine.first("mine", call.conf)}
		if a := <-done; a.code != 0 {
			t.Fatalf("%s: %s", call, a.stdout)
		} else if call.verb == "ADD" {
			told["late"] = a.addresses(t)[0]
		} else {
			delete(told, "b")
		}
		if got := mine.holders(fmt.Sprint("net", i), 24); !maps.Equal(got, told) {
			t.Errorf("%s: %v are held, and the callers were told %v", call.verb, got, told)
		}
	}
}

// TestTakeoverStorm: calls of both plugins at once, on a machine on which every call of the
// system may take its time, at the moment of the takeover.
func TestTakeoverStorm(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	n := newNode(t, other(t, "host-local"))
	n.traced("kill=1")
	for round := range rounds {
		network := fmt.Sprint("net", round)
		c := conf(network, one24)
		s := &handoverStorm{T: t, told: map[string]string{}}
		for i := range 6 {
			s.call(n, "ADD", fmt.Sprint("old", i), c)
		}
		var wg sync.WaitGroup
		for i := range 18 {
			stretched := *n
			stretched.trace = fmt.Sprint("stretch=", round*100+i)
			if i%6 == 5 {
				stretched.bin = ours(t)
			}
			verb, container := "ADD", fmt.Sprint("new", i)
			if i < 6 {
				verb, container = "DEL", fmt.Sprint("old", i)
			}
			wg.Go(func() { s.call(&stretched, verb, container, c) })
		}
		wg.Wait()
		mine := &node{TB: t, dir: n.dir, bin: ours(t)}
		mine.must(del1("nobody", c))
		s.compare(mine.holders(network, 24))
	}
}

// TestWordsKilledEverywhere kills each word that hands a network over at each of its system
// calls, and then repeats it: nothing is lost, nothing stays behind.
func TestWordsKilledEverywhere(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 11
	}
	base := newNode(t, ours(t))
	base.traced("kill=1")
	want := manyFiles(t, filepath.Join(base.dir, "files", "net"), 4)
	base.must(add1("x", strings.ReplaceAll(conf("net", `"ranges":[[{"subnet":"10.9.0.0/16"}]]`), "%DIR%", base.dir+"/ours")))
	for _, c := range []struct {
		from string
		word []string // empty: the first call of a runtime
		end  []string // what is in the directory at the end
	}{
		{"files", nil, []string{lockName, guardName, stateName, bootName, takenName, spareName}},
		{"ours", []string{"export"}, []string{lockName, "10.9.0.2", cursorPrefix + "0"}},
	} {
		t.Run(strings.Join(append([]string{"from " + c.from}, c.word...), " "), func(t *testing.T) {
			places := 0
			for at := 1; ; at += stride {
				n := &node{TB: t, dir: t.TempDir(), bin: base.bin}
				if err := os.CopyFS(n.dir, os.DirFS(filepath.Join(base.dir, c.from))); err != nil {
					t.Fatal(err)
				}
				before := heldOf(n.state("net"))
				if c.from == "files" {
					before = want
				}
				call := func(trace string) answer {
					m := *n
					m.trace = trace
					if c.word == nil {
						return m.call(del1("nobody", conf("net", one24)))
					}
					return m.word(c.word...)
				}
				killed := call(fmt.Sprint("kill=", at))
				again := call("")
				if again.code != 0 {
					t.Fatalf("killed at %d, then %+v", at, again)
				}
				after := heldOf(n.state("net"))
				if slices.Equal(c.word, []string{"export"}) {
					after = heldOf(n.files("net"))
				}
				if !after.equal(before) {
					t.Fatalf("killed at %d: %v, want %v", at, after, before)
				}
				for name := range n.ls("net") {
					if !slices.Contains(c.end, name) {
						t.Errorf("killed at %d: %s is left", at, name)
					}
				}
				if killed.code == 0 {
					break
				}
				places++
			}
			if places < 3 {
				t.Errorf("%d places", places)
			}
			t.Logf("%d places", places)
		})
	}
}

// TestInstallKilledEverywhere kills install and uninstall at each of their system calls, and
// then repeats them: there is always a program to call, and the original is not lost.
func TestInstallKilledEverywhere(t *testing.T) {
	stride := 2
	if testing.Short() {
		stride = 9
	}
	base := newNode(t, ours(t))
	base.traced("kill=1")
	mine, err := os.ReadFile(base.bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"install", "uninstall"} {
		for at := 1; ; at += stride {
			n := newNode(t, base.bin)
			bin := filepath.Join(n.dir, "bin")
			dest := filepath.Join(bin, "host-local")
			if err := os.Mkdir(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			n.put(dest, "the original")
			want, kept := string(mine), "the original"
			if word == "uninstall" {
				if out, err := n.command(nil, "install", bin).CombinedOutput(); err != nil {
					t.Fatalf("%s", out)
				}
				n.must(add1("a", conf("net", one24)))
				want, kept = "the original", ""
			}
			networks := filepath.Join(n.dir, "net")
			killed := *n
			killed.trace = fmt.Sprint("kill=", at)
			cmd := killed.command(nil, word, bin, "-data-dir", n.dir)
			cmd.Run()
			if b, err := os.ReadFile(dest); string(b) != string(mine) && string(b) != "the original" {
				t.Fatalf("%s killed at %d: %d bytes, %v", word, at, len(b), err)
			}
			if out, err := n.command(nil, word, bin, "-data-dir", n.dir).CombinedOutput(); err != nil {
				t.Fatalf("%s killed at %d, then %s", word, at, out)
			}
			b, _ := os.ReadFile(dest)
			o, _ := os.ReadFile(dest + originalSuffix)
			if string(b) != want || string(o) != kept {
				t.Fatalf("%s killed at %d: %d and %d bytes", word, at, len(b), len(o))
			}
			if _, err := os.Stat(filepath.Join(networks, "10.1.2.2")); (err == nil) != (word == "uninstall") {
				t.Fatalf("%s killed at %d: %v", word, at, err)
			}
			if cmd.ProcessState.ExitCode() == 0 {
				break
			}
		}
	}
}
