package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Every command works on the space that --space names; check goes through all of them.
func TestSpaces(t *testing.T) {
	name := newBolt(t, func(e *ipset.Engine) {
		cluster(t)(e)
		cluster(t)(must[*ipset.Engine](t)(e.InSpace("red")))
	})
	dir := filepath.Dir(strings.TrimPrefix(name, "bolt://"))
	env := map[string]string{"IPAMCTL_STORE": name, "dir": dir}
	transcript(t, "spaces.txt", env,
		"space list", "--space red pool list", "--space red pool add more 10.1.1.0/24", "pool list", "--space red assign --host d --handle new",
		"show 10.1.1.128", "--space red show 10.1.1.128", "--space red release 10.1.1.128 --yes", "--space green address list",
		"--space green pool add pods 10.1.0.0/24 --dry-run", "--space green pool add pods 10.1.0.0/24", "space list -o json",
		"check", "pool free lb", "-n . pool free more", "pool free none", "--space red check", "--space red store backup "+dir+"/red.db", "--store bolt://"+dir+"/red.db space list",
		"--store bolt://"+dir+"/new.db --space red store restore "+dir+"/red.db --yes", "--store bolt://"+dir+"/new.db --space red show guest",
		"--space red diff bolt://"+dir+"/new.db",
		"space remove red --yes", "space remove green --yes", "--space green pool remove pods --yes", "space remove green --yes --dry-run",
		"space remove green", "space remove green --yes", "space remove green --yes", "space list -o name", "pool list -o name", "host list -o csv", "block list --pool lb -o json", "block list --host d", "--space red space list", "space remove "+strings.Repeat("n", 256)+" --yes",
		"--space "+strings.Repeat("n", 256)+" pool list", "--space red export --format host-local", "--space red map pods")
	damage(t, strings.TrimPrefix(name, "bolt://"))
	transcript(t, "spaces-damaged.txt", env, "check", "check -o json", "--space red check -q", "repair --dry-run", "repair --dry-run -o json", "repair --yes", "check -q", "--space green check", "--space green repair --dry-run")
}

// damage adds a stray record in a space.
func damage(t *testing.T, path string) {
	t.Helper()
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	stray(t, must[store.Store](t)(store.Space(db, "red")))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// damageBlock adds stray records in the space without a name.
func damageBlock(t *testing.T, path string) {
	t.Helper()
	db := must[*boltstore.Store](t)(boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true}))
	stray(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// stray adds records that nothing has a use for.
func stray(t *testing.T, red store.Store) {
	t.Helper()
	must[uint64](t)(red.Commit(context.Background(), []store.Op{{Kind: store.Put, Key: "r4\x0a\x01\x00\x10\x1c", Expect: store.AnyRevision}, {Kind: store.Put, Key: "?"}}))
}
