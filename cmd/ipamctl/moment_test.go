package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at runs the program some time after noon.
func at(t *testing.T, env map[string]string, later time.Duration, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	a := &app{stdin: strings.NewReader(env["stdin"]), stdout: &out, stderr: &errs, getenv: func(k string) string { return env[k] }, now: func() time.Time { return noon.Add(later) }}
	status = a.run(t.Context(), args)
	return status, out.String(), errs.String()
}

// A list is believed as of its moment: what was assigned after it is never taken for unused, however often it is used.
func TestListHasAMoment(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := t.TempDir()
	env := map[string]string{"IPAMCTL_STORE": name}
	list, seen := filepath.Join(dir, "list"), filepath.Join(dir, "c.json")
	_, text, _ := at(t, env, time.Hour, "address", "list", "--as", "in-use")
	if !strings.HasPrefix(text, "# taken 2026-03-01T13:00:00Z\n") || !strings.HasSuffix(text, "\n# end\n") {
		t.Fatal(text)
	}
	var rest []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "10.1.0.48 ") && line != "10.1.0.48\n" { // which leaks
			rest = append(rest, line)
		}
	}
	if err := os.WriteFile(list, []byte(strings.Join(rest, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := at(t, env, 61*time.Minute, "assign", "--host", "a", "--handle", "young", "-4", "2", "--pool", "pods"); status != exitOK {
		t.Fatal(stderr)
	}
	status, out, stderr := at(t, env, 62*time.Minute, "check", "--in-use", list, "--all-pools")
	if status != exitFindings || strings.Contains(out, "young") || !strings.Contains(out, "10.1.0.48") {
		t.Errorf("status %d: %s%s", status, out, stderr)
	}
	for _, later := range []time.Duration{62 * time.Minute, 80 * time.Minute} {
		status, out, stderr = at(t, env, later, "gc", "--in-use", list, "--all-pools", "--candidates", seen, "--max", "100%", "--yes")
		if status != exitOK || strings.Contains(out, "young") || !strings.Contains(out, "10.1.0.48") {
			t.Errorf("status %d: %s%s", status, out, stderr)
		}
	}
	for _, c := range []struct {
		later time.Duration
		args  string
		want  string
	}{
		{3 * time.Hour, "--in-use " + list, "the list is 2h0m0s old"},
		{3 * time.Hour, "--in-use " + list + " --taken 2026-03-01T14:50:00Z --max-age 5m", "the list is 10m0s old"},
		{time.Hour, "--in-use -", "it is not known when the list was made"},
		{time.Hour, "--in-use " + list + " --taken yesterday", "a time such as"},
		{time.Hour, "--in-use " + listFile(t, dir, `{"metadata":{"continue":"abc"},"items":[{"status":{"podIPs":[{"ip":"10.1.0.48"}]}}]}`), "a page of a list that goes on"},
		{time.Hour, "--in-use " + listFile(t, dir, `{"metadata":{"remainingItemCount":9},"items":[{"status":{"podIPs":[{"ip":"10.1.0.48"}]}}]}`), "a page of a list that goes on"},
	} {
		env["stdin"] = "10.1.0.48\n# end\n"
		args := strings.Fields("gc --all-pools --candidates " + seen + ".none --grace 0s --max 100% --yes " + c.args)
		if status, out, stderr := at(t, env, c.later, args...); status != exitRefused && status != exitUsage || !strings.Contains(stderr, c.want) || out != "" {
			t.Errorf("%s: status %d, %s%s, want %q", c.args, status, out, stderr, c.want)
		}
	}
}

func listFile(t *testing.T, dir, text string) string {
	file := filepath.Join(dir, fmt.Sprint(len(text), ".json"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A file of candidates is of one store, space and coverage: equal addresses and numbers mean another allocation elsewhere.
func TestCandidatesHaveAScope(t *testing.T) {
	one, other := newBolt(t, cluster(t)), newBolt(t, cluster(t))
	dir := t.TempDir()
	list, seen := listFile(t, dir, "10.1.0.48\n# end\n"), filepath.Join(dir, "c.json")
	args := func(store string, more ...string) []string {
		return append([]string{"gc", "--store", store, "--in-use", list, "--candidates", seen, "--max", "100%", "--grace", "10m", "--yes"}, more...)
	}
	if status, _, stderr := at(t, nil, 0, args(one, "--pool", "pods")...); status != exitOK {
		t.Fatal(stderr)
	}
	for _, a := range [][]string{args(other, "--pool", "pods"), args(one, "--all-pools"), args(one, "--pool", "pods", "--pool", "lb")} {
		if status, out, stderr := at(t, nil, time.Hour, a...); status != exitRefused || out != "" || !strings.Contains(stderr, "name another file") {
			t.Errorf("status %d: %s%s", status, out, stderr)
		}
	}
	status, out, stderr := at(t, nil, time.Hour, args(one, "--pool", "pods")...)
	if status != exitOK || !strings.Contains(out, "released") {
		t.Errorf("status %d: %s%s", status, out, stderr)
	}
}

// The file of candidates is replaced, and nothing else is written through a link that another user has planted beside it.
func TestCandidatesFollowNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, file := filepath.Join(dir, "victim"), filepath.Join(dir, "c.json")
	for _, link := range []string{file + ".new", file} {
		if err := os.Symlink(victim, link); err != nil {
			t.Skip(err)
		}
	}
	if err := (&candidates{Store: "x"}).write(file); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(victim); !os.IsNotExist(err) {
		t.Error("a file was written through a link")
	}
}

// sweep --unselected takes no empty list and none without an end for the labels of all hosts.
func TestLabelsHaveAnEnd(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	dir := t.TempDir()
	for text, want := range map[string]string{"": "is empty", "# end\n": "is empty", "a zone=a\n": "has no end", `{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"a"}}]}`: "goes on"} {
		if status, out, stderr := call(t, env, "sweep", "--unselected", "--labels", listFile(t, dir, text)); status != exitRefused || !strings.Contains(stderr, want) || out != "" {
			t.Errorf("%q: status %d, %s%s", text, status, out, stderr)
		}
	}
	if status, _, stderr := call(t, env, "sweep", "--unselected", "--labels", listFile(t, dir, "a zone=a\n# end\n")); status != exitOK {
		t.Error(stderr)
	}
}

// Hosts that the cluster no longer has are those that a complete list of its nodes lacks.
func TestHostsNotInTheCluster(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	dir := t.TempDir()
	status, out, stderr := call(t, env, "host", "list", "-o", "name", "--not-in", listFile(t, dir, "a\nb\n# end\n"))
	if status != exitOK || out != "c\n" {
		t.Errorf("status %d: %q %s", status, out, stderr)
	}
	if status, _, _ := call(t, env, "host", "list", "--not-in", listFile(t, dir, "a\nb\n")); status != exitRefused {
		t.Errorf("a list without an end: status %d", status)
	}
}
