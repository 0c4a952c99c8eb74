package ipset

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// BlockOf returns the block that an address is in, of whatever size, and none for an address behind the last block.
func TestBlockOf(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.3"), Owner: alloc.HostOwner("h")}); err != nil {
		t.Fatal(err)
	}
	pools, err := w.Pools(bg)
	if err != nil {
		t.Fatal(err)
	}
	pools[0].BlockBits = 26
	if err := w.UpdatePool(bg, pools[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.70"), Owner: alloc.HostOwner("h")}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{"10.0.0.3": "10.0.0.0/28", "10.0.0.70": "10.0.0.64/26", "10.0.0.130": "", "10.0.1.3": "", "9.0.0.1": ""} {
		for _, e := range []*Engine{w.Engine, w.engine(w.store)} {
			b, err := e.Operator().BlockOf(bg, ip(at))
			if err != nil || (b != nil) != (want != "") || b != nil && b.Prefix() != netip.MustParsePrefix(want) {
				t.Errorf("%s: %v, %v; want %s", at, b, err, want)
			}
		}
	}
}

// BlockOf fails with ErrCorrupt on a block and address records that do not belong together.
func TestBlockOfDamagedRecords(t *testing.T) {
	put := func(key, value string) store.Op { return store.Op{Kind: store.Put, Key: key, Value: value} }
	next := func(a store.Record) string {
		at, _ := record.ParseAddressKey(a.Key)
		return record.AddressKey(at.Next())
	}
	type ops []store.Op
	for name, damage := range map[string]func(block, address store.Record) ops{
		"a block cut short":         func(b, _ store.Record) ops { return ops{put(b.Key, b.Value[:1])} },
		"an address too many":       func(_, a store.Record) ops { return ops{put(next(a), a.Value)} },
		"an address of another":     func(_, a store.Record) ops { return ops{put(next(a), a.Value), {Kind: store.Delete, Key: a.Key}} },
		"an address written alone":  func(_, a store.Record) ops { return ops{put(a.Key, a.Value)} },
		"an address cut short":      func(_, a store.Record) ops { return ops{put(a.Key, "")} },
		"an address that is missed": func(_, a store.Record) ops { return ops{{Kind: store.Delete, Key: a.Key}} },
		"a key that is no address":  func(_, a store.Record) ops { return ops{put(a.Key+"x", a.Value)} },
		"no address in its place":   func(_, a store.Record) ops { return ops{put(a.Key+"x", a.Value), {Kind: store.Delete, Key: a.Key}} },
	} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		w.leaves()
		at := w.assign(want("h", 1, "p")).V4[0]
		b := w.list(record.BlockRange(record.KindBlock, at.Block))[0]
		ops := damage(b, w.list(record.AddressRange(at.Block))[0])
		if name != "an address written alone" && ops[0].Key != b.Key {
			ops = append(ops, put(b.Key, b.Value)) // as every commit does
		}
		for i := range ops {
			ops[i].Expect = store.AnyRevision
		}
		if _, err := w.store.Commit(bg, ops); err != nil {
			t.Fatal(err)
		}
		if b, err := w.engine(w.store).Operator().BlockOf(bg, at.Address); b != nil || !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}
