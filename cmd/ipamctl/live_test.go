package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/ipset"
)

// Each change of another program is printed once, on every store that delivers its commits.
func TestWatch(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testWatch(t, newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")) })
	t.Run("etcd", func(t *testing.T) { testWatch(t, newEtcd(t)) })
}

func testWatch(t *testing.T, name string) {
	r, w := io.Pipe()
	errs, errw := io.Pipe()
	a := &app{stdin: strings.NewReader(""), stdout: w, stderr: errw, getenv: func(k string) string { return map[string]string{"IPAMCTL_STORE": name}[k] }, now: func() time.Time { return noon }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status := make(chan int, 1)
	go func() {
		status <- a.run(ctx, []string{"watch", "--count", "7"})
		w.Close()
		errw.Close()
	}()
	said := bufio.NewScanner(errs)
	if !said.Scan() || !strings.Contains(said.Text(), "watching 5 blocks and 38 addresses") && !strings.Contains(said.Text(), "watching 5 blocks and 37 addresses") {
		t.Fatal(said.Text())
	}
	go io.Copy(io.Discard, errs)
	env := map[string]string{"IPAMCTL_STORE": name}
	lines := bufio.NewScanner(r)
	for _, c := range []struct {
		change string
		want   []string
	}{
		{"assign --host a --handle x --pool lb --for loadbalancer", []string{"block claimed        192.0.2.16/29  host:a", "assigned             192.0.2.16  x on host:a"}},
		{"pool add more 10.3.0.0/24", []string{"pool added           10.3.0.0/24  more"}},
		{"release --handle x --yes", []string{"released             192.0.2.16  x on host:a"}},
		{"host remove a --yes --dry-run", nil},
		{"pool remove lb --yes", []string{"pool changed         192.0.2.0/27  lb disabled=false -> lb disabled=true", "block returned       192.0.2.16/29  host:a",
			"pool removed         192.0.2.0/27  lb"}},
	} {
		if s, _, stderr := call(t, env, strings.Fields(c.change)...); s != exitOK {
			t.Fatal(stderr)
		}
		var got []string
		for range c.want {
			if !lines.Scan() {
				t.Fatalf("%s: %q, want %q", c.change, got, c.want)
			}
			got = append(got, strings.TrimPrefix(lines.Text(), "2026-03-01T12:00:00Z  "))
		}
		if !slices.Equal(got, c.want) {
			t.Fatalf("%s: %q, want %q", c.change, got, c.want)
		}
	}
	if s := <-status; s != exitOK {
		t.Errorf("status %d", s)
	}
}

func TestManual(t *testing.T) {
	dir := t.TempDir() + "/man" // which is made
	if s, _, stderr := call(t, nil, "man", dir); s != exitOK {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ipamctl-pool-split.1"))
	if err != nil || !strings.Contains(string(text), "Blocks and addresses stay where they are") {
		t.Errorf("%s, %v", text, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if s, out, stderr := call(t, nil, "completion", shell); s != exitOK || !strings.Contains(out, "ipamctl") {
			t.Errorf("%s: status %d, %s", shell, s, stderr)
		}
	}
	name := newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		cluster(t)(must[*ipset.Engine](t)(e.InSpace("red")))
	})
	_, out, _ := call(t, map[string]string{"IPAMCTL_STORE": name}, "__complete", "pool", "show", "")
	if !strings.Contains(out, "pods6\tfd00:10::/64\n") {
		t.Error(out)
	}
	for line, want := range map[string]string{"block list --pool": "pods6\t", "show": "b\n", "release --host": "c\n", "--space": "red\n", "diff --format": "nodes\n"} {
		if _, out, _ := call(t, map[string]string{"IPAMCTL_STORE": name}, append(append([]string{"__complete"}, strings.Fields(line)...), "")...); !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
}
