package snap_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/snap"
)

type marshaler struct{ err error }

func (m marshaler) MarshalBinary() ([]byte, error) { return []byte("xyz"), m.err }
func (m marshaler) UnmarshalBinary(b []byte) error { return m.err }

var (
	moment   = time.Unix(-5, 999_999_999)
	prefixes = []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParsePrefix("2001:db8::/48"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("::ffff:0:0/96")}
)

// sample returns a snapshot with every kind of value.
func sample(t *testing.T, b []byte) []byte {
	w := snap.NewWriter(b, "ts", 2)
	w.Byte(7)
	w.Bool(true)
	w.Uvarint(1 << 63)
	w.Varint(-1 << 62)
	w.Bytes(nil)
	w.String("name")
	w.Marshal(marshaler{})
	w.Addr(netip.MustParseAddr("192.0.2.1"))
	w.Count(len(prefixes))
	for _, p := range prefixes {
		w.Prefix(p)
	}
	w.Time(moment)
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read reads the sample and returns what is wrong with it.
func read(t *testing.T, b []byte, check bool) error {
	r := snap.NewReader(b, "ts", 2)
	same := r.Byte() == 7
	same = r.Bool() && same
	same = r.Uvarint() == 1<<63 && same
	same = r.Varint() == -1<<62 && same
	same = len(r.Bytes()) == 0 && same
	same = r.String() == "name" && same
	r.Unmarshal(marshaler{})
	same = r.Addr() == netip.MustParseAddr("192.0.2.1") && same
	n := r.Count(1)
	same = n == len(prefixes) && same
	for i := range n {
		p := r.Prefix()
		same = i < len(prefixes) && p == prefixes[i] && same
	}
	same = r.Time().Equal(moment) && same
	if check && (!same || r.Version() != 2) {
		t.Error("what was read is not what was written")
	}
	return r.Close()
}

func TestRoundTrip(t *testing.T) {
	head := []byte("head")
	b := sample(t, head)
	if !bytes.HasPrefix(b, head) {
		t.Fatal("the slice given is not kept")
	}
	if err := read(t, b[len(head):], true); err != nil {
		t.Error(err)
	}
}

// Every cut behind a right checksum, and every flipped bit without one, is an error.
func TestDamage(t *testing.T) {
	b := sample(t, nil)
	body := b[:len(b)-4]
	for n := range body {
		if err := read(t, snap.Seal(bytes.Clone(body[:n]), 0), false); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range b {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if err := read(t, c, false); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("byte %d bit %d flipped: %v", i, bit, err)
			}
		}
	}
	if err := read(t, snap.Seal(append(bytes.Clone(body), 0), 0), false); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if err := read(t, nil, false); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("no bytes: %v", err)
	}
}

// A version that a newer program wrote is a mismatch and not damage; 0 is no version.
func TestVersion(t *testing.T) {
	for version, want := range map[byte]error{0: ipalloc.ErrCorrupt, 1: nil, 2: nil, 3: ipalloc.ErrVersion} {
		b, _ := snap.NewWriter(nil, "ts", version).Finish()
		if err := snap.NewReader(b, "ts", 2).Close(); !errors.Is(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	b, _ := snap.NewWriter(nil, "other", 1).Finish()
	if err := snap.NewReader(b, "ts", 2).Close(); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("another kind: %v", err)
	}
}

// What no writer writes is refused behind a right checksum.
func TestHostileBodies(t *testing.T) {
	readers := map[string]func(*snap.Reader){
		"bool":      func(r *snap.Reader) { r.Bool() },
		"uvarint":   func(r *snap.Reader) { r.Uvarint() },
		"varint":    func(r *snap.Reader) { r.Varint() },
		"upto 5":    func(r *snap.Reader) { r.Upto(5) },
		"count":     func(r *snap.Reader) { r.Count(2) },
		"addr":      func(r *snap.Reader) { r.Addr() },
		"prefix":    func(r *snap.Reader) { r.Prefix() },
		"time":      func(r *snap.Reader) { r.Time() },
		"bytes":     func(r *snap.Reader) { r.Bytes() },
		"unmarshal": func(r *snap.Reader) { r.Unmarshal(marshaler{errors.New("no")}) },
	}
	long := bytes.Repeat([]byte{0x80}, 10)
	for _, tt := range []struct {
		kind string
		body []byte
	}{
		{"bool", []byte{2}},
		{"uvarint", []byte{0x80, 0}},
		{"uvarint", []byte{0x81, 0}},
		{"uvarint", append(long, 1)},
		{"uvarint", long[:9]},
		{"uvarint", nil},
		{"varint", []byte{0x80, 0}},
		{"varint", append(long, 1)},
		{"upto 5", []byte{6}},
		{"count", []byte{2, 0, 0, 0}},
		{"addr", []byte{3, 1, 2, 3}},
		{"addr", []byte{16, 1}},
		{"prefix", []byte{4, 10, 0, 0, 1, 8}},
		{"prefix", []byte{4, 10, 0, 0, 0, 33}},
		{"prefix", []byte{4, 10, 0, 0, 0}},
		{"time", []byte{0, 0x80, 0x94, 0xeb, 0xdc, 0x03}},
		{"bytes", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
		{"unmarshal", []byte{1, 0}},
	} {
		b, _ := snap.NewWriter(nil, "ts", 1).Finish()
		b = snap.Seal(append(b[:3:3], tt.body...), 0)
		r := snap.NewReader(b, "ts", 1)
		readers[tt.kind](r)
		first := r.Err()
		if !errors.Is(first, ipalloc.ErrCorrupt) {
			t.Errorf("%s % x: %v", tt.kind, tt.body, first)
		}
		r.Fail("later")
		for name, read := range readers { // sticky: nothing is read any more
			if read(r); r.Err() != first {
				t.Errorf("%s after %s: another error", name, tt.kind)
			}
		}
	}
}

// An error of a value that is marshalled leaves the slice as it was.
func TestMarshalError(t *testing.T) {
	w := snap.NewWriter([]byte("head"), "ts", 1)
	bad := errors.New("no")
	w.Marshal(marshaler{bad})
	if b, err := w.Finish(); string(b) != "head" || !errors.Is(err, bad) {
		t.Errorf("%q, %v", b, err)
	}
}
