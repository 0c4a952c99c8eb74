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
	w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 28))
	if _, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.3"), Owner: alloc.HostOwner("h")}); err != nil {
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
	if _, err := w.AssignIP(bg, AssignIPArgs{Address: ip("10.0.0.70"), Owner: alloc.HostOwner("h")}); err != nil {
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
	for name, damage := range map[string]func(block, address store.Record) store.Op{
		"a block cut short": func(b, _ store.Record) store.Op {
			b.Value = b.Value[:1]
			return store.Op{Kind: store.Put, Key: b.Key, Value: b.Value}
		},
		"an address too many": func(_, a store.Record) store.Op {
			at, _ := record.ParseAddressKey(a.Key)
			return store.Op{Kind: store.Put, Key: record.AddressKey(at.Next()), Value: a.Value}
		},
		"an address written alone":  func(_, a store.Record) store.Op { return store.Op{Kind: store.Put, Key: a.Key, Value: a.Value} },
		"an address cut short":      func(_, a store.Record) store.Op { return store.Op{Kind: store.Put, Key: a.Key, Value: ""} },
		"an address that is missed": func(_, a store.Record) store.Op { return store.Op{Kind: store.Delete, Key: a.Key} },
		"a key that is no address":  func(_, a store.Record) store.Op { return store.Op{Kind: store.Put, Key: a.Key + "x", Value: a.Value} },
	} {
		w := newWorld(t, Config{}, poolOf("a", "10.0.0.0/24", 28))
		at := w.assign(want("h", 1, "p")).V4[0]
		b := w.list(record.BlockRange(record.KindBlock, at.Block))[0]
		ops := []store.Op{damage(b, w.list(record.AddressRange(at.Block))[0])}
		if name != "an address written alone" && ops[0].Key != b.Key {
			ops = append(ops, store.Op{Kind: store.Put, Key: b.Key, Value: b.Value}) // as every commit does
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
