package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// asProgram makes the test binary be the program, as many seconds after noon as its value says.
const asProgram = "IPAMCTL_TEST_RUN_MAIN"

func clock() time.Time {
	seconds, _ := strconv.Atoi(os.Getenv(asProgram))
	return noon.Add(time.Duration(seconds) * time.Second)
}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: clock}
		os.Exit(a.run(context.Background(), os.Args[1:]))
	}
	if path := os.Getenv("IPAMCTL_SERVICE"); path != "" {
		fmt.Fprintln(os.Stderr, service(path))
		os.Exit(exitUnavailable)
	}
	os.Exit(m.Run())
}

// service is the service of TestBesideService: it serves the file that IPAMCTL_SERVICE names until it is killed.
func service(path string) error {
	db, err := boltstore.Open(context.Background(), path, boltstore.Options{LockWait: 10 * time.Second})
	if err != nil {
		return err
	}
	return errors.Join(remote.Serve(context.Background(), path+".sock", db), db.Close())
}

// Every command that a document shows is run by a shell, in its order, and the answer is what the document says.
// With -update the answers are written.
func TestDocuments(t *testing.T) {
	for _, name := range []string{"README.md", "MIGRATING.md"} {
		t.Run(name, func(t *testing.T) { runDocument(t, name) })
	}
}

func runDocument(t *testing.T, name string) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED, there is no bash here")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "ipamctl")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	exports := "" // each command is a shell of its own
	commands, inside := 0, false
	m := &migration{dir: dir, live: map[netip.Addr]bool{}}
	for _, line := range strings.SplitAfter(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console\n"
			out.WriteString(line)
		case !inside:
			out.WriteString(line)
		case strings.HasPrefix(line, "$ "):
			out.WriteString(line)
			command := strings.TrimSpace(line[2:])
			if strings.HasPrefix(command, "export ") {
				exports += command + "\n"
				continue
			}
			commands++
			out.WriteString(answer(t, bash, dir, exports+command, commands))
			if name == "MIGRATING.md" {
				m.traffic(t, exports, command)
			}
		}
	}
	if name == "MIGRATING.md" && m.had == 0 {
		t.Error("no caller got an address beside the steps of the page")
	}
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(out.String(), "\n"), strings.Split(string(text), "\n")
	for i := range min(len(got), len(want)) {
		if amount.ReplaceAllString(got[i], "${1}N") != amount.ReplaceAllString(want[i], "${1}N") {
			t.Fatalf("%s:%d says\n%s\nand it is\n%s", name, i+1, want[i], strings.Join(got[i:min(len(got), i+10)], "\n"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %d lines, want %d", name, len(want), len(got))
	}
}

// A command that the text of a document names is one that there is, with the flags that are named.
func TestDocumentsNameCommands(t *testing.T) {
	root := (&app{}).root()
	block, inline := regexp.MustCompile("(?s)```.*?```"), regexp.MustCompile("`([^`]+)`")
	named := 0
	for _, name := range []string{"README.md", "MIGRATING.md", "../../metrics/README.md", "../../README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1) {
			words := strings.Fields(m[1])
			ours := len(words) > 0 && words[0] == "ipamctl"
			if ours {
				words = words[1:]
			}
			if !ours && (name != "README.md" || !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return len(words) > 0 && c.Name() == words[0] })) {
				continue
			}
			c, args, err := root.Find(words)
			if err != nil || c.HasSubCommands() && len(args) > 0 && c != root && !strings.HasPrefix(args[0], "-") {
				t.Errorf("%s: %s: there is no such command", name, m[1])
				continue
			}
			named++
			for _, w := range words {
				flag, _, _ := strings.Cut(w, "=")
				if flag, long := strings.CutPrefix(flag, "--"); long && c.Flag(flag) == nil && flag != "help" {
					t.Errorf("%s: %s: %s has no flag --%s", name, m[1], c.CommandPath(), flag)
				}
			}
		}
	}
	if named < 60 {
		t.Errorf("%d commands", named)
	}
}

// amount is what depends on how a release lays out its records.
var amount = regexp.MustCompile(`^((records|written|expected) +)\d+$`)

// answer runs a command and returns what it writes, with its status if that is not 0.
func answer(t *testing.T, bash, dir, command string, seconds int) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bash, "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), fmt.Sprint(asProgram, "=", seconds), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := strings.ReplaceAll(sequence.ReplaceAllString(out.String(), "${1}N"), dir, "$PWD")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err != nil {
		text += "(" + err.Error() + ")\n"
	}
	return text
}
