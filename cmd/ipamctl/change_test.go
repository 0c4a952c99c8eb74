package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// changes are commands that change the store of the function cluster, one after the other. DIR is a directory.
var changes = []string{
	"pool add more 10.2.0.7/24 --block-bits 28 --use workload,tunnel --priority 5 --nodes zone=a,!spot;metadata.name=x --range 10.2.0.16-10.2.0.63 --cooldown 1m",
	"pool add more 10.9.0.0/24",
	"pool add other 10.1.0.0/24", "pool add other 10.1.0.128/29",
	"pool set more --priority 0 --nodes= --range= --manual",
	"pool set more --use gateway", "pool set more --order sorted", "pool set more --order random --seed 1",
	"pool set none --manual",
	"pool set more --manual=false -o json",
	"pool resize more",
	"pool resize more --prefix 10.2.0.0/23 --block-bits 29",
	"pool resize more --prefix 10.2.0.0/25",
	"pool resize pods6 --block-bits 120 -o csv",
	"assign --host d --handle new",
	"assign --host d --handle v6 -6 2 --attribute pod=x,ns=y --ttl 1h --request r1 -o json",
	"assign --host d --handle v6 -6 2 --attribute pod=x,ns=y --ttl 1h --request r1 -o name",
	"assign --host d --handle many -4 400",
	"assign --host d --handle many -4 400 --pool lb --for loadbalancer --partial -o name",
	"assign --host d --handle new --existing",
	"assign --host virtual:lb --handle svc 192.0.2.30 --for loadbalancer",
	"assign --host d --handle named 10.1.0.1 10.1.0.2",
	"assign --host d --handle named 10.1.0.32",
	"assign --host d --handle named 10.77.0.1",
	"assign --host d --handle named 10.1.0.5 --pool pods",
	"assign --handle x",
	"reserve add 10.1.0.48/28 10.1.0.100-10.1.0.103 10.1.0.110",
	"reserve list",
	"reserve remove 10.1.0.101",
	"reserve add 10.1.0.256",
	"release 10.1.0.2 10.1.0.3 --if-handle named",
	"release 10.1.0.32 --if-handle named",
	"release 10.1.0.32",
	"release 10.1.0.34 --sequence 1",
	"release --handle batch --yes",
	"release --handle batch --yes",
	"release --host c --yes -o name",
	"release",
	"address transfer new newer 10.1.0.1", "address transfer new newer", "address transfer new newer --yes", "address transfer new newer --yes",
	"address transfer svc svc-2 192.0.2.30 -o name", "address transfer svc svc-2 192.0.2.30 -o name", "address transfer svc-2 svc 192.0.2.30 10.1.0.32", "address transfer svc-2 svc-2 --yes", "address transfer svc x 192.0.2.30",
	"address transfer svc-2 svc 192.0.2.30 -o name",
	"host rename d d-2", "host rename d b --yes", "host rename d d-2 --yes -o name", "host rename d d-2 --yes", "host rename d-2 d --yes -o csv", "host rename d d --yes",
	"config set --strict --max-blocks-per-host 4",
	"config set --no-auto-blocks --strict=false",
	"config show -o yaml",
	"pool set pods --disabled",
	"pool split pods 1",
	"pool merge pods pods-0 pods-1",
	"pool merge x pods lb",
	"pool remove pods --yes",
	"pool remove pods",
	"pool remove more --yes",
	"pool remove none --yes",
	"host remove b --yes",
	"host remove b --yes",
	"sweep --idle-after 1ns -o json",
	"repair --dry-run",
	"repair --yes",
	"repair",
	"assign --host d --handle last -4 2 --pool more",
	"check --in-use DIR/used.txt --all-pools",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --yes",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --pool none --yes",
	"gc --in-use DIR/used.txt --candidates DIR/lb.json --pool lb --yes",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --all-pools --yes",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --all-pools --grace 0s --yes",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --all-pools --grace 0s --max 0 --yes",
	"gc --in-use DIR/used.txt --candidates DIR/candidates.json --all-pools --grace 0s --max 101% --yes",
	"gc --in-use DIR/empty.txt --candidates DIR/candidates.json --all-pools --grace 0s --max 100% --yes",
	"gc --in-use DIR/torn.txt --candidates DIR/candidates.json --all-pools --grace 0s --max 100% --yes",
	"gc --in-use DIR/none.json --candidates DIR/candidates.json --all-pools --grace 0s --max 100% --yes",
	"gc --in-use DIR/others.txt --candidates DIR/candidates.json --all-pools --grace 0s --max 100% --yes",
	"gc --in-use DIR/used.txt --candidates DIR/uses.json --use workload,tunnel --grace 0s --max 100% --yes -o csv",
	"gc --in-use DIR/used.txt --candidates DIR/used.txt --all-pools",
	"pool remove pods --yes --force",
	"check",
}

