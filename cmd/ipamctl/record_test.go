package main

import (
	"os"
	"strings"
	"testing"
)

// A recording has every change once, also those that came between two runs, and goes on after a line that was cut off; history finds
// what is of an address, a handle, a host and a pool, in older files as well.
func TestRecord(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")}
	file := t.TempDir() + "/changes"
	run := func(want int, line string) string {
		t.Helper()
		status, out, stderr := call(t, env, strings.Fields(line)...)
		if status != want {
			t.Fatalf("%s: status %d, want %d\n%s%s", line, status, want, out, stderr)
		}
		return out + stderr
	}
	prefixes := t.TempDir() + "/prefixes.csv"
	if err := os.WriteFile(prefixes, []byte("prefix,pool,owner\n10.96.0.0/24,10.96.0.0/16,net-a\n10.96.1.0/24,10.96.0.0/16,net-b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitOK, "prefix import "+prefixes)
	run(exitOK, "number assign vlan tenant-a --range 1-9")
	run(exitOK, "watch --to "+file+" --count 1") // where it begins
	run(exitOK, "prefix release --owner net-a --yes")
	run(exitOK, "assign --host x --handle one 10.1.0.100")
	run(exitOK, "release --handle one --yes")
	run(exitOK, "pool set lb --priority 3")
	run(exitOK, "watch --to "+file+" --count 4 --size 10") // block, address, cooling, pool
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n < 1 || !strings.Contains(string(text), "pool added") {
		t.Errorf("%s", text)
	}
	if err := os.WriteFile(file, append(text, `{"time":"2026`...), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitOK, "assign --host y --handle two 10.1.0.101")
	run(exitOK, "watch --to "+file+" --count 1 --size 10")
	for word, want := range map[string][]string{
		"10.1.0.100": {"assigned", "cooling"}, "one": {"assigned"}, "x": {"assigned", "block claimed"}, "two": {"10.1.0.101"}, "lb": {"as found: pool added"},
		"10.96.0.0/24": {"prefix added", "prefix removed"}, "net-b": {"prefix added"}, "tenant-a": {"vlan 1"},
	} {
		out := run(exitOK, "history "+word+" --recording "+file)
		for _, w := range want {
			if strings.Count(out, w) < 1 {
				t.Errorf("%s lacks %s:\n%s", word, w, out)
			}
		}
	}
	if out := run(exitOK, "history 10.1.0.100 --recording "+file); strings.Count(out, "assigned") != 1 {
		t.Errorf("a change is there twice, or not at all:\n%s", out)
	}
	if out := run(exitOK, "history 10.1.0.100 --at 2026-03-01T12:00:00Z --recording "+file); strings.Count(out, "10.1.0.100") != 1 || !strings.Contains(out, "cooling") {
		t.Error(out)
	}
	run(exitNotFound, "history 10.1.0.100 --at 2026-02-01T12:00:00Z --recording "+file)
	run(exitNotFound, "history nobody --recording "+file)
	// A file that a full disk left empty goes on after the older one.
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	run(exitOK, "assign --host z --handle three 10.1.0.102")
	run(exitOK, "watch --to "+file+" --count 3") // what the file lost, too
	if out := run(exitOK, "history 10.1.0.102 --recording "+file); strings.Count(out, "assigned") != 1 {
		t.Error(out)
	}
	if text := must[[]byte](t)(os.ReadFile(file)); strings.Contains(string(text), "recording began") {
		t.Errorf("it began again:\n%s", text)
	}
	run(exitUsage, "history nobody")
	run(exitUsage, "watch --to x --store "+newBolt(t, cluster(t)))
}
