package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/etcdtest"
	"github.com/ipalloc/ipalloc/internal/test/kubetest"
	"github.com/ipalloc/ipalloc/internal/test/pgtest"
)

// bolt returns the name of a store in a file that does not exist yet.
func bolt(t *testing.T) string { return "bolt://" + filepath.Join(t.TempDir(), "pods.db") }

// etcd returns the name of a store in an etcd of the test's own, and its only member.
func etcd(t *testing.T) (string, *etcdtest.Cluster) {
	c := etcdtest.New(t, etcdtest.Config{NoSync: true})
	return "etcd://" + c.Members()[0].ClientAddress() + "/pods", c
}

// kube returns the name of a store in an API server of the test's own.
func kube(t *testing.T) string {
	server := kubetest.New(t, kubetest.Config{})
	if err := server.Define(t.Context(), "../../ipset/kubestore/config/crd.yaml", "/apis/store.ipalloc.dev/v1/namespaces/default/storeobjects"); err != nil {
		t.Fatal(err)
	}
	config, err := server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	return "kube://default/pods"
}

// finish runs the program to the end of the trace and compares what it says, and what is there.
func finish(t *testing.T, store string, args ...string) {
	t.Helper()
	p := spawn(t, store, args...)
	status, stderr := p.end()
	if status != exitOK || p.stdout.String() != golden(t) {
		t.Errorf("status %d\n%s\n%s", status, stderr, p.stdout.String())
	}
	checkEnd(t, store)
}

// killed runs the program again and again, and kills it after some events more, until it comes to the
// end; then it compares what it says, and what is there.
func killed(t *testing.T, store string) {
	t.Helper()
	seed := uint64(os.Getpid())
	rng := rand.New(rand.NewPCG(seed, seed))
	most := 60
	if testing.Short() {
		most = 150
	}
	for kills := []int{}; ; {
		p := spawn(t, store)
		n, ok := p.await(1 + rng.IntN(most))
		if !ok {
			status, stderr := p.end()
			if status != exitOK || p.stdout.String() != golden(t) {
				t.Errorf("status %d\n%s\n%s", status, stderr, p.stdout.String())
			}
			t.Logf("seed %d: killed after events %v", seed, kills)
			break
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		kills = append(kills, n)
	}
	checkEnd(t, store)
}

func TestKillBolt(t *testing.T) {
	store := bolt(t)
	killed(t, store)
	finish(t, store) // there is nothing left to do
}

func TestKillSQLite(t *testing.T) {
	store := "sqlite://" + filepath.Join(t.TempDir(), "pods.sqlite")
	killed(t, store)
	finish(t, store)
	copies(t, store, bolt(t), "sqlite://"+filepath.Join(t.TempDir(), "again.sqlite"))
}

func TestKillPostgres(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{NoSync: true})
	store := "postgres:///" + "?" + strings.ReplaceAll(server.DSN(), " ", "&")
	killed(t, store)
	finish(t, store)
	copies(t, store, bolt(t), "sqlite://"+filepath.Join(t.TempDir(), "again.sqlite"))
}

// copies copies a store to others, one after the other, and verifies each of them.
func copies(t *testing.T, from string, others ...string) {
	t.Helper()
	for _, to := range others {
		if status, _, stderr := start(t.Context(), "-store", from, "-copy-to", to); status != exitOK {
			t.Fatalf("status %d, %s", status, stderr)
		}
		finish(t, to)
		from = to
	}
}

func TestKillEtcd(t *testing.T) {
	store, _ := etcd(t)
	killed(t, store)
	finish(t, store)
}

func TestKillKube(t *testing.T) {
	store := kube(t)
	killed(t, store)
	finish(t, store)
	backup := bolt(t)
	for _, c := range []struct{ from, to string }{{store, backup}, {backup, "kube://default/restored"}} {
		status, out, stderr := start(t.Context(), "-store", c.from, "-copy-to", c.to)
		if status != exitOK || !strings.HasSuffix(out, " records, copied from "+c.from+" to "+c.to+"\n") {
			t.Fatalf("status %d, %s%s", status, out, stderr)
		}
		finish(t, c.to)
	}
}

// The store dies, not the program: it asks again until there is an answer.
func TestStoreDies(t *testing.T) {
	store, cluster := etcd(t)
	member := cluster.Members()[0]
	p := spawn(t, store)
	for _, events := range []int{30, 60} {
		if _, ok := p.await(events); !ok {
			status, stderr := p.end()
			t.Fatalf("status %d, %s", status, stderr)
		}
		member.Kill()
		for p.events.Scan() && !strings.Contains(p.events.Text(), ": trying again: ") {
		}
		if err := member.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if status, stderr := p.end(); status != exitOK || p.stdout.String() != golden(t) {
		t.Errorf("status %d\n%s\n%s", status, stderr, p.stdout.String())
	}
	checkEnd(t, store)
}

// From a file to an etcd in the middle of the trace, and on; a copy of that into a file is a backup.
func TestCopy(t *testing.T) {
	file := bolt(t)
	p := spawn(t, file)
	if _, ok := p.await(120); !ok {
		t.Fatal("it ended before that")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	etcd, _ := etcd(t)
	backup := bolt(t)
	for _, c := range []struct{ from, to string }{{file, etcd}, {etcd, backup}} {
		for range 2 { // the second time there is nothing left to copy
			status, out, stderr := start(t.Context(), "-store", c.from, "-copy-to", c.to)
			if status != exitOK || !strings.HasSuffix(out, " records, copied from "+c.from+" to "+c.to+"\n") {
				t.Fatalf("status %d, %s%s", status, out, stderr)
			}
		}
		finish(t, c.to)
	}
	finish(t, file)
	// A store with something else in it is no place to copy to. (One at the end of the same trace would be.)
	other := bolt(t)
	p = spawn(t, other, "-pace", "1h")
	p.await(1)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	status, out, stderr := start(t.Context(), "-store", backup, "-copy-to", other)
	if status != exitFailed || out != "" || !strings.Contains(stderr, "holds something else") {
		t.Errorf("status %d, %s%s", status, out, stderr)
	}
}

// Ctrl-C, and what a service manager sends.
func TestStop(t *testing.T) {
	store := bolt(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := spawn(t, store, "-pace", "1ms")
		if _, ok := p.await(50); !ok {
			t.Fatal("it ended before that")
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		status, stderr := p.end()
		if status != exitStopped || p.stdout.Len() > 0 || !strings.HasSuffix(stderr, "\ndurable: stopped; start it again, and it goes on") {
			t.Errorf("%v: status %d, %s\n%s", sig, status, stderr, p.stdout.String())
		}
	}
	finish(t, store)
}

// Two programs on one file: the second is told who has it.
func TestLocked(t *testing.T) {
	store := bolt(t)
	p := spawn(t, store, "-pace", "1h")
	if _, ok := p.await(1); !ok {
		t.Fatal("it ended before that")
	}
	status, _, stderr := start(t.Context(), "-store", store)
	if status != exitFailed || !strings.Contains(stderr, fmt.Sprint(p.cmd.Process.Pid)) {
		t.Errorf("status %d, %s", status, stderr)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
	finish(t, store)
}