// Every change is answered by --dry-run exactly as it is answered when it is made, and the dry run changes
// nothing; on every store the answers are the same.
func TestChanges(t *testing.T) {
	t.Run("bolt", func(t *testing.T) { testChanges(t, newBolt(t, cluster(t))) })
	t.Run("sqlite", func(t *testing.T) { testChanges(t, newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")) })
	t.Run("etcd", func(t *testing.T) { testChanges(t, newEtcd(t)) })
}

// newEtcd returns the name of a store in a real etcd, filled by cluster.
func newEtcd(t *testing.T) string {
	c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
	return newStore(t, "etcd://"+c.Members()[0].ClientAddress()+"/ipam")
}

// newStore makes a store and fills it by cluster.
func newStore(t *testing.T, name string) string {
	a := &app{stderr: os.Stderr, getenv: os.Getenv}
	db, err := a.openStore(t.Context(), "--store", name, making)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cluster(t)(newEngine(t, db))
	return name
}

// writeLists writes lists of what is in use: one that is complete, and some that are not to be believed.
func writeLists(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"used.txt": "192.0.2.30 svc\n# end\n", "empty.txt": "# end\n", "torn.txt": "192.0.2.30 svc\n", "none.json": `{"kind":"List","items":[]}`,
		"others.txt": "203.0.113.1\n# end\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func testChanges(t *testing.T, name string) {
	dir := t.TempDir()
	writeLists(t, dir)
	env := map[string]string{"IPAMCTL_STORE": name}
	for _, line := range changes {
		args := strings.Fields(strings.ReplaceAll(line, "DIR", dir))
		if changesNothing(args) {
			continue
		}
		before := contents(t, name)
		status, out, stderr := call(t, env, append(args, "--dry-run")...)
		if after := contents(t, name); after != before {
			t.Fatalf("%s --dry-run changed the store", line)
		}
		wantStatus, wantOut, wantErr := call(t, env, args...)
		stderr = strings.TrimSuffix(stderr, "ipamctl: dry run: nothing was changed\n")
		if wantStatus == exitRefused && strings.Contains(wantErr, "confirm with --yes") {
			continue // the dry run shows what would be confirmed
		}
		if status != wantStatus || out != wantOut || stderr != wantErr {
			t.Errorf("%s\ndry run: status %d\n%s%s\nchange: status %d\n%s%s", line, status, out, stderr, wantStatus, wantOut, wantErr)
		}
	}
}

// changesNothing reports whether a command has no --dry-run.
func changesNothing(args []string) bool {
	line := strings.Join(args, " ")
	for _, s := range []string{"check", "reserve list", "config show"} {
		if strings.HasPrefix(line, s) {
			return true
		}
	}
	return false
}

// contents returns all records of a store.
func contents(t *testing.T, name string) string {
	t.Helper()
	a := &app{stderr: os.Stderr, getenv: os.Getenv}
	db, err := a.openStore(t.Context(), "--store", name, reading)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	recs, _, err := db.List(t.Context(), store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, r := range recs {
		all.WriteString(r.Key + "\x00" + r.Value + "\x00")
	}
	return all.String()
}

// What the changes answer.
func TestChangesTranscript(t *testing.T) {
	name := newBolt(t, cluster(t))
	dir := filepath.Dir(strings.TrimPrefix(name, "bolt://"))
	writeLists(t, dir)
	var lines []string
	for _, line := range changes {
		if !strings.Contains(line, "-4 400") { // its answer is long
			lines = append(lines, strings.ReplaceAll(line, "DIR", dir))
		}
	}
	transcript(t, "changes.txt", map[string]string{"IPAMCTL_STORE": name, "dir": dir}, lines...)
}

// What several processes change at the same time is all kept: reservations, and different settings of one pool and of the store.
func TestChangesBesideOthers(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newStore(t, "sqlite://"+t.TempDir()+"/ipam.sqlite")}
	var lines []string
	for i := range 8 {
		lines = append(lines, fmt.Sprintf("reserve add 10.200.%d.1", i))
	}
	lines = append(lines, "config set --strict", "config set --max-blocks-per-host 7",
		"pool set pods --cooldown 1m0s", "pool set pods --priority 3", "pool set pods --order random", "pool set pods --max-blocks-per-host 5")
	var wg sync.WaitGroup
	for _, line := range lines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if status, out, stderr := call(t, env, strings.Fields(line)...); status != exitOK {
				t.Errorf("%s: status %d: %s%s", line, status, out, stderr)
			}
		}()
	}
	wg.Wait()
	_, out, _ := call(t, env, "reserve", "list")
	if got := strings.Count(out, "10.200."); got != 8 {
		t.Errorf("%d of 8 reservations:\n%s", got, out)
	}
	_, out, _ = call(t, env, "config", "show", "-o", "json")
	for _, want := range []string{`"strict": true`, `"maxBlocksPerHost": 7`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	_, out, _ = call(t, env, "pool", "show", "pods", "-o", "json")
	for _, want := range []string{`"cooldown": "1m0s"`, `"priority": 3`, `"order": "random"`, `"maxBlocksPerHost": 5`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}

// An address whose handle holds another one that stays is no puzzle: gc says why it is not released.
func TestGCSaysWhatItKeeps(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	dir := t.TempDir()
	writeLists(t, dir)
	used := ""
	for n := 33; n <= 50; n++ { // those of the handle batch
		used += fmt.Sprintf("10.1.0.%d\n", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "used.txt"), []byte(used+"# end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"gc", "--in-use", filepath.Join(dir, "used.txt"), "--candidates", filepath.Join(dir, "c.json"), "--grace", "0s", "--max", "100%", "--yes"}
	why := "the handle also holds an address that is in use, not in these pools or not yet due"
	status, out, stderr := call(t, env, append(args, "--pool", "pods")...) // web-0 has an address in pods6, too
	if status != exitOK || !strings.Contains(out, "candidate  web-0") || !strings.Contains(stderr, "1 address past the grace period not released: "+why) {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	status, out, stderr = call(t, env, append(args, "--all-pools", "--candidates", filepath.Join(dir, "all.json"))...)
	if status != exitOK || !strings.Contains(out, "released  web-0") || strings.Contains(stderr, "grace") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
}

func TestRangeRefused(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	for _, r := range []string{"10.1.0.9-10.1.0.5", "10.1.0.9"} {
		status, _, stderr := call(t, env, "pool", "set", "pods", "--range", r)
		if status != exitUsage || !strings.Contains(stderr, r+": want the first and the last address") {
			t.Errorf("%s: status %d, %s", r, status, stderr)
		}
	}
}
