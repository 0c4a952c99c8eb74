package ipset

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestBytes: the records of a world with every kind of them are what they were in the versions that they name, and are read as the
// same world. Change the version of a record with its form, and keep reading the old one.
func TestBytes(t *testing.T) {
	w := busy(t)
	file, err := os.ReadFile("testdata/records.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range w.list(store.Range{}) {
		fmt.Fprintf(&got, "%x %x\n", r.Key, r.Value)
	}
	if got.String() != string(file) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), file)
	}
	old := newWorld(t, alloc.Config{})
	old.remove(record.CatalogKey, record.PoolsKey)
	for line := range strings.Lines(string(file)) {
		var key, value []byte
		if key, value, err = scan(line); err != nil {
			t.Fatal(err)
		}
		if _, err := old.store.Commit(bg, []store.Op{{Kind: store.Put, Key: string(key), Value: string(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	old.check()
	if got, want := fmt.Sprint(old.used()), fmt.Sprint(w.used()); got != want {
		t.Errorf("in use: %s, want %s", got, want)
	}
}

// scan reads a line of a key and a value, which may be empty.
func scan(line string) (key, value []byte, err error) {
	k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if _, err = fmt.Sscanf(k, "%x", &key); err == nil && v != "" {
		_, err = fmt.Sscanf(v, "%x", &value)
	}
	return key, value, err
}

// TestBoundsOfNames: names of the greatest length survive a round trip by another engine, and their records pass a check.
func TestBoundsOfNames(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 1024) }
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 26))
	a := want(long("o"), 1, long("h"))
	a.Request = long("r")
	got, err := w.AutoAssign(bg, a)
	if err != nil {
		t.Fatal(err)
	}
	at := got.V4[0].Address
	e := w.engine(w.store)
	if al, err := e.Lookup(bg, at); err != nil || al.Handle != long("h") || al.Host != alloc.HostOwner(long("o")) {
		t.Errorf("%v, %v", al.Address, err)
	}
	if als, err := e.IPsByHandle(bg, long("h")); err != nil || len(als) != 1 {
		t.Errorf("%d of the handle, %v", len(als), err)
	}
	if blocks, err := e.BlocksOf(bg, alloc.HostOwner(long("o"))); err != nil || len(blocks) != 1 {
		t.Errorf("%d blocks, %v", len(blocks), err)
	}
	if again, err := e.AutoAssign(bg, a); err != nil || len(again.V4) != 1 || again.V4[0].Address != at {
		t.Errorf("the repeated request: %v, %v", again, err)
	}
	w.check()
	if gone, blocks, err := e.RemoveHost(bg, alloc.HostOwner(long("o"))); err != nil || len(gone) != 1 || len(blocks) != 1 {
		t.Errorf("%v, %v, %v", gone, blocks, err)
	}
	for al, err := range w.Allocations(bg, netip.Prefix{}) {
		t.Errorf("left %v, %v", al, err)
	}
}
