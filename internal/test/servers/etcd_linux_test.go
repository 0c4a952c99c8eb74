//go:build go1.26

// etcd itself requires Go 1.26.

package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func guard(t *testing.T) context.Context {
	if testing.Short() || os.Getenv(etcdEnv) == "skip" {
		t.Skip("builds and runs etcd")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// call calls etcd's JSON gateway.
func call(t *testing.T, ctx context.Context, endpoint, verb, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/v3/kv/"+verb, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := send(plain, req, "")
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestAMemberLosesNothingByItsEnd(t *testing.T) {
	ctx := guard(t)
	c := NewEtcd(t, EtcdOptions{})
	m := c.Members()[0]
	call(t, ctx, c.Endpoints()[0], "put", `{"key": "aw==", "value": "dg=="}`)
	if m.Start() == nil {
		t.Error("started twice")
	}
	for _, end := range []func(){m.Kill, func() {
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	}, func() {
		if err := m.Pause(); err != nil || !m.Running() {
			t.Error(err)
		}
		m.Kill()
	}} {
		end()
		if m.Running() || c.WaitHealthy(ctx) == nil || m.WaitHealthy(ctx) == nil || m.Pause() == nil || m.Stop(ctx) == nil {
			t.Error("it still runs")
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if err := m.WaitHealthy(ctx); err != nil {
			t.Fatal(err)
		}
		if text := call(t, ctx, c.Endpoints()[0], "range", `{"key": "aw=="}`); !strings.Contains(text, `"dg=="`) {
			t.Error(text)
		}
	}
}

func TestPauseReturnsWhenNothingMoves(t *testing.T) {
	ctx := guard(t)
	m := NewEtcd(t, EtcdOptions{NoSync: true}).Members()[0]
	for range 100 { // a signal mostly takes effect at once
		if err := m.Pause(); err != nil {
			t.Fatal(err)
		}
		if !still(m.cmd.Process.Pid) {
			t.Fatal("a thread runs")
		}
		if err := m.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.WaitHealthy(ctx); err != nil {
		t.Error(err)
	}
}

func TestThreeMembersOutliveTheirLeader(t *testing.T) {
	ctx := guard(t)
	c := NewEtcd(t, EtcdOptions{Members: 3, NoSync: true})
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leader.Kill()
	if err := c.WaitHealthy(ctx); err != nil { // the other two
		t.Fatal(err)
	}
	if next, err := c.Leader(ctx); err != nil || next == leader {
		t.Fatal(next, err)
	}
}

func TestAMemberThatEndsSaysWhy(t *testing.T) {
	_, err := StartEtcd(guard(t), EtcdOptions{Flags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Error(err)
	}
}

const orphanEnv = "SERVERS_ORPHAN"

// TestAnOrphanDies has a process start a member, kills it, and sees the member end.
func TestAnOrphanDies(t *testing.T) {
	if os.Getenv(orphanEnv) != "" { // this is that process
		c, err := StartEtcd(t.Context(), EtcdOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%d %s\n", c.members[0].cmd.Process.Pid, c.dir)
		select {}
	}
	ctx := guard(t)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestAnOrphanDies$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Fscanf(out, "%d %s\n", &pid, &dir); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for syscall.Kill(pid, 0) == nil {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z") { // dead, and only its parent does not know
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the member outlives its parent")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
