//go:build unix

package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
	"github.com/ipalloc/ipalloc/ipset/store/remote"
)

// typedRows has a line for each command, with files of DIR. One that calls no store, or another one, has none.
var typedRows = map[string]string{
	"pool list": "", "pool free": "", "pool show": "pods", "pool add": "new 10.9.0.0/24", "pool set": "pods --priority 3", "pool resize": "pods --prefix 10.1.0.0/23",
	"pool remove": "lb --yes", "pool split": "lb 1", "pool open": "shut --yes", "pool merge": "whole left right",
	"address list": "", "show": "web-0", "host list": "", "host remove": "a --yes", "host rename": "a z --yes", "address transfer": "web-0 web-9 --yes",
	"block list": "", "assign": "--host z --handle new", "release": "--handle web-0 --yes",
	"reserve list": "", "reserve add": "10.1.0.240/30", "reserve remove": "10.1.0.248/30", "config show": "", "config set": "--max-blocks-per-host 3",
	"prefix list": "", "prefix show": "10.96.0.0/24", "prefix pools": "", "prefix assign": "--owner o --pool 10.96.0.0/16 --bits 24", "prefix release": "10.96.0.0/24 --owner net-a --yes",
	"prefix remove": "10.97.0.0/16", "prefix import": "DIR/prefixes.csv",
	"number list": "", "number show": "vlan 100", "number assign": "vlan tenant-b", "number release": "vlan tenant-a --yes", "number import": "vlan DIR/numbers.csv",
	"attachment list": "", "attachment show": "c1", "attachment release": "net c1/eth0 --yes", "attachment remove": "idle --yes",
	"kept list": "", "kept drop": "printer --yes", "limit list": "", "limit forget": "prefixes/net-a --yes",
	"space list": "", "space remove": "empty --yes", "import": "DIR/import.json", "export": "", "diff": "DIR/import.json", "store backup": "DIR/backup", "store copy": "bolt://DIR/copy", "store status": "",
	"explain": "a --labels DIR/labels", "map": "", "check": "", "repair": "--yes", "gc": "--in-use DIR/list --all-pools --candidates DIR/c.json --max 100% --yes",
	"sweep": "--idle-after 1s",
}

// noRow says why a command has no row.
var noRow = map[string]string{
	"watch": "ends with the store", "serve": "ends with the store", "history": "reads a file", "man": "reads no store", "store restore": "reads a file",
	"store salvage": "reads a file", "store compact": "is for a bbolt file", "store adopt": "is for etcd and SQL",
}

// A call of the store that fails, whichever of a command's it is, is no success: nothing is shown as if it were all there is. A signal
// during any call of a command that only reads ends it.
func TestEveryCallFails(t *testing.T) {
	dir, err := os.MkdirTemp("", "calls") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for file, text := range map[string]string{"import.json": `{"pools":[{"name":"n","prefix":"10.66.0.0/24"}],"reservations":[{"range":"10.1.0.248/30"}],"blocks":[{"block":"10.66.0.0/26","owner":"host:a"}],"addresses":[{"address":"10.66.0.9","handle":"x","host":"host:a"}]}`,
		"numbers.csv": "number,owner\n101,tenant-c\n", "prefixes.csv": "prefix,pool,owner\n10.96.1.0/24,10.96.0.0/16,x\n", "list": "# taken 2026-03-01T12:00:00Z\n10.1.0.0 web-0\n# end\n", "labels": "a zone=x\n# end\n"} {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, known := typedStore(t), map[string]bool{}
	for _, c := range allCommands((&app{}).root()) {
		name := strings.TrimPrefix(c.CommandPath(), "ipamctl ")
		line, there := typedRows[name]
		known[name] = true
		switch {
		case c.HasSubCommands() || noRow[name] != "":
		case !there:
			t.Errorf("%s has no row", name)
		default:
			line = strings.ReplaceAll(name+" "+line, "DIR", dir)
			t.Run("fails "+name, func(t *testing.T) { failAll(t, snapshot, dir, line, false) })
			if c.Flags().Lookup("dry-run") == nil {
				t.Run("signal during "+name, func(t *testing.T) { failAll(t, snapshot, dir, line, true) })
			}
		}
	}
	for name := range typedRows {
		if !known[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}

// typedStore returns a snapshot of a store in which every line of typedRows finds what it names.
func typedStore(t *testing.T) []byte {
	t.Helper()
	memory := store.NewMemory()
	for _, db := range []store.Store{memory, must[store.Store](t)(store.Space(memory, "blue"))} {
		e := newEngine(t, db)
		cluster(t)(e)
		must[[]alloc.Allocation](t)(e.Operator().SetReservations(t.Context(), reserving("10.1.0.248/30")))
		for name, prefix := range map[string]string{"left": "10.5.0.0/25", "right": "10.5.0.128/25", "shut": "10.7.0.0/25"} {
			if err := e.AddPool(t.Context(), alloc.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix), Closed: name == "shut"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fillOthers(t, memory)
	empty := newEngine(t, must[store.Store](t)(store.Space(memory, "empty")))
	if err := errors.Join(empty.AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.5.0.0/24")}), empty.RemovePool(t.Context(), "p")); err != nil {
		t.Fatal(err)
	}
	return must[[]byte](t)(memory.MarshalBinary())
}

// failAll runs a command on a store as often as it makes calls, each time with another one that fails, or that hangs until a signal ends it.
func failAll(t *testing.T, snapshot []byte, dir, line string, signal bool) {
	for k := 1; ; k++ {
		memory := must[*store.Memory](t)(store.RestoreMemory(snapshot))
		db := faults.NewFaulty(memory)
		failed := false
		stopping, stop := context.WithCancel(t.Context())
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- remote.Serve(ctx, dir+"/s", db) }()
		for !answers(t, dir+"/s") {
			select {
			case err := <-done:
				t.Fatalf("%s: call %d: the socket is not served: %v", line, k, err)
			default:
			}
		}
		db.Script(func(ctx context.Context, c faults.Call) faults.Outcome {
			if c.N != k { // of those after the service has begun
				return faults.Outcome{}
			}
			failed = true
			if signal {
				stop()
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
					t.Errorf("%s: call %d does not end", line, k)
				}
			}
			return faults.Fail(faults.ErrInjected)
		})
		for _, old := range []string{"backup", "copy", "c.json"} {
			os.Remove(dir + "/" + old)
		}
		status, out, stderr := callUntil(t, stopping, map[string]string{"IPAMCTL_STORE": "unix://" + dir + "/s"}, strings.Fields(line)...)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !failed {
			if status > exitFindings {
				t.Errorf("%s: status %d without a failure: %s", line, status, stderr)
			}
			return
		}
		if status == exitOK || status == exitFindings || signal && status != exitAborted {
			t.Errorf("%s, call %d failed: status %d\n%s%s", line, k, status, out, stderr)
		}
	}
}

// answers reports whether a store is served at a socket.
func answers(t *testing.T, path string) bool {
	c, err := remote.Open(t.Context(), path)
	c.Close()
	return err == nil
}
