package servicealloc

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

// The bytes of snapshots that earlier programs wrote stay readable, and are what is
// written today.
func TestGoldenSnapshots(t *testing.T) {
	r := newRangeT(t, "10.0.0.0/27", StaticBand(4, pfx("10.0.0.20/31")))
	for range 3 {
		r.AllocateNext()
	}
	p := newPortsT(t, 30000, 30100, LowestFirst(), NeverSpill())
	p.AllocateNext()
	wantErr(t, p.Allocate(30001), nil)
	each := PortRange{First: 1, Last: 100, PerProtocol: true}
	g := must(NewRegistry(each, LowestFirst()))
	wantErr(t, g.SetRange(rangeOf("main", "10.0.0.0/24 fd00::/64")), nil)
	wantErr(t, g.SetRange(draining(rangeOf("old", "10.1.0.0/28"))), nil)
	wantErr(t, g.SetRange(RangeInfo{Name: "kept", Prefixes: []netip.Prefix{pfx("10.0.0.64/26")}, Ports: []PortRange{{First: 90, Last: 99}}, Reserved: true}), nil)
	must(g.Allocate("ns/web", Request{Addrs: anyBoth, Ports: []Port{{}, {UDP, 7}}}))
	g.Load(grants("b: 10.0.0.17 9/TCP; a: 10.0.0.17 192.0.2.1; : 10.0.0.20"))
	tx, _, err := g.Begin("open", Request{Addrs: anyBoth[:1]})
	wantErr(t, err, nil)
	for name, tt := range map[string]struct {
		m       marshaler
		restore func(Option) (marshaler, error)
		want    string
	}{
		"range": {r, func(o Option) (marshaler, error) {
			return NewRange(pfx("10.0.0.0/27"), StaticBand(4, pfx("10.0.0.20/31")), o)
		}, "73766361646472010b31302e302e302e302f32372266616c73652066616c73652066616c73652034205b31302e302e302e32302f33315dabfd83dbf5b383f94d147063673a2e14f0417f7f185138c2d8bbc9068aa40cb701011d1f0900060a90b563f4ea3bce"},
		"ports": {p, func(o Option) (marshaler, error) {
			return NewPorts(PortRange{First: 30000, Last: 30100}, LowestFirst(), NeverSpill(), o)
		}, "737663706f7274010b33303030302d3330313030157472756520747275652066616c7365202d31205b5d00147063673a000000007530759400000000000000000bb701016417010e92edbd9967b8c248"},
		"registry": {g, func(o Option) (marshaler, error) { return NewRegistry(each, LowestFirst(), o) }, "7376637265670110706f72747320312d313030207472756516747275652066616c73652066616c7365202d31205b5d00147063673a0000000000000072000000000000007303046b657074000101040a0000401a015a6300046d61696e000002040a0000001810fd0000000000000000000000000000004000036f6c64010001040a0100001c00050500040001040a00001400000161030002040a00001104c00002010002000162020001040a0000110101090100066e732f776562010002040a00001110fd0000000000000000000000000001010200110207000000000000046f70656e050001040a00001200002428a42a"},
	} {
		if got := hex.EncodeToString([]byte(stateOf(t, tt.m))); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
		data, err := hex.DecodeString(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		m, err := tt.restore(Restore(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if check(t, m); stateOf(t, m) != string(data) {
			t.Errorf("%s: restored, it has other bytes", name)
		}
	}
	wantErr(t, tx.Rollback(), nil)
}
