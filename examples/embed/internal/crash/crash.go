// Package crash kills a program with SIGKILL while it works, starts it again, and compares its file with its output. The program
// is the test binary itself, so a test needs nothing but Main and Test.
package crash

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
)

// Do runs one deed for a key, such as a machine's name. It reports to the test the present holdings of the key: words such as
// addresses, or none.
type Do func(key string, deed func() (holds []string, err error)) error

// Work works on a file until the process is killed.
type Work func(ctx context.Context, file string, random *rand.Rand, do Do) error

const (
	fileVariable = "EMBED_CRASH_FILE"
	runVariable  = "EMBED_CRASH_RUN"
)

// Main is the TestMain of a package whose work is to be killed.
func Main(m *testing.M, work Work) {
	file := os.Getenv(fileVariable)
	if file == "" {
		os.Exit(m.Run())
	}
	run, _ := strconv.ParseUint(os.Getenv(runVariable), 10, 64)
	err := work(context.Background(), file, rand.New(rand.NewPCG(run, 1)), func(key string, deed func() ([]string, error)) error {
		fmt.Println("begin", key)
		holds, err := deed()
		if err == nil {
			fmt.Println("end", key, strings.Join(holds, " "))
		}
		return err
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Test starts the work, kills it in the midst of a deed, and starts it again, three times in all. Each time audit opens the file
// and returns the holdings of every key. That must equal the last report of the work, except for the key of the interrupted deed.
// This key has its former holdings, or all holdings that the deed would have given. To check the latter, whole reports whether
// words are a complete set of holdings of a key. No word may have more than one holder.
func Test(t *testing.T, whole func(key string, holds []string) bool, audit func(t *testing.T, file string) map[string][]string) {
	file := filepath.Join(t.TempDir(), "state.db")
	said := make(map[string]string)
	for run := range 3 {
		open := start(t, file, run, said)
		have := audit(t, file)
		holders := make(map[string]int)
		for key, holds := range have {
			if key == open {
				if !whole(key, holds) {
					t.Errorf("run %d: %s was cut short and holds %q", run, key, holds)
				}
			} else if got := strings.Join(holds, " "); got != said[key] {
				t.Errorf("run %d: %s holds %q, was told %q", run, key, got, said[key])
			}
			for _, word := range holds {
				if holders[word]++; holders[word] > 1 {
					t.Errorf("run %d: %s is held by %d", run, word, holders[word])
				}
			}
		}
		for key, holds := range said {
			if holds != "" && key != open && have[key] == nil {
				t.Errorf("run %d: %s has lost %q", run, key, holds)
			}
		}
		if open != "" {
			said[open] = strings.Join(have[open], " ")
		}
		if t.Failed() {
			return
		}
	}
}

// Held checks that the records of an engine are consistent, and returns the holdings of each handle.
func Held(t *testing.T, e *ipset.Engine) map[string][]string {
	t.Helper()
	have := make(map[string][]string)
	for a, err := range e.Allocations(t.Context(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !a.Cooling {
			for a := range a.Holders() {
				have[a.Handle] = append(have[a.Handle], a.Address.String())
			}
		}
	}
	if rep, err := e.Operator().Check(t.Context(), nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	return have
}

// start runs the work until it is killed, notes what it says, and returns the key of the deed that was cut short.
func start(t *testing.T, file string, run int, said map[string]string) (open string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fileVariable+"="+file, runVariable+"="+strconv.Itoa(run))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	deeds, last := 0, 120+run*37
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		verb, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		key, holds, _ := strings.Cut(rest, " ")
		switch {
		case err != nil:
		case verb == "begin":
			open = key
			if deeds++; deeds == last { // in the midst of this one, or just after it
				time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
				_ = cmd.Process.Kill()
			}
		case verb == "end":
			open, said[key] = "", holds
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	if deeds < last {
		t.Fatalf("run %d: the program ended after %d deeds: %s", run, deeds, &errs)
	}
	return open
}
