package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// writes counts calls of Write.
type writes int

func (w *writes) Write(p []byte) (int, error) {
	*w++
	return len(p), nil
}

// A list that is printed in parts is one answer in every format, in one space and in two.
func TestLongList(t *testing.T) {
	const n = mostHeld + 1000
	path := t.TempDir() + "/ipam.db"
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	fill := func(in store.Store) {
		e := newEngine(t, in)
		if err := e.AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/16")}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{mostHeld - 500, n - mostHeld + 500} {
			must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: n, Handle: "h"}))
		}
	}
	env := map[string]string{"IPAMCTL_STORE": "bolt://" + path}
	list := func(format string) string {
		t.Helper()
		status, out, stderr := call(t, env, "address", "list", "-o", format)
		if status != exitOK {
			t.Fatal(status, stderr)
		}
		return out
	}
	for spaces := 1; spaces <= 2; spaces++ {
		if spaces == 1 {
			fill(db)
		} else {
			fill(must[store.Store](t)(store.Space(db, "blue")))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		var fromJSON, fromYAML []map[string]any
		if err := json.Unmarshal([]byte(list("json")), &fromJSON); err != nil || len(fromJSON) != spaces*n {
			t.Errorf("%d spaces: JSON has %d: %v", spaces, len(fromJSON), err)
		}
		if err := yaml.Unmarshal([]byte(list("yaml")), &fromYAML); err != nil || len(fromYAML) != spaces*n {
			t.Errorf("%d spaces: YAML has %d: %v", spaces, len(fromYAML), err)
		}
		if last := fromJSON[len(fromJSON)-1]["space"]; spaces == 2 && (last != "blue" || fromJSON[n-1]["space"] != nil || fromJSON[n]["space"] != "blue") {
			t.Errorf("the last is in %v", last)
		}
		records, err := csv.NewReader(strings.NewReader(list("csv"))).ReadAll()
		if err != nil || len(records) != spaces*n+1 || records[0][spaces-1] != "address" {
			t.Errorf("%d spaces: CSV has %d: %v", spaces, len(records), err)
		}
		if lines := strings.Count(list("name"), "\n"); lines != n { // of the space without a name alone
			t.Errorf("%d spaces: %d names", spaces, lines)
		}
		parts := new(writes)
		(&app{stdout: parts, stderr: parts, getenv: func(k string) string { return env[k] }, now: clock}).run(t.Context(), []string{"address", "list", "-q"})
		if want := (spaces*n + mostHeld - 1) / mostHeld; int(*parts) != want {
			t.Errorf("%d spaces: a table is written in %d parts, want %d", spaces, *parts, want)
		}
		if table := list("table"); strings.Count(table, "\n") != spaces*n+1 || strings.Count(table, "ADDRESS ") != 1 {
			t.Errorf("%d spaces: %d lines", spaces, strings.Count(table, "\n"))
		}
		db = must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A damaged block behind a long list is found before anything is printed, so the rest is shown once.
func TestLongListOfDamage(t *testing.T) {
	path := t.TempDir() + "/ipam.db"
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	e := newEngine(t, db)
	if err := e.AddPool(t.Context(), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/16")}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{mostHeld, 1000} {
		must[alloc.Assigned](t)(e.AutoAssign(t.Context(), alloc.AssignArgs{Owner: alloc.HostOwner("a"), Num4: n, Handle: "h"}))
	}
	must[alloc.Allocation](t)(e.AssignIP(t.Context(), alloc.AssignIPArgs{Address: netip.MustParseAddr("10.0.255.255"), Owner: alloc.HostOwner("z"), Handle: "last-0"}))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file := must[[]byte](t)(os.ReadFile(path))
	if err := os.WriteFile(path, bytes.ReplaceAll(file, []byte("last-0"), []byte("last-1")), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, stderr := call(t, map[string]string{"IPAMCTL_STORE": "bolt://" + path}, "address", "list", "-o", "csv")
	if lines := strings.Count(out, "\n"); status != exitDamaged || strings.Count(out, "address,state") != 1 || lines != mostHeld+1002 {
		t.Errorf("status %d, %d lines: %s", status, lines, stderr)
	}
}
