package journal_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// The records of the log that earlier programs wrote stay readable, and are what is
// written today: of a set, and of a registry with an owner that is not UTF-8 and a move.
func TestGoldenRecords(t *testing.T) {
	ctx := context.Background()
	one := netip.MustParseAddr("10.96.0.20")
	openSet := func(s *boltstore.Store) *journal.Journal[*cidrset.Set] {
		return must[*cidrset.Set](t)(journal.OpenSet(ctx, s, "set", pool, 24))
	}
	openRegistry := func(s *boltstore.Store) *journal.Journal[*servicealloc.Registry] {
		return must[*servicealloc.Registry](t)(journal.OpenRegistry(ctx, s, "owners", servicealloc.PortRange{First: 1, Last: 100}, servicealloc.LowestFirst()))
	}
	s := open(t, boltstore.Options{NoSync: true})
	set, owners := openSet(s), openRegistry(s)
	if _, err := journal.Do(ctx, set, (*cidrset.Set).AllocateNext); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(r *servicealloc.Registry) error{
		func(r *servicealloc.Registry) error {
			return r.SetRange(servicealloc.RangeInfo{Name: "main", Prefixes: []netip.Prefix{services}})
		},
		func(r *servicealloc.Registry) error {
			_, err := r.Allocate("ns/\xff", servicealloc.Request{Addrs: []netip.Addr{one}, Ports: []servicealloc.Port{{Protocol: servicealloc.TCP, Number: 9}}})
			return err
		},
		func(r *servicealloc.Registry) error {
			r.Load([]servicealloc.Grant{{Owner: "b", Addrs: []netip.Addr{one}}})
			_, _, err := r.Move(servicealloc.Grant{Owner: "ns/\xff", Generation: 1, Addrs: []netip.Addr{one}}, servicealloc.Grant{Owner: "c", Addrs: []netip.Addr{one}})
			return err
		},
		func(r *servicealloc.Registry) error { _, err := r.Release("b", 0); return err },
	} {
		if err := owners.Do(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	states := [2][]byte{snapshotOf(t, set), snapshotOf(t, owners)}
	set.Close()
	owners.Close()
	for name, want := range golden {
		got := recordsOf(t, s, name)
		if !maps.Equal(got, want) {
			for _, key := range slices.Sorted(maps.Keys(got)) {
				t.Logf("%q: %q,", key, got[key])
			}
			t.Errorf("%s: other records", name)
		}
	}
	old := open(t, boltstore.Options{NoSync: true})
	for name, records := range golden {
		put(t, old, name, records)
	}
	if a, b := snapshotOf(t, openSet(old)), snapshotOf(t, openRegistry(old)); string(a) != string(states[0]) || string(b) != string(states[1]) {
		t.Error("read from the records, they are not the same")
	}
}

var golden = map[string]map[string]string{
	"set": {
		"kind":                                "1 cidrset.Set",
		"log\x00\x00\x00\x00\x00\x00\x00\x00": "{\"version\":1,\"changes\":[{\"op\":\"allocate\",\"prefixes\":[\"10.0.0.0/24\"]}],\"cursor\":\"10.0.1.0/24\"}",
		"snapshot":                            "\xd3\x0e}\xe5S\xadB\xd6\x11\x9c\xe9%N]d\xe2",
		"part\xd3\x0e}\xe5S\xadB\xd6\x11\x9c\xe9%N]d\xe2": "cs\x01\x04\n\x00\x00\x00\x10\x18\x00\n\xb7\x01\x01\xff\x01\x04\x96\xf0\xfa(\x00\x9d8\x9es",
	},
	"owners": {
		"kind":                                "1 servicealloc.Registry",
		"log\x00\x00\x00\x00\x00\x00\x00\x00": "{\"version\":1,\"changes\":[{\"op\":\"allocated\",\"owner\":{\"bytes\":\"bnMv/w==\"},\"generation\":1,\"addrs\":[\"10.96.0.20\"],\"ports\":[{\"Protocol\":\"TCP\",\"Number\":9}]}]}",
		"log\x00\x00\x00\x00\x00\x00\x00\x01": "{\"version\":1,\"changes\":[{\"op\":\"allocated\",\"owner\":\"b\",\"generation\":2,\"addrs\":[\"10.96.0.20\"]},{\"op\":\"moved\",\"owner\":\"c\",\"generation\":4,\"addrs\":[\"10.96.0.20\"],\"from\":{\"owner\":{\"bytes\":\"bnMv/w==\"},\"generation\":3,\"addrs\":[\"10.96.0.20\"]}}]}",
		"log\x00\x00\x00\x00\x00\x00\x00\x02": "{\"version\":1,\"changes\":[{\"op\":\"released\",\"owner\":\"b\",\"generation\":2,\"addrs\":[\"10.96.0.20\"]}]}",
		"snapshot":                            "\x02\xffPW\xd0&\xd8ب\xef\xec\xe5\xf3}\xec\xe3",
		"part\x02\xffPW\xd0&\xd8ب\xef\xec\xe5\xf3}\xec\xe3": "svcreg\x01\x11ports 1-100 false\x16true false false -1 []\x00\x14pcg:\x00\x00\x00\x00\x00\x00\x00r\x00\x00\x00\x00\x00\x00\x00s\x01\x04main\x00\x00\x01\x04\n`\x00\x00\x16\x00\x00\x00\xa9\x7fՐ",
	},
}
