package wire

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
)

// every is a record with a value of each kind.
type every struct {
	n, word    uint64
	i          int64
	b          uint8
	name, text string
	list       []int
	yes, no    bool
	v6         bool
	index      addr.U128
	at         netip.Addr
	prefix     netip.Prefix
	from, to   netip.Addr
	rest       string
}

func (e *every) code(c *Coder) {
	c.Version(3)
	c.Literal("kind")
	Uint(c, &e.n)
	Word(c, &e.word)
	Int(c, &e.i)
	Byte(c, &e.b)
	Name(c, &e.name)
	String(c, &e.text)
	List(c, &e.list, 1, Uint[int])
	c.Flags(&e.yes, &e.no)
	c.Family(&e.v6)
	c.Index(e.v6, &e.index)
	c.Addr(&e.at)
	c.Prefix(&e.prefix)
	c.Addrs(&e.from, &e.to)
	Rest(c, &e.rest)
}

// TestCoder: what is written is read again, and no record that is cut before its last string is read.
func TestCoder(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		e := every{n: 1 << 63, word: 7, i: -1, b: 255, name: "a", text: "b\x00", list: []int{0, 127, 128}, yes: true, v6: v6,
			index: addr.U128{Lo: 9}, at: netip.MustParseAddr("10.0.0.1"), prefix: netip.MustParsePrefix("fd00::/8"),
			from: netip.MustParseAddr("fd00::1"), to: netip.MustParseAddr("fd00::2")}
		w := Write(nil)
		e.code(w)
		value := string(w.B)
		for cut := range len(value) {
			c := Read(value[:cut])
			if new(every).code(c); c.Err == nil {
				t.Errorf("read %d of %d bytes", cut, len(value))
			}
		}
		var got every
		c := Read(value + "rest")
		got.code(c)
		again := Write(nil)
		if got.code(again); c.End() != nil || string(again.B) != value+"rest" || got.rest != "rest" || !slices.Equal(got.list, e.list) {
			t.Errorf("%+v, %v", got, c.Err)
		}
	}
}

// TestNumbersFit: a number that an int of 32 bits cannot have is refused there, not cut.
func TestNumbersFit(t *testing.T) {
	for value, code := range map[string]func(*Coder, *int){"\x80\x80\x80\x80\x20": Uint[int], "\x80\x80\x80\x80\x40": Int[int]} {
		n, c := 0, Read(value)
		if code(c, &n); (c.Err == nil) != (strconv.IntSize == 64) || c.Err == nil && uint64(n) != 1<<33 {
			t.Errorf("%q is %d, %v", value, n, c.Err)
		}
	}
}

// TestNumbers: a number has one form.
func TestNumbers(t *testing.T) {
	for s, want := range map[string]struct {
		n    uint64
		good bool
	}{
		"\x00": {0, true}, "\x7f": {127, true}, "\x80\x01": {128, true}, "\xff\x7f": {1<<14 - 1, true},
		"": {}, "\x80": {}, "\x80\x00": {}, "\x85\x00": {}, "\x85\x80": {}, "\x85\x80\x00": {}, "\x01\x01": {},
	} {
		r := Reader{S: s}
		if n := r.Uvarint(); r.End() == nil != want.good || want.good && n != want.n {
			t.Errorf("%q: %d, %v, want %+v", s, n, r.Err, want)
		}
	}
}

// TestRefused: a form of another version fails with ErrVersion; anything else that no Coder has written is corrupt.
func TestRefused(t *testing.T) {
	prefix, index := func(c *Coder) { c.Prefix(new(netip.Prefix)) }, func(c *Coder) { c.Index(true, new(addr.U128)) }
	version := func(c *Coder) { c.Version(2) }
	for _, c := range []struct {
		value string
		code  func(*Coder)
		want  error
	}{
		{"\x02", version, nil}, {"\x03", version, ipalloc.ErrVersion}, {"\x01", version, ipalloc.ErrVersion}, {"", version, ipalloc.ErrCorrupt},
		{"4\x0a\x00\x00\x00\x08", prefix, nil}, {"4\x0a\x00\x00\x01\x08", prefix, ipalloc.ErrCorrupt}, {"4\x0a\x00\x00\x00\x21", prefix, ipalloc.ErrCorrupt},
		{"5\x0a\x00\x00\x00\x08", prefix, ipalloc.ErrCorrupt}, {"6\x0a\x00\x00\x00\x08", prefix, ipalloc.ErrCorrupt},
		{"4\x0a\x00\x00\x00\x08 ", prefix, ipalloc.ErrCorrupt}, {"\x0a\x00\x00\x00", index, ipalloc.ErrCorrupt},
	} {
		r := Read(c.value)
		if c.code(r); !errors.Is(r.End(), c.want) {
			t.Errorf("%q: %v, want %v", c.value, r.Err, c.want)
		}
	}
}
