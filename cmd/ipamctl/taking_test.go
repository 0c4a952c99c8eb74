package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A pool over a part of a live one takes its blocks, so it is asked about with what it takes.
func TestPoolTakesAloud(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	status, _, stderr := call(t, env, "pool", "add", "x", "10.1.0.0/26", "--block-bits", "28")
	if status != exitRefused || !strings.Contains(stderr, "from pool pods") || !strings.Contains(stderr, "--yes") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, _, stderr := call(t, env, "pool", "add", "x", "10.1.0.0/26", "--block-bits", "28", "--dry-run"); status != exitOK || !strings.Contains(stderr, "from pool pods") {
		t.Errorf("status %d: %s", status, stderr)
	}
	for _, line := range []string{"pool add x 10.1.0.0/26 --block-bits 28 --yes", "pool add y 10.9.0.0/24"} { // y takes nothing
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != exitOK {
			t.Error(stderr)
		}
	}
}

// What has nobody is no file of host-local, and an address with several holders is refused before a file is written.
func TestHostLocalHasOneHolder(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	dir := t.TempDir()
	run := func(want int, line string) string {
		t.Helper()
		status, out, stderr := call(t, env, strings.Fields(line)...)
		if status != want {
			t.Fatalf("%s: status %d\n%s%s", line, status, out, stderr)
		}
		return out + stderr
	}
	run(exitOK, "assign --host x --handle gone 10.1.0.100")
	run(exitOK, "release --handle gone --yes")
	if out := run(exitOK, "show 10.1.0.100"); !strings.Contains(out, "cooling") {
		t.Fatal(out)
	}
	run(exitOK, "export --format host-local --to "+dir+"/net")
	if exists(dir + "/net/10.1.0.100") {
		t.Error("a cooling address is exported as held")
	}
	run(exitOK, "import --into-open --format csv "+listFile(t, dir, "address,handle,host,share,until\n10.1.0.101,one,host:x,2,\n10.1.0.101,two,host:y,2,\n"))
	if out := run(exitRefused, "export --format host-local --to "+dir+"/more"); !strings.Contains(out, "10.1.0.101 has several holders") || exists(dir+"/more") {
		t.Error(out)
	}
}

// An export writes through no link, and keeps no part of a file.
func TestExportFollowsNoLink(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "out")
	if err := os.Symlink(victim, link); err != nil {
		t.Skip(err)
	}
	for _, line := range []string{"export --to " + link, "map --svg " + link} {
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != exitConflict || exists(victim) {
			t.Errorf("%s: status %d, %s", line, status, stderr)
		}
	}
}

// Who had an address is answered by holder, also for what was there when the recording began; a pool's change names its settings.
func TestHistoryByHolder(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")}
	dir := t.TempDir()
	file := dir + "/changes"
	run := func(line string) string {
		t.Helper()
		status, out, stderr := call(t, env, strings.Fields(line)...)
		if status != exitOK {
			t.Fatalf("%s: status %d\n%s%s", line, status, out, stderr)
		}
		return out
	}
	run("import --into-open --format csv " + listFile(t, dir, "address,handle,host,share,until\n10.1.0.101,one,host:x,3,\n"))
	run("watch --to " + file + " --count 1")
	run("import --into-open --format csv " + listFile(t, dir, "address,handle,host,share,until\n10.1.0.101,two,host:y,3,\n"))
	run("import --into-open --format csv " + listFile(t, dir, "address,handle,host,share,until\n10.1.0.101,three,host:z,3,\n"))
	run("release 10.1.0.101 --if-handle two")
	run("pool set lb --priority 3")
	run("pool set lb --priority 4 --disabled")
	run("watch --to " + file + " --timeout 2s")
	out := run("history 10.1.0.101 --at 2026-03-01T12:00:00Z --recording " + file + " -o csv")
	for _, want := range []string{"as found: assigned,10.1.0.101,,one on host:x", "released,10.1.0.101,two on host:y", "assigned,10.1.0.101,,three on host:z"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out, "10.1.0.101"); n != 3 {
		t.Errorf("%d rows:\n%s", n, out)
	}
	if out := run("history lb --recording " + file); !strings.Contains(out, "lb disabled=true priority=4") {
		t.Error(out)
	}
}
