package nodeipam

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/invariant"
	"github.com/ipalloc/ipalloc/internal/wire"
)

// stepsPerByte bounds the trie nodes that Restore looks at for each byte of its input:
// a prefix takes six bytes or more, and a walk to it, and back, 33 nodes each for IPv4;
// one of IPv6 takes 18 bytes and 129 nodes.
const stepsPerByte = 20

// restoreInSteps is Restore, with a bound on the trie nodes that it looks at.
func restoreInSteps(t *testing.T, data []byte) (*Allocator, error) {
	t.Helper()
	before := invariant.Steps()
	a, err := Restore(data)
	if steps := invariant.Steps() - before; steps > stepsPerByte*uint64(len(data)) {
		t.Errorf("%d steps for %d bytes", steps, len(data))
	}
	return a, err
}

// Whatever the bytes, Restore returns an error, or an allocator that passes its own
// check and has one binary form, in a number of steps that is linear in their length.
// The bytes get past the checksum.
func FuzzRestore(f *testing.F) {
	a, _ := New(dual("10.0.0.0/24", 28, "fd00::/48", 64))
	_, _ = a.Allocate(Node{Name: "n", UID: "u"})
	_ = a.Reserve(pfx("10.0.0.128/25"))
	b, _ := a.MarshalBinary()
	f.Add(b[:len(b)-4])
	b, _ = byLabelsForTest(f).MarshalBinary()
	f.Add(b[:len(b)-4])
	f.Add([]byte(snapshotMagic + "\x01\x01"))
	f.Add([]byte(snapshotMagic + "\x01\x02"))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := restoreInSteps(t, wire.Seal(bytes.Clone(body), 0))
		if err != nil {
			if !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, ipalloc.ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		again := snapshot(t, a)
		c, err := Restore([]byte(again))
		if err != nil || snapshot(t, c) != again {
			t.Fatalf("two binary forms, or none: %v", err)
		}
	})
}

// What no allocator would have written is refused, however well-formed.
func TestRestoreOfHostileBodies(t *testing.T) {
	p := "\x04\x0a\x00\x00\x00\x18" // 10.0.0.0/24
	slots := "\x01\x01\x1c\x01\x01" + p + "\x00\x00\x00"
	for name, body := range map[string]string{
		"no policy":             "\x03\x00\x00",
		"no slot":               "\x01\x00\x00\x00",
		"family 5":              "\x01\x01\x1c\x05\x00\x00\x00",
		"pool of another":       "\x01\x01\x1c\x00\x01" + p + "\x00\x00\x00\x00\x00",
		"pool of children":      "\x01\x01\x17\x01\x01" + p + "\x00\x00\x00\x00\x00",
		"pool with host bits":   "\x01\x01\x1c\x01\x01\x04\x0a\x00\x00\x01\x18\x00\x00\x00\x00\x00",
		"pool around 4-in-6":    "\x01\x01\x60\x00\x01\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00",
		"two pools":             "\x01\x01\x1c\x01\x02" + p + "\x00\x00\x00" + p + "\x00\x00\x00\x00\x00",
		"cursor beyond":         "\x01\x01\x1c\x01\x01" + p + "\x00\x80\x80\x80\x80\x10\x00\x00\x00",
		"cursor within a child": "\x01\x01\x1c\x01\x01" + p + "\x00\x01\x00\x00\x00",
		"reserved twice":        slots + "\x02" + p + p + "\x00",
		"reserved out of order": slots + "\x02\x04\x0a\x00\x01\x00\x18" + p + "\x00",
		"owner without":         slots + "\x00\x01\x01n\x00\x00\x00\x00",
		"owner twice":           slots + "\x00\x02\x01n\x00\x00\x00\x01" + p + "\x01n\x00\x00\x00\x01" + p,
		"owners out of order":   slots + "\x00\x02\x01n\x00\x00\x00\x01" + p + "\x01m\x00\x00\x00\x01" + p,
		"prefix twice":          slots + "\x00\x01\x01n\x00\x00\x00\x02" + p + p,
		"prefix missing":        slots + "\x00\x01\x01n\x00\x00\x00\x01\x00\x00\x00",
		"host bits":             slots + "\x00\x01\x01n\x00\x00\x00\x01\x04\x0a\x00\x00\x01\x18",
		"more owners than data": slots + "\x00\xff\xff\x03",
		"terminating is 2":      slots + "\x00\x01\x01n\x00\x00\x02\x01" + p,
		"trailing":              slots + "\x00\x00\x00",
		"family of labels":      "\x02\x01\x04IPv5\x00\x00\x00",
		"family twice":          "\x02\x02\x04IPv4\x04IPv4\x00\x00\x00",
		"three families":        "\x02\x03\x04IPv4\x04IPv6\x04IPv4\x00\x00\x00",
		"entry without a pool":  "\x02\x00\x01\x01e\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00",
		"entry lacks a family":  "\x02\x01\x04IPv6\x01\x01e\x00" + p + "\x00\x04\x00\x00\x00\x00\x00\x00\x00",
	} {
		if _, err := restoreInSteps(t, wire.Seal([]byte(snapshotMagic+"\x01"+body), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Restore(wire.Seal([]byte(snapshotMagic+"\x01"+slots+"\x00\x01\x01n\x00\x00\x00\x01"+p), 0)); err != nil {
		t.Errorf("the good one: %v", err)
	}
	if _, err := Restore(wire.Seal([]byte(snapshotMagic+"\x02"+slots+"\x00\x00"), 0)); !errors.Is(err, ipalloc.ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
}

// A megabyte of hostile bytes: one node of many prefixes, many pools, many nodes
// without an entry beside many entries. Each took a number of steps that was quadratic.
func TestRestoreIsLinear(t *testing.T) {
	n := 60_000
	if testing.Short() {
		n = 6000
	}
	for name, body := range hostileBodies(n) {
		w := wire.Frame(nil, snapshotMagic, snapshotVersion)
		body(w)
		data, _ := w.Finish()
		if _, err := restoreInSteps(t, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hostileBodies returns what writes n things that a quadratic Restore compares with one
// another.
func hostileBodies(n int) map[string]func(w *wire.Coder) {
	address := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	put := func(w *wire.Coder, values ...any) {
		for _, v := range values {
			switch v := v.(type) {
			case int:
				wire.Uint(w, &v)
			case bool:
				wire.Bool(w, &v)
			case string:
				wire.String(w, &v)
			case netip.Prefix:
				wire.AnyPrefix(w, &v)
			}
		}
	}
	prefixes := func(w *wire.Coder) {
		put(w, n)
		for i := range n {
			put(w, address(i))
		}
	}
	return map[string]func(w *wire.Coder){
		"one node of many prefixes": func(w *wire.Coder) {
			put(w, bySlots, 1, 32, true, 0 /* pools */, 0 /* reservations */, 1, "n", "", "", false)
			prefixes(w)
		},
		"many pools and reservations": func(w *wire.Coder) {
			put(w, bySlots, 1, 32, true, n)
			for i := range n {
				put(w, address(i), false, 0, 0)
			}
			prefixes(w)
			put(w, 0)
		},
		"many foreign nodes and entries": func(w *wire.Coder) {
			put(w, byLabels, 0, n)
			for i := range n {
				put(w, fmt.Sprintf("e%06d", i), 0, netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 8), netip.Prefix{}, 0, 31, 0, false, 0, 0)
			}
			put(w, 0, n)
			for i := range n {
				put(w, fmt.Sprintf("n%06d", i), "", "", false, 1, address(i))
			}
		},
	}
}
