package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/internal/test/world"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// What each of the originals keeps is taken over; a second import finds it all there, and diff finds nothing.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/new.db", "dir": dir}
	for file, text := range map[string]string{
		"pools.json":   `{"pools":[{"name":"p","prefix":"10.0.0.0/24","priority":7}]}`,
		"damaged.yaml": `{"kind":"IPAMBlock","spec":{"cidr":"10.0.0.0/30","allocations":[0,null,null,null],"unallocated":[0,1,2,3]}}`,
	} {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := "testdata/foreign/"
	var lines []string
	for _, c := range []struct{ before, source, flags, diff string }{
		{"", f + "calico.yaml", "--format calico", "--format calico --in 192.168.0.0/16"},
		{"pool add node4 10.244.0.0/16 --block-bits 24;pool add node6 fd00:10:244::/56 --block-bits 64", f + "nodes.json", "--format nodes", "--format nodes --in 10.244.0.0/16"},
		{"pool add bridge 10.5.0.0/24", f + "host-local", "--format host-local --host worker-1", "--format host-local --in 10.5.0.0/24"},
	} {
		for _, line := range strings.Split(c.before, ";") {
			if line != "" {
				lines = append(lines, line)
			}
		}
		lines = append(lines, "import "+c.source+" "+c.flags+" --dry-run", "import "+c.source+" "+c.flags, "import "+c.source+" "+c.flags, "diff "+c.source+" "+c.diff)
	}
	lines = append(lines, "check", "pool list", "address list", "block list", "import testdata/foreign/nodes.json --format calico",
		"import testdata/foreign/none --format csv", "import x --format xml",
		"pool add p 10.0.0.0/24 --store bolt://"+dir+"/one.db", "import "+dir+"/pools.json --store bolt://"+dir+"/one.db",
		"import "+dir+"/damaged.yaml --format calico --store bolt://"+dir+"/one.db")
	transcript(t, "import.txt", env, lines...)
}

// What is exported and imported into an empty store is the same, as far as the format has a place for it.
func TestExportRoundTrips(t *testing.T) {
	for _, format := range exportFormats {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			from := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
			to := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/to.db"}
			run := func(env map[string]string, line string) string {
				t.Helper()
				status, out, stderr := call(t, env, strings.Fields(line)...)
				if status != exitOK {
					t.Fatalf("%s: status %d\n%s%s", line, status, out, stderr)
				}
				return out
			}
			file := dir + "/out"
			run(from, "export --format "+format+" --to "+file)
			if format == "csv" || format == "host-local" {
				for _, pool := range []string{"pods 10.1.0.0/24 --block-bits 28", "pods6 fd00:10::/64 --block-bits 122", "lb 192.0.2.0/27 --block-bits 29 --use loadbalancer"} {
					run(to, "pool add "+pool)
				}
			}
			run(to, "import "+file+" --format "+format+" --host virtual:import")
			run(to, "check")
			run(to, "diff "+file+" --format "+format)
			openAll(t, to)
			run(to, "diff "+file+" --format "+format)
			status, out, _ := call(t, to, "diff", from["IPAMCTL_STORE"], "-o", "csv")
			for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
				if format != "json" && (strings.HasPrefix(line, "pool") || strings.HasSuffix(line, "cooling")) {
					continue // another format has no place for the settings of a pool, or for what cools
				}
				if format == "calico" && strings.Contains(line, "guest on host") {
					continue // Calico keeps the host of an address in its attributes, which this one has not
				}
				// host-local says no host, so that every address is the importer's.
				if format == "json" || format == "calico" || format == "csv" && !strings.HasPrefix(line, "block") {
					t.Errorf("status %d: %s", status, line)
				}
			}
		})
	}
}

