package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// A command that reads works while another process has the file, also while that writes; one that
// writes says who has it.
func TestBesideTheOwner(t *testing.T) {
	name := newBolt(t, cluster(t))
	db, err := boltstore.Open(t.Context(), strings.TrimPrefix(name, "bolt://"), boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	e := newEngine(t, db)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			_, err := e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("d"), Num6: 1, Handle: "writer"})
			select {
			case <-stop:
				done <- err
				return
			case <-time.After(time.Millisecond): // the rate of its commits
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	env := map[string]string{"IPAMCTL_STORE": name}
	for range 5 {
		status, out, stderr := call(t, env, "check")
		if status != exitOK || out != "" {
			t.Errorf("status %d\n%s\n%s", status, out, stderr)
		}
	}
	if status, _, stderr := call(t, env, "store", "backup", filepath.Join(t.TempDir(), "backup.db")); status != exitOK {
		t.Errorf("backup: status %d\n%s", status, stderr)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	status, out, _ := call(t, env, "host", "list", "-o", "name")
	if status != exitOK || out != "a\nb\nc\nd\n" {
		t.Errorf("status %d, %q", status, out)
	}
}

// What reads takes no lock: the process that owns a file starts beside it.
func TestReadersLockNothing(t *testing.T) {
	name := newBolt(t, cluster(t))
	a := &app{getenv: os.Getenv}
	view, err := a.openStore(t.Context(), "--store", name, reading)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	db, err := boltstore.Open(t.Context(), strings.TrimPrefix(name, "bolt://"), boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	status, _, stderr := call(t, map[string]string{"IPAMCTL_STORE": name}, "pool", "set", "pods", "--disabled")
	if status != exitUnavailable || strings.Contains(stderr, "LockWait") || strings.Contains(stderr, "damaged") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// A file with a damaged record is named by its own name, in every message; salvage saves the rest of it, compact packs a file that is
// whole, adopt takes over a database.
func TestRescue(t *testing.T) {
	name := newBolt(t, cluster(t))
	path := strings.TrimPrefix(name, "bolt://")
	dir := filepath.Dir(path)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file = bytes.ReplaceAll(file, []byte("web-0"), []byte("web-1"))
	if err := os.WriteFile(dir+"/bad.db", file, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, store string, args ...string) (out, stderr string) {
		t.Helper()
		status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": store}, args...)
		if status != want {
			t.Fatalf("%v: status %d, want %d\n%s%s", args, status, want, out, stderr)
		}
		return out, stderr
	}
	for _, c := range []struct{ line, has string }{
		{"address list", "10.1.0.49 "}, {"pool list", "pods6"}, {"block list", "10.1.0.32/28"}, {"host list", "host:b"}, {"map pods", "one cell"}, {"show b", "db-0"},
	} {
		out, said := run(exitDamaged, "bolt://"+dir+"/bad.db", strings.Fields(c.line)...)
		if !strings.Contains(out, c.has) || !strings.Contains(said, "what cannot be read is 10.1.0.32, fd00:10::6a6d:9fb9:9677:6880") {
			t.Errorf("%s:\n%s%s", c.line, out, said)
		}
	}
	run(exitDamaged, "bolt://"+dir+"/bad.db", "export", "--to", dir+"/part.json")
	_, said := run(exitDamaged, "bolt://"+dir+"/bad.db", "address", "list")
	if !strings.Contains(said, dir+"/bad.db") || strings.Contains(said, "copy.db") || !strings.Contains(said, "ipamctl store salvage") {
		t.Error(said)
	}
	out, _ := run(exitFindings, "", "store", "salvage", dir+"/bad.db", dir+"/saved.db")
	if !strings.Contains(out, "whole     false") {
		t.Error(out)
	}
	run(exitConflict, "", "store", "salvage", dir+"/bad.db", dir+"/saved.db")
	if out, _ := run(exitOK, "", "store", "salvage", path, dir+"/whole.db"); !strings.Contains(out, "whole     true") {
		t.Error(out)
	}
	run(exitOK, "bolt://"+dir+"/saved.db", "repair", "--yes")
	if out, _ := run(exitOK, "bolt://"+dir+"/saved.db", "address", "list"); !strings.Contains(out, "10.1.0.32 ") || !strings.Contains(out, "guest") {
		t.Errorf("a repaired store has not all that is held:\n%s", out)
	}
	before := contents(t, name)
	run(exitOK, name, "store", "compact")
	if after := contents(t, name); after != before {
		t.Error("the compact file holds something else")
	}
	if _, err := os.Stat(path + ".compact"); !os.IsNotExist(err) {
		t.Error(err)
	}
	run(exitRefused, "sqlite://"+dir+"/x.sqlite", "store", "adopt")
	run(exitUsage, name, "store", "adopt", "--yes")
	run(exitNotFound, "sqlite://"+dir+"/x.sqlite", "store", "adopt", "--yes")
	lite := newStore(t, "sqlite://"+dir+"/x.sqlite")
	a := &app{getenv: os.Getenv}
	old, err := a.openStore(t.Context(), "--store", lite, writing)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	run(exitUsage, lite, "store", "compact")
	run(exitOK, lite, "store", "adopt", "--yes")
	if _, err := newEngine(t, old).Pools(t.Context()); !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("an engine from before goes on: %v", err)
	}
}
