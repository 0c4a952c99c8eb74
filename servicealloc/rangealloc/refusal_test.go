package rangealloc_test

import (
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
	"github.com/ipalloc/ipalloc/servicealloc"
	"github.com/ipalloc/ipalloc/servicealloc/rangealloc"
)

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	for _, spec := range []string{"", "x", "10.0.0.0", "10.0.0.0/33", "0-5", "9-5", "1-70000", "::/0", "::ffff:10.0.0.0/112"} {
		_, err := rangealloc.Encode(spec)
		rows = append(rows, refusal.Row{Call: "Encode", What: spec, Err: err, Is: ipalloc.ErrInvalid, Op: "encode", Field: "spec"})
		_, err = rangealloc.Decode(spec, nil)
		rows = append(rows, refusal.Row{Call: "Decode", What: spec, Err: err, Is: ipalloc.ErrInvalid, Op: "decode", Field: "spec"})
	}
	_, err := rangealloc.Encode("fd00::/64", servicealloc.Grant{Addrs: []netip.Addr{netip.MustParseAddr("fd00::f000:0:0:1")}})
	rows = append(rows, refusal.Row{Call: "Encode", What: "far up", Err: err, Is: ipalloc.ErrLimit, Op: "encode"})
	_, err = rangealloc.Decode("10.0.0.0/30", []byte{1, 0, 0})
	rows = append(rows, refusal.Row{Call: "Decode", What: "beyond", Err: err, Is: ipalloc.ErrCorrupt, Op: "decode"})
	_, _, err = rangealloc.Lists([]byte(`{"items":[{"kind":"Pod","metadata":{"name":"x"}}]}`), nil)
	rows = append(rows, refusal.Row{Call: "Lists", What: "another kind", Err: err, Is: ipalloc.ErrInvalid, Op: "read list", Field: "ServiceCIDR"})
	refusal.Check(t, "rangealloc", rows)
}
