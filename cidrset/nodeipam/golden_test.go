package nodeipam

import (
	"encoding/hex"
	"testing"
)

// The bytes of snapshots that earlier programs wrote stay readable, and are what is
// written today, of both policies.
func TestGoldenSnapshots(t *testing.T) {
	s := mustNew(t, Config{Slots: []Slot{{24, pfxs("10.0.0.0/16", "10.2.0.0/16")}, {64, pfxs("fd00::/56")}}, Reserved: pfxs("10.0.1.0/24", "fd00::/64")})
	l := byLabelsForTest(t)
	for _, a := range []*Allocator{s, l} {
		for _, n := range []Node{{Name: "n1", UID: "u1"}, {Name: "n2"}, {Name: "n3", Labels: map[string]string{"a": ""}}} {
			if _, err := a.Allocate(n); err != nil {
				t.Fatal(err)
			}
		}
		a.Terminate("n2")
		a.Observe(ParseNode("odd", "192.0.2.0/25"))
	}
	if err := s.DrainPool(pfx("10.2.0.0/16"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := l.DeleteEntry("x"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		a    *Allocator
		want string
	}{
		"slots":  {s, "6e6f64656970616d010102180102040a00000010008080808080800100040a0200001001000040000110fd0000000000000000000000000000003800040002040a0001001810fd0000000000000000000000000000004004026e31027531000002040a0000001810fd00000000000001000000000000000040026e3200000102040a0002001810fd00000000000002000000000000000040026e3300000002040a0003001810fd00000000000003000000000000000040036f64640000000104c000020019eb05283f"},
		"labels": {l, "6e6f64656970616d01020002017801010161064578697374730000040a00000014000800000180808080804000017900040a000000100006000000808080808010000004026e3102753101790001040a0000001a026e320001790101040a0000401a026e330001780001040a00010018036f64640000000104c000020019af3ee7a5"},
	} {
		if got := hex.EncodeToString([]byte(snapshot(t, tt.a))); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
		data, err := hex.DecodeString(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Restore(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := b.Check(); err != nil || snapshot(t, b) != string(data) {
			t.Errorf("%s: restored, it has other bytes (%v)", name, err)
		}
	}
}
