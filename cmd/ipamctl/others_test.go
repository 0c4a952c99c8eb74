package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
)

// Everything that a store holds can be shown and ended: prefixes, numbers, attachments, kept addresses and limits.
func TestOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipam.db")
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	cluster(t)(newEngine(t, db))
	fillOthers(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	for name, text := range map[string]string{"numbers.csv": "number,owner\n101,tenant-c\n100,tenant-d\n", "twice.csv": "number,owner\n7,a\n7,b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, stderr := call(t, nil, "store", "copy", "--store", "bolt://"+path, "bolt://"+dir+"/before.db"); status != exitOK {
		t.Fatal(stderr)
	}
	lines := []string{
		"diff bolt://DIR/before.db",
		"check",
		"prefix list", "prefix list --owner net-a -o json", "prefix list --in 10.97.0.0/16", "prefix pools", "prefix show 10.96.0.5", "prefix show net-a -o csv", "prefix show nobody",
		"prefix assign --owner net-b --pool 10.96.0.0/16 --bits 24 --dry-run", "prefix assign --owner net-b --pool 10.96.0.0/16 --bits 24",
		"prefix assign 10.96.16.0/20 --owner net-c --pool 10.96.0.0/16", "prefix assign --owner net-b --pool 10.96.0.0/16", "prefix release 10.96.16.0/20 --owner net-b --yes",
		"prefix release 10.96.16.0/20 --owner net-c --yes", "prefix release --owner net-b --yes", "prefix release --owner net-a", "prefix remove 10.96.0.0/16", "prefix remove 10.97.0.0/16", "prefix list",
		"number list", "number list vlan", "number list vnis", "number show vlan tenant-a", "number show vlan 101", "number assign vlan tenant-b --dry-run", "number assign vlan tenant-b",
		"number assign vlan tenant-c 150", "number assign vlan tenant-d 150", "number assign vnis tenant-a --range 5000-5999", "number assign vlan x --range 1",
		"number import vlan DIR/numbers.csv", "number import vlan DIR/twice.csv", "number release vlan tenant-a --yes", "number list -o json",
		"attachment list", "attachment list net -o json", "attachment list none", "attachment show 10.98.0.2", "attachment show vm-1", "attachment release net c1/eth0 --dry-run",
		"attachment release net c1/eth0 --yes", "attachment release net c1/eth0 --yes", "attachment release net c3/eth0 --yes", "attachment release net --key vm-1 --yes", "attachment release net",
		"attachment remove net --yes", "attachment remove idle --yes", "attachment list",
		"kept list", "kept list -o json", "kept drop printer --yes", "kept list", "limit list", "limit forget prefixes/net-a --yes", "limit forget prefixes/net-a --yes", "limit list", "check", "diff bolt://DIR/before.db",
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "DIR", dir)
	}
	transcript(t, "others.txt", map[string]string{"IPAMCTL_STORE": "bolt://" + path, "dir": dir}, lines...)
}
