package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// runWith runs the program and returns its exit status and what it printed, without the times.
func runWith(args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = run(args, &out, &errs)
	return status, regexp.MustCompile(`\([0-9.]+m?s\)`).ReplaceAllString(out.String(), "(varies)"), errs.String()
}

// The output on the built-in traces is that of testdata/builtin.txt.
func TestBuiltin(t *testing.T) {
	want, err := os.ReadFile("testdata/builtin.txt")
	if err != nil {
		t.Fatal(err)
	}
	status, got, errs := runWith("-map")
	if status != 0 || errs != "" || got != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("exit status %d, %s\n%s", status, errs, got)
	}
}

func TestHelp(t *testing.T) {
	if status, _, errs := runWith("-h"); status != 0 || !strings.Contains(errs, "-nodes file") {
		t.Errorf("exit status %d: %s", status, errs)
	}
}

// Traces of one's own may have other columns, any order, a byte order mark, spaces and quotes.
func TestOwnTraces(t *testing.T) {
	nodes, pods := write(t, "\ufeffcpu_milli, sn,rack\n64000,\"a\", 1\n 8000,b,2\n"), write(t, "name,cpu_milli,creation_time,deletion_time\np,1,5,5\nq,1,5,\nr,1,0,7200\n")
	status, out, errs := runWith("-nodes", nodes, "-pods", pods)
	for _, want := range []string{"simulated: 2 nodes and 3 pods, from ", "2 deleted, at most 3 at a time", "IPv4 10.244.0.0/16: 1 address held"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if status != 0 || errs != "" {
		t.Errorf("exit status %d: %s", status, errs)
	}
}

func TestMalformed(t *testing.T) {
	nodes := func(text string) []string { return []string{"-nodes", write(t, text)} }
	pods := func(rows string) []string {
		return []string{"-pods", write(t, "name,cpu_milli,creation_time,deletion_time\n"+rows)}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-none"}, "flag provided but not defined"},
		{[]string{"trace.csv"}, `unexpected argument "trace.csv"`},
		{[]string{"-nodes", filepath.Join(t.TempDir(), "none")}, "none"},
		{nodes(""), "trace.csv:1:1: the file is empty"},
		{nodes("sn\na\n"), `trace.csv:1:1: the header has no column "cpu_milli"`},
		{nodes("sn,cpu_milli,sn\n"), `trace.csv:1:14: column "sn" appears twice`},
		{nodes("sn,cpu_milli\n"), "2:1: no node after the header"},
		{nodes("sn,cpu_milli\na,1\nb\n"), "trace.csv:3:1: wrong number of fields"},
		{nodes("sn,cpu_milli\na,1\na,1\n"), `trace.csv:3:1: sn "a" is already on line 2`},
		{nodes("sn,cpu_milli\n,1\n"), "trace.csv:2:1: sn must have 1 to 1024 bytes"},
		{nodes("sn,cpu_milli\n" + strings.Repeat("a", 1025) + ",1\n"), "trace.csv:2:1: sn must have 1 to 1024 bytes"},
		{nodes("sn,cpu_milli\na,-1\n"), `trace.csv:2:3: cpu_milli is "-1", not a whole number`},
		{nodes("sn,cpu_milli\na,1099511627777\n"), "trace.csv:2:3: cpu_milli"},
		{nodes("sn,cpu_milli\na,\"1\n"), "trace.csv:2:"},
		{pods("p,1,x,\n"), `trace.csv:2:5: creation_time is "x"`},
		{pods("p,1,5,4\n"), "trace.csv:2:7: deletion_time is 4, before the creation_time 5"},
		{pods("p,1,4294967297,\n"), "trace.csv:2:5: creation_time"},
	} {
		status, out, errs := runWith(c.args...)
		if status != 2 || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit status %d, %q; want 2 and %q", c.args, status, errs, c.want)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A node for which one family is full takes nothing of the other.
func TestAllOrNothing(t *testing.T) {
	families, err := newFamilies(true)
	if err != nil {
		t.Fatal(err)
	}
	if families[1].set, err = cidrset.New(netip.MustParsePrefix("fd00::/63"), 64); err != nil {
		t.Fatal(err)
	}
	nodes := []node{{name: "a"}, {name: "b"}, {name: "c"}}
	if _, err := serveNodes(families, nodes); !errors.Is(err, ipalloc.ErrFull) || !strings.Contains(err.Error(), `node "c"`) {
		t.Errorf("got %v", err)
	}
	if used := families[0].set.Stats().Used; used != 2 {
		t.Errorf("%d IPv4 prefixes are taken, want 2", used)
	}
}

// Differences between the nodes' account and the sets are found.
func TestCompareNodes(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(families []family, held map[string][]netip.Prefix)
	}{
		{"none", func([]family, map[string][]netip.Prefix) {}},
		{"a node was forgotten", func(_ []family, held map[string][]netip.Prefix) { delete(held, "a") }},
		{"a prefix was freed", func(f []family, held map[string][]netip.Prefix) { _, _ = f[1].set.Release(held["b"][1]) }},
		{"two nodes have one prefix", func(_ []family, held map[string][]netip.Prefix) { held["a"] = held["b"] }},
	} {
		families, err := newFamilies(true)
		if err != nil {
			t.Fatal(err)
		}
		held, err := serveNodes(families, []node{{name: "a"}, {name: "b"}})
		if err != nil {
			t.Fatal(err)
		}
		c.harm(families, held)
		if err := compare(families, held); (err == nil) != (c.name == "none") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Differences between the pods' account and the engine are found.
func TestComparePods(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name string
		harm func(*network) error
	}{
		{"none", func(*network) error { return nil }},
		{"released behind its back", func(n *network) error { _, err := n.engine.ReleaseByHandle(ctx, "p"); return err }},
		{"given to another", func(n *network) error { n.holder[n.held["p"][0]] = "q"; return nil }},
		{"forgotten", func(n *network) error { delete(n.holder, n.held["p"][1]); return nil }},
	} {
		n, err := newNetwork(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.add(ctx, "a", "p"); err != nil {
			t.Fatal(err)
		}
		if err := c.harm(n); err != nil {
			t.Fatal(err)
		}
		if err := n.compare(ctx); (err == nil) != (c.name == "none") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// An address that the engine gives twice ends the replay, and a pod for which there is none says so.
func TestAddPod(t *testing.T) {
	n, err := newNetwork(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		if err := n.add(t.Context(), fmt.Sprint("node-", i%40), fmt.Sprint("pod-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.add(t.Context(), "node-1", "late"); !errors.Is(err, ipalloc.ErrFull) || !strings.Contains(err.Error(), `pod "late" on node "node-1"`) {
		t.Errorf("got %v", err)
	}
	if n.counts.borrowed == 0 || len(n.holder) != 512 {
		t.Errorf("%d borrowed, %d held", n.counts.borrowed, len(n.holder))
	}
	if _, err := n.engine.ReleaseByHandle(context.Background(), "pod-0"); err != nil { // and not remove
		t.Fatal(err)
	}
	if err := n.add(t.Context(), alloc.HostOwner("node-0").Name, "twice"); err == nil || !strings.Contains(err.Error(), `and pod "pod-0" holds it`) {
		t.Errorf("got %v", err)
	}
}