// An export carries every pool, holder, lease, attribute and setting, prefix, attachment, limit, kept address and space: after an import
// the stores differ in the user of a key alone, which the import counts, and one change of any kind is one difference more.
func TestExportCarriesEverything(t *testing.T) {
	w := world.NewAt(t, noon.Add(-10*time.Minute))
	dir := t.TempDir()
	from := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/from.db"}
	db, err := boltstore.Open(t.Context(), dir+"/from.db", boltstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Copy(t.Context(), db, w.DB); err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return noon }
	k := must[*kept.Keeper](t)(kept.New(db, alloc.VirtualOwner("dhcp"), ipset.Options{Now: clock}))
	err = errors.Join(k.Keep(t.Context(), netip.MustParseAddr("10.0.1.77"), "printer"), limits.New(db, ipset.Options{Now: clock}).Set(t.Context(), limits.Prefixes("region", 4, prefixes.Options{Now: clock})))
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	openAll(t, from) // an import closes pools, and those that are opened again are compared below
	if status, _, stderr := call(t, from, "export", "--to", dir+"/all.json"); status != exitOK {
		t.Fatal(stderr)
	}
	to := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/to.db"}
	for n := range 3 { // the second time all is there, and the third time after the pools are opened
		if n == 2 {
			openAll(t, to)
		}
		if status, out, stderr := call(t, to, "import", dir+"/all.json"); status != exitOK || !strings.Contains(out, "users of keys 1") {
			t.Fatal(status, out, stderr)
		}
	}
	n := 0
	fresh := func() map[string]string {
		n++
		name := fmt.Sprintf("%s/to-%d.db", dir, n)
		if err := boltstore.Snapshot(t.Context(), dir+"/to.db", name); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"IPAMCTL_STORE": "bolt://" + name}
	}
	different := func(to map[string]string) (lines []string) {
		_, out, _ := call(t, to, "diff", from["IPAMCTL_STORE"], "-o", "csv")
		for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			if !strings.Contains(line, "key/vm/") { // whose user is dropped, and counted
				lines = append(lines, line)
			}
		}
		return lines
	}
	if lines := different(fresh()); len(lines) > 0 {
		t.Fatal(strings.Join(lines, "\n"))
	}
	for _, change := range []string{
		"release 10.9.0.10 --if-handle two", "release 10.9.0.12 --if-handle one", "pool set plain --cooldown 5m", "pool set lowest --priority 7", "pool set shared --disabled",
		"config set --max-blocks-per-host 3", "reserve add 10.0.2.0/28", "reserve remove 10.0.0.0/30", "assign --host h1 --handle another --pool plain", "release --handle leased --yes",
		"prefix release --owner whole --yes", "prefix assign --owner x --pool 172.16.0.0/12 --bits 18", "number assign NUMBERS x", "attachment release plain a/eth0 --yes", "kept drop printer --yes",
		"limit forget prefixes/region --yes", "-n blue reserve add 10.0.2.0/28",
	} {
		to := fresh()
		args := strings.Fields(change)
		if k := slices.Index(args, "NUMBERS"); k >= 0 {
			args[k] = world.Numbers
		}
		if status, out, stderr := call(t, to, args...); status != exitOK {
			t.Errorf("%s: %d %s%s", change, status, out, stderr)
		}
		if len(different(to)) == 0 {
			t.Errorf("%s: no difference", change)
		}
	}
}

// openAll opens every pool of a store.
func openAll(t *testing.T, env map[string]string) {
	t.Helper()
	_, spaces, _ := call(t, env, "space", "list", "-o", "name")
	for _, space := range append(strings.Split(strings.TrimSpace(spaces), "\n"), ".") {
		_, names, _ := call(t, env, "-n", space, "pool", "list", "-o", "name")
		for _, name := range strings.Fields(names) {
			if status, _, stderr := call(t, env, "-n", space, "pool", "open", name, "--yes"); status != exitOK {
				t.Fatal(stderr)
			}
		}
	}
}

