package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/storeurl"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var update = flag.Bool("update", false, "write the golden file")

// asProgram makes the test binary be the program: the one that tests kill.
const asProgram = "DURABLE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// guard is how long the tests wait for what should take seconds.
const guard = 3 * time.Minute

// start runs the program in this process.
func start(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

// golden returns what the program finds in the end: the same on every store, and after every death.
func golden(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "builtin.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMemory(t *testing.T) {
	status, out, errs := start(t.Context())
	if status != exitOK || !strings.Contains(errs, "memory: 0 of 294 events are done\n") {
		t.Fatalf("status %d, %s", status, errs)
	}
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", "builtin.txt"), []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out != golden(t) {
		t.Errorf("\n%s", out)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"-bogus"}, "flag provided but not defined: -bogus"},
		{[]string{"x.db"}, `unexpected argument "x.db": a store is named with -store`},
		{[]string{"-store", "x.db"}, "-store x.db: a store is needed: memory, bolt:///path/of/file, sqlite:///path/of/file, postgres://user@host:port/database, etcd://host:port/prefix or kube://namespace/name"},
		{[]string{"-store", "redis://x"}, "-store redis://x: no such kind of store; the kinds are memory, bolt, sqlite, postgres, etcd, kube"},
		{[]string{"-store", "memory://x"}, "-store memory://x: memory has no address"},
		{[]string{"-store", "bolt://"}, "-store bolt://: the path of a file is missing, as in bolt:///var/lib/ipam.db"},
		{[]string{"-store", "etcd:///x"}, "-store etcd:///x: a host is missing, as in etcd://10.0.0.1:2379/ipam"},
		{[]string{"-store", "etcd://x:2379/"}, "-store etcd://x:2379/: the prefix of the keys is missing, as in etcd://10.0.0.1:2379/ipam"},
		{[]string{"-copy-to", "bolt:///x"}, "-copy-to: nothing is kept in memory"},
		{[]string{"-store", "bolt:///x", "-copy-to", "memory"}, "-copy-to: nothing is kept in memory"},
		{[]string{"-store", "bolt:///x", "-copy-to", "y"}, "-copy-to y: a store is needed: memory, bolt:///path/of/file, sqlite:///path/of/file, postgres://user@host:port/database, etcd://host:port/prefix or kube://namespace/name"},
		{[]string{"-podpool4", "none", "-podpool6", "none"}, "-podpool4 and -podpool6 are both none: nothing to give to the pods"},
		{[]string{"-place", "best"}, `-place: "best" is no placement: least or most`},
		{[]string{"-nodes", "testdata/builtin.txt"}, `testdata/builtin.txt:1:1: no column "sn" in the header, which needs sn,cpu_milli,memory_mib`},
	} {
		status, out, errs := start(t.Context(), c.args...)
		if status != exitUsage || out != "" || errs != "durable: "+c.text+"\n" {
			t.Errorf("%v: status %d, %q, %q\nwant %q", c.args, status, out, errs, c.text)
		}
	}
	if status, out, errs := start(t.Context(), "-h"); status != exitOK || out != "" || !strings.HasPrefix(errs, "Usage: durable [flags]\n") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

func TestFailures(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.db")
	if err := os.WriteFile(file, []byte("not a store\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"not a store of this package":                          {"-store", "bolt://" + file},
		"no such file or directory":                            {"-store", "bolt://" + filepath.Join(dir, "no", "x.db")},
		"no such file":                                         {"-store", "bolt://" + filepath.Join(dir, "x2.db"), "-copy-to", "bolt://" + filepath.Join(dir, "x3.db")},
		"at the peak there are 82 pods (-podpool4, -podpool6)": {"-podpool4", "10.0.0.0/28"},
	} {
		if status, out, errs := start(t.Context(), args...); status != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %q, %q\nwant %q", args, status, out, errs, want)
		}
	}
}

// Of a program that is stopped before it began, nothing is left.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, out, errs := start(ctx)
	if want := "durable: stopped; nothing is kept in memory: it will begin anew\n"; status != exitStopped || out != "" || errs != want {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// process is the program in a process of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	events *bufio.Scanner // what it says of each event
	stdout bytes.Buffer
	cancel context.CancelFunc
}

// spawn starts the program on a store.
func spawn(t *testing.T, db string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	p := &process{t: t, cmd: exec.CommandContext(ctx, exe, append([]string{"-store", db, "-events"}, args...)...), cancel: cancel}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.events = bufio.NewScanner(stderr)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// await reads until the program has seen through so many events of this run, and returns the number
// of the last; ok is false if it ended before that.
func (p *process) await(count int) (last int, ok bool) {
	for count > 0 && p.events.Scan() {
		if n, err := fmt.Sscanf(p.events.Text(), "event %d of", &last); n == 1 && err == nil {
			count--
		}
	}
	return last, count == 0
}

// end waits until the program has ended, and returns its status, -1 if it was killed.
func (p *process) end() (status int, stderr string) {
	p.t.Helper()
	defer p.cancel()
	rest := []string{p.events.Text()}
	for p.events.Scan() {
		rest = append(rest, p.events.Text())
	}
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), strings.Join(rest, "\n")
}

// held says who holds what in a store, without the program.
func held(t *testing.T, db store.Store) map[string][]netip.Addr {
	t.Helper()
	e, err := ipset.New(db, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string][]netip.Addr{}
	owner := map[netip.Addr]string{}
	for a, err := range e.Allocations(t.Context(), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := owner[a.Address]; ok {
			t.Errorf("%v is held by %q and %q", a.Address, other, a.Handle)
		}
		owner[a.Address] = a.Handle
		pods[a.Handle] = append(pods[a.Handle], a.Address)
	}
	return pods
}

// checkEnd looks into a store after the whole trace: each pod that stays has one address of each
// family, and nobody else has any.
func checkEnd(t *testing.T, location string) {
	t.Helper()
	l, err := storeurl.Parse("-store", location)
	if err != nil {
		t.Fatal(err)
	}
	db, closeStore, err := open(t.Context(), l, true)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	pods := held(t, db)
	for _, e := range cfg.net.Events {
		if !e.Pod.Stays {
			continue
		}
		got := pods[e.Pod.Name]
		if len(got) != 2 || !slices.ContainsFunc(got, netip.Addr.Is4) || !slices.ContainsFunc(got, netip.Addr.Is6) {
			t.Errorf("pod %q has %v", e.Pod.Name, got)
		}
		delete(pods, e.Pod.Name)
	}
	if len(pods) > 0 {
		t.Errorf("left behind: %v", pods)
	}
	if err := closeStore(); err != nil {
		t.Error(err)
	}
}
