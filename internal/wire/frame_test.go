package wire

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/ipalloc/ipalloc"
)

type value struct{ err error }

func (v value) MarshalBinary() ([]byte, error) { return []byte("xyz"), v.err }
func (v value) UnmarshalBinary(b []byte) error { return v.err }

// framed is a snapshot with a value of each kind that records do not have.
type framed struct {
	yes      bool
	blob     []byte
	name     string
	at       netip.Addr
	prefixes []netip.Prefix
	few      uint16
	moment   time.Time
}

func (f *framed) code(c *Coder) {
	Bool(c, &f.yes)
	Blob(c, &f.blob)
	String(c, &f.name)
	c.Value(value{})
	AnyAddr(c, &f.at)
	List(c, &f.prefixes, 1, AnyPrefix)
	Upto(c, &f.few, 5)
	Time(c, &f.moment)
}

// sample returns a snapshot, appended to b.
func sample(t *testing.T, b []byte) ([]byte, framed) {
	f := framed{true, []byte("bytes"), "name", netip.MustParseAddr("192.0.2.1"), nil, 5, time.Unix(-5, 999_999_999)}
	for _, p := range []string{"10.0.0.0/8", "0.0.0.0/0", "2001:db8::/48", "::/0", "::1/128", "::ffff:0:0/96"} {
		f.prefixes = append(f.prefixes, netip.MustParsePrefix(p))
	}
	f.prefixes = append(f.prefixes, netip.Prefix{})
	w := Frame(b, "ts", 2)
	f.code(w)
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return b, f
}

func readSample(b []byte) (f framed, err error) {
	c := Open(b, "ts", 2)
	f.code(c)
	return f, c.End()
}

// TestFrame: a frame is appended and read again, and no string of it changes with its bytes.
func TestFrame(t *testing.T) {
	b, want := sample(t, []byte("head"))
	if !bytes.HasPrefix(b, []byte("head")) {
		t.Fatal("the slice given is not kept")
	}
	got, err := readSample(b[4:])
	if err != nil || !got.yes || string(got.blob) != "bytes" || got.name != "name" || got.at != want.at || !slices.Equal(got.prefixes, want.prefixes) ||
		got.few != 5 || !got.moment.Equal(want.moment) {
		t.Errorf("%+v, %v", got, err)
	}
	if &got.blob[0] != &b[bytes.Index(b, got.blob)] || unsafe.StringData(got.name) == &b[bytes.Index(b, []byte("name"))] {
		t.Error("a blob is copied, or a string is not")
	}
}

// Every cut behind a right checksum, and every flipped bit without one, is an error.
func TestDamage(t *testing.T) {
	b, _ := sample(t, nil)
	body := b[:len(b)-sumSize]
	for n := range body {
		if _, err := readSample(Seal(bytes.Clone(body[:n]), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range b {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := readSample(c); !errors.Is(err, ipalloc.ErrCorrupt) {
				t.Errorf("byte %d bit %d flipped: %v", i, bit, err)
			}
		}
	}
	if _, err := readSample(Seal(append(bytes.Clone(body), 0), 0)); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := readSample(nil); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("no bytes: %v", err)
	}
}

// A version that a newer program wrote is a mismatch and not damage; 0 is no version.
func TestVersion(t *testing.T) {
	for version, want := range map[byte]error{0: ipalloc.ErrCorrupt, 1: nil, 2: nil, 3: ipalloc.ErrVersion} {
		b, _ := Frame(nil, "ts", version).Finish()
		if err := Open(b, "ts", 2).End(); !errors.Is(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	b, _ := Frame(nil, "other", 1).Finish()
	if err := Open(b, "ts", 2).End(); !errors.Is(err, ipalloc.ErrCorrupt) {
		t.Errorf("another kind: %v", err)
	}
}

// What no coder writes is refused behind a right checksum.
func TestHostileBodies(t *testing.T) {
	read := map[string]func(*Coder){
		"bool":    func(c *Coder) { Bool(c, new(bool)) },
		"uvarint": func(c *Coder) { Uint(c, new(int)) },
		"varint":  func(c *Coder) { Int(c, new(int)) },
		"upto 5":  func(c *Coder) { Upto(c, new(int), 5) },
		"count":   func(c *Coder) { c.Count(new(int), 2) },
		"addr":    func(c *Coder) { AnyAddr(c, new(netip.Addr)) },
		"prefix":  func(c *Coder) { AnyPrefix(c, new(netip.Prefix)) },
		"time":    func(c *Coder) { Time(c, new(time.Time)) },
		"blob":    func(c *Coder) { Blob(c, new([]byte)) },
		"value":   func(c *Coder) { c.Value(value{errors.New("no")}) },
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
		{"blob", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
		{"value", []byte{1, 0}},
	} {
		b, _ := Frame(nil, "ts", 1).Finish()
		c := Open(Seal(append(b[:3:3], tt.body...), 0), "ts", 1)
		read[tt.kind](c)
		first := c.Err
		if !errors.Is(first, ipalloc.ErrCorrupt) {
			t.Errorf("%s % x: %v", tt.kind, tt.body, first)
		}
		c.Fail("later")
		for name, read := range read { // sticky: nothing is read any more
			if read(c); c.Err != first {
				t.Errorf("%s after %s: another error", name, tt.kind)
			}
		}
	}
}

// An error of a value that codes itself is that of the frame.
func TestValueError(t *testing.T) {
	w := Frame(nil, "ts", 1)
	w.Value(value{errors.New("no")})
	if _, err := w.Finish(); err == nil {
		t.Error("none")
	}
}