// CSV loses nothing of what is held: the pools are all that another store needs before.
func TestCSVCarriesEveryHolder(t *testing.T) {
	dir := t.TempDir()
	from := map[string]string{"IPAMCTL_STORE": newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		for i, value := range []string{"a;b=c", "=cmd|' /C calc'!A0", "\x1b[31m\\ \"quoted\"", "plain", "-1", "'", `{"x":1}`} {
			at := netip.AddrFrom4([4]byte{192, 0, 2, byte(8 + i)})
			claim := alloc.Claim{Handle: value, TTL: time.Hour, Attributes: must[alloc.Attributes](t)(alloc.NewAttributes(map[string]string{"note": value, "x": "y"}))}
			if i == 3 {
				claim.Share = alloc.Share{Max: 3, Key: "=k"}
			}
			must[alloc.Allocation](t)(e.AssignIP(t.Context(), alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("=h"), Handle: claim.Handle, Attributes: claim.Attributes, TTL: claim.TTL, Share: claim.Share}))
			if i == 3 {
				claim.Handle, claim.TTL = "@second", 0
				must[alloc.Allocation](t)(e.AssignIP(t.Context(), alloc.AssignIPArgs{Address: at, Owner: alloc.HostOwner("h2"), Handle: claim.Handle, Attributes: claim.Attributes, TTL: claim.TTL, Share: claim.Share}))
			}
		}
	})}
	if status, _, stderr := call(t, from, "export", "--format", "csv", "--to", dir+"/all.csv"); status != exitOK {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(dir + "/all.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range must[[][]string](t)(csv.NewReader(strings.NewReader(string(text))).ReadAll()) {
		for _, c := range cell {
			if c != "" && strings.ContainsAny(c[:1], "=+-@") && c != "-1" || strings.ContainsAny(c, "\x1b\t\r") {
				t.Errorf("a program would run or obey %q", c)
			}
		}
	}
	to := map[string]string{"IPAMCTL_STORE": "bolt://" + dir + "/to.db"}
	for _, line := range []string{"pool add pods 10.1.0.0/24 --block-bits 28", "pool add pods6 fd00:10::/64 --block-bits 122", "pool add lb 192.0.2.0/27 --block-bits 29 --use loadbalancer",
		"import " + dir + "/all.csv --format csv", "import " + dir + "/all.csv --format csv", "diff " + dir + "/all.csv --format csv"} {
		if status, out, stderr := call(t, to, strings.Fields(line)...); status != exitOK {
			t.Fatalf("%s: status %d\n%s%s", line, status, out, stderr)
		}
	}
	_, out, _ := call(t, to, "diff", from["IPAMCTL_STORE"], "-o", "csv")
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "address") {
			t.Error(line)
		}
	}
	if _, out, _ := call(t, to, "address", "list", "-o", "csv"); !strings.Contains(out, "'=cmd|") || strings.Contains(out, "\x1b") {
		t.Error(out)
	}
}

// A backup has everything, taken beside the owner of the file or from an etcd, and is restored into either.
func TestBackup(t *testing.T) {
	t.Run("bolt", func(t *testing.T) { testBackup(t, newBolt(t, cluster(t)), "bolt://"+t.TempDir()+"/restored.db") })
	t.Run("etcd", func(t *testing.T) {
		c := servers.NewEtcd(t, servers.EtcdOptions{NoSync: true})
		testBackup(t, newEtcd(t), "etcd://"+c.Members()[0].ClientAddress()+"/restored")
	})
}

func testBackup(t *testing.T, from, to string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	want := contents(t, from)
	run := func(store string, want int, args ...string) {
		t.Helper()
		if status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": store}, args...); status != want {
			t.Fatalf("%v: status %d, want %d\n%s%s", args, status, want, out, stderr)
		}
	}
	run(from, exitOK, "store", "backup", file)
	run(from, exitConflict, "store", "backup", file)
	if contents(t, "bolt://"+file) != want {
		t.Error("the backup is not what the store is")
	}
	run(to, exitRefused, "store", "restore", file)
	run(to, exitOK, "store", "restore", file, "--dry-run")
	run(to, exitOK, "store", "restore", file, "--yes")
	run(to, exitOK, "store", "restore", file, "--yes") // nothing is left to do
	run(to, exitOK, "check")
	run(to, exitOK, "diff", from)
	run(from, exitOK, "store", "copy", "bolt://"+dir+"/copy.db")
	if contents(t, to) != want || contents(t, "bolt://"+dir+"/copy.db") != want {
		t.Error("what was restored is not what the store is")
	}
	run(to, exitOK, "assign", "--host", "z", "--handle", "later")
	run(to, exitConflict, "store", "restore", file, "--yes")
	run(to, exitFindings, "diff", from)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// An export of a prefix has what lies in it, and nothing else.
func TestExportOfAPrefix(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	_, out, _ := call(t, env, "export", "--in", "fd00:10::/64")
	if !strings.Contains(out, "fd00:10::") || strings.Contains(out, "10.1.0.") || strings.Contains(out, "192.0.2.") {
		t.Error(out)
	}
	if status, _, _ := call(t, env, "export", "--in", "fd00:10::/64", "--format", "calico"); status != exitUsage {
		t.Errorf("status %d", status)
	}
}

