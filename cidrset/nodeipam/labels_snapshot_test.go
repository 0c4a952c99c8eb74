package nodeipam_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// busy returns an allocator with something of everything.
func busy(t testing.TB) *nodeipam.Allocator {
	t.Helper()
	a, err := nodeipam.New(nodeipam.Config{ByLabels: true, Families: []nodeipam.Family{nodeipam.IPv6}, Reserved: prefixes("10.0.3.0/24", "fd00::300/120")},
		nodeipam.OnChange(func(nodeipam.Change) {}))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []entry{e46("x", "10.0.0.0/22", "fd00::/118", 8, "a=1|2,!b", "@=n1"), e6("y", "fd00::/112", 0), e6("z", "fd00::/112", 4, "n>3")} {
		if e.Name == "y" {
			e.MaskIPv6 = 128
		}
		if err := a.AddEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		for _, l := range []string{"a=1", "n=5", ""} {
			if _, err := a.Allocate(node{Name: fmt.Sprint("n", i, l), Labels: labels(l)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Release("n0a=1")
	a.Load([]node{{Name: "f1", Prefixes: prefixes("fd07::/64", "10.0.0.0/8", "10.0.0.0/32")}, {Name: "f2", Entry: "ghost", Prefixes: prefixes("fd07::/64")}})
	if gone, err := a.DeleteEntry("z"); gone || err != nil {
		t.Fatal(gone, err)
	}
	check(t, a)
	return a
}

// Restore keeps an entry that no node holds anything of.
func TestSnapshotOfAnEntryWithoutNodes(t *testing.T) {
	a := allocator(t, v4, e4("idle", "10.0.0.0/22", 8), e4("used", "10.1.0.0/22", 8, "a"))
	gets(t, a, node{Name: "n", Labels: labels("a=1")}, "used [10.1.0.0/24]")
	b, err := nodeipam.Restore([]byte(bytesOf(t, a)))
	if err != nil {
		t.Fatal(err)
	}
	if was, is := fmt.Sprint(a.Stats()), fmt.Sprint(b.Stats()); was != is {
		t.Errorf("stats %s, restored %s", was, is)
	}
	gets(t, b, node{Name: "m"}, "idle [10.0.0.0/24]")
}

// Damaged bytes are refused, or give an allocator that passes its check.
func TestDamagedSnapshots(t *testing.T) {
	data := []byte(bytesOf(t, busy(t)))
	refused := func(what string, data []byte) {
		if b, err := nodeipam.Restore(data); b != nil || !is(err, ipalloc.ErrCorrupt) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for n := range data {
		refused("cut short", data[:n])
		flipped := append([]byte(nil), data...)
		flipped[n] ^= 0x10
		refused("one bit", flipped)
	}
	refused("too long", append(append([]byte(nil), data...), 0))
	for n := len("nodeipam") + 1; n < len(data)-4; n++ { // with a checksum that is right
		for _, bit := range []byte{1, 2, 0x10, 0x80, 0xff} {
			changed := append([]byte(nil), data...)
			changed[n] ^= bit
			b, err := nodeipam.Restore(sum(changed))
			if err != nil {
				if !is(err, ipalloc.ErrCorrupt) {
					t.Fatalf("byte %d: %v", n, err)
				}
				continue
			}
			if err := b.Check(); err != nil {
				t.Fatalf("byte %d, bits %x: %v", n, bit, err)
			}
		}
	}
	data[len("nodeipam")] = 2
	if _, err := nodeipam.Restore(sum(data)); !is(err, ipalloc.ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
}

// sum makes the checksum right.
func sum(data []byte) []byte {
	binary.LittleEndian.PutUint32(data[len(data)-4:], crc32.Checksum(data[:len(data)-4], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

// What no allocator would have written is refused, however well-formed.
func TestContradictingSnapshots(t *testing.T) {
	a := allocator(t, v4, e4("x", "10.0.0.0/16", 8))
	for _, p := range prefixes("10.7.0.0/24", "10.7.1.0/24") {
		if err := a.Reserve(p); err != nil {
			t.Fatal(err)
		}
	}
	a.Load([]node{{Name: "n1", Prefixes: prefixes("10.8.0.0/24")}, {Name: "n2", Prefixes: prefixes("10.9.0.0/24", "10.9.1.0/24")}})
	for what, swap := range map[string][2]string{
		"a reservation twice":                {"10.7.0.0/24", "10.7.1.0/24"},
		"reservations out of order":          {"10.7.0.0/24", "10.7.2.0/24"},
		"a node with a prefix twice":         {"10.9.0.0/24", "10.9.1.0/24"},
		"an entry with host bits":            {"10.0.0.0/16", "10.0.1.0/16"},
		"an entry smaller than its children": {"10.0.0.0/16", "10.0.0.0/25"},
	} {
		var raw [2][]byte
		for i, s := range swap {
			raw[i], _ = pfx(s).MarshalBinary()
		}
		data := bytes.Replace([]byte(bytesOf(t, a)), raw[0], raw[1], 1)
		if b, err := nodeipam.Restore(sum(data)); b != nil || !is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	data := bytes.Replace([]byte(bytesOf(t, a)), []byte("\x02n1"), []byte("\x02n3"), 1)
	if _, err := nodeipam.Restore(sum(data)); !is(err, ipalloc.ErrCorrupt) {
		t.Errorf("nodes out of order: %v", err)
	}
}
