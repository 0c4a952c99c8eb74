package hostlocal

import (
	"errors"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestNetworks: each network with a record is named once, however its name continues that of another, and an error ends the list.
func TestNetworks(t *testing.T) {
	db := store.NewMemory()
	if _, err := db.Commit(ctx, []store.Op{{Kind: store.Put, Key: "Lother program"}, {Kind: store.Put, Key: "M"}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"net", "net-2", "net\x01", "pods"}
	slices.Sort(want)
	for _, name := range want {
		e, err := New(db, Config{Network: name, Sets: []RangeSet{subnets("10.0.0.0/24")}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"a", "b"} {
			if _, err := e.Add(ctx, eth0(c)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for name, err := range Networks(ctx, db) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range Networks(ctx, db) { // ends with the loop
		break
	}
	f := faults.NewFaulty(db)
	f.Script(faults.At(2, faults.Fail(faults.ErrInjected)))
	var failed error
	for _, err := range Networks(ctx, f) {
		failed = err
	}
	if !errors.Is(failed, faults.ErrInjected) {
		t.Errorf("%v", failed)
	}
}