// A store into which a copy was stopped says so to every command but copy, which goes on.
func TestStoppedCopy(t *testing.T) {
	from := newBolt(t, cluster(t))
	path := t.TempDir() + "/to.db"
	src := must[*boltstore.Store](t)(boltstore.Open(t.Context(), strings.TrimPrefix(from, "bolt://"), boltstore.Options{ReadOnly: true}))
	dst := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	part := faults.NewLimited(dst, store.Limits{Ops: 20})
	part.Script(faults.AtCommit(3, faults.Fail(faults.ErrInjected)))
	if _, err := store.Copy(t.Context(), part, src); err == nil {
		t.Fatal("the copy was not stopped")
	}
	if err := errors.Join(src.Close(), dst.Close()); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"IPAMCTL_STORE": "bolt://" + path}
	for _, line := range []string{"pool list", "check", "pool add new 10.9.0.0/24", "assign --host a --handle b", "diff " + from, "store backup " + path + ".backup", "export"} {
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != exitRefused || !strings.Contains(stderr, "being copied into") {
			t.Errorf("%s: status %d: %s", line, status, stderr)
		}
	}
	for _, line := range []string{"store copy bolt://" + path + " --dry-run", "store copy bolt://" + path, "diff bolt://" + path} {
		if status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": from}, strings.Fields(line)...); status != exitOK {
			t.Errorf("%s: status %d: %s%s", line, status, out, stderr)
		}
	}
	if contents(t, from) != contents(t, "bolt://"+path) {
		t.Error("the copy is not what the store is")
	}
}

// Many addresses are imported in few commits: a commit for each would be a sync of the disk for each.
func TestImportTakesFewCommits(t *testing.T) {
	const n = 2000
	inv := &inventory{Pools: []poolEntry{{Name: "p", Prefix: "10.0.0.0/16"}}}
	for i := range n {
		inv.Addresses = append(inv.Addresses, addressEntry{Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Handle: fmt.Sprint("h", i), Host: fmt.Sprintf("host:%d", i/250)})
	}
	db := faults.NewFaulty(store.NewMemory())
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.Kind == faults.Commit {
			runtime.Gosched() // callers that come meanwhile go into the next one
		}
		return faults.Outcome{}
	})
	a := &app{now: func() time.Time { return noon }}
	i := a.newImport(newEngine(t, db), inv, "test", alloc.Owner{})
	if err := i.bring(t.Context()); err != nil || len(i.refused) > 0 || i.done.Addresses != n {
		t.Fatalf("%+v, %v, %v", i.done, i.refused, err)
	}
	if commits := db.Counts().Commits; commits > n/4 {
		t.Errorf("%d commits for %d addresses", commits, n)
	}
}

// slow is a store whose commits take as long as a disk that syncs, and are counted.
type slow struct {
	store.Store
	commits atomic.Int64
}

func (s *slow) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	s.commits.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Commit(ctx, ops)
}

// Blocks and addresses are brought many in a commit: a commit each is what an import of a fleet would wait for.
func TestImportIsFewCommits(t *testing.T) {
	inv := &inventory{Pools: []poolEntry{{Name: "pods", Prefix: "10.0.0.0/16", BlockBits: 26}}}
	for b := range 256 {
		host := fmt.Sprintf("host:node-%d", b%50)
		inv.Blocks = append(inv.Blocks, blockEntry{Block: fmt.Sprintf("10.0.%d.0/26", b), Owner: host})
		for k := range 8 {
			inv.Addresses = append(inv.Addresses, addressEntry{Address: fmt.Sprintf("10.0.%d.%d", b, k), Handle: fmt.Sprintf("pod-%d-%d", b, k), Host: host})
		}
	}
	db := &slow{Store: store.NewMemory()}
	a := &app{now: func() time.Time { return noon }}
	i := a.newImport(newEngine(t, db), inv, "test", alloc.Owner{})
	if err := i.bring(t.Context()); err != nil || len(i.refused) > 0 || i.done.Blocks != 256 || i.done.Addresses != 2048 {
		t.Fatal(i.done, i.refused, err)
	}
	if n := db.commits.Load(); n > 150 {
		t.Errorf("%d commits for 256 blocks and 2,048 addresses", n)
	}
}
