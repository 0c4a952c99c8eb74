package bitmap_test

import (
	"bytes"
	"encoding"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc/bitmap"
)

var (
	_ encoding.BinaryAppender    = (*bitmap.Bitmap)(nil)
	_ encoding.BinaryMarshaler   = (*bitmap.Bitmap)(nil)
	_ encoding.BinaryUnmarshaler = (*bitmap.Bitmap)(nil)
)

func marshal(t testing.TB, b *bitmap.Bitmap) []byte {
	t.Helper()
	data, err := b.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A sample is a set and the bytes that stand for it. They are written down: what
// was stored by one version must be read by every later one, so a difference here
// needs a new version byte and a decoder for both.
type sample struct {
	name string
	set  func() *bitmap.Bitmap
	form string // hexadecimal
}

func filled(last uint64, ranges ...[2]uint64) func() *bitmap.Bitmap {
	return func() *bitmap.Bitmap {
		b := newSet(last)
		for _, r := range ranges {
			b.SetRange(r[0], r[1])
		}
		return b
	}
}

// every sets the ordinals x of [0, last] with x%mod below a bound: pages that are
// neither mostly clear nor mostly set.
func every(last, mod, below uint64) func() *bitmap.Bitmap {
	return func() *bitmap.Bitmap {
		b := newSet(last)
		for x := range last + 1 {
			if x%mod < below {
				b.Set(x)
			}
		}
		return b
	}
}

var samples = []sample{
	{"no ordinals", func() *bitmap.Bitmap { return bitmap.New(0) }, "b70100b9aef71d"},
	{"one, clear", filled(0), "b70101000470d6b2a8"},
	{"one, set", filled(0, [2]uint64{0, 0}), "b7010100057355d95a"},
	{"a page, clear", filled(4095), "b70101ff1f049d93e4e3"},
	{"a page, set", filled(4095, [2]uint64{0, 4095}), "b70101ff1f059e108f11"},
	{"few in a page", filled(4095, [2]uint64{0, 0}, [2]uint64{63, 65}, [2]uint64{4095, 4095}), "b70101ff1f2f003e0000bd1f5c587232"},
	{"few missing in a page", filled(4095, [2]uint64{1, 62}, [2]uint64{66, 4094}), "b70101ff1f2b003e0000bd1f8d9d9297"},
	{"tail in a word", filled(4999, [2]uint64{4096, 4999}), "b7010187270405f632fb80"},
	{"runs of pages", filled(1<<20-1, [2]uint64{8192, 1<<19 - 1}, [2]uint64{1<<19 + 7, 1<<19 + 9}), "b70101ffff3f08f9031f070000fc03cdf65a21"},
	{"2^64, clear", filled(top), "b70101ffffffffffffffffff01808080808080802047d5899d"},
	{"2^64, set", filled(top, [2]uint64{0, top}), "b70101ffffffffffffffffff01818080808080802060a8b5d4"},
	{"2^64, both ends", filled(top, [2]uint64{0, 0}, [2]uint64{top, top}), "b70101ffffffffffffffffff010f00f8ffffffffffff1f0fff1f0e13fbb5"},
	{"2^64, middle", filled(top, [2]uint64{1<<40 + 5, 1<<50 + 4}), "b70101ffffffffffffffffff0180808080042b0000000000fdfffffffb1f2f0000000000fcffffffffdfff1fb6fb9101"},
	{"2^63+6, all but the last", filled(1<<63+5, [2]uint64{0, 1<<63 + 4}), "b701018580808080808080800181808080808080102f0000000000bc11251e"},
	{"a third of 300", every(299, 3, 1), "b70101ab02a70600020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202765cea0f"},
}

// The versioned form does not change silently.
func TestGoldenForms(t *testing.T) {
	for _, s := range samples {
		b := s.set()
		if got := hex.EncodeToString(marshal(t, b)); got != s.form {
			t.Errorf("%s: form is\n%s, want\n%s", s.name, got, s.form)
		}
		data, err := hex.DecodeString(s.form)
		if err != nil {
			t.Fatal(err)
		}
		var back bitmap.Bitmap
		if err := back.UnmarshalBinary(data); err != nil || !back.Equal(b) || back.Check() != nil {
			t.Errorf("%s: reads back as %v, %v; want %v", s.name, &back, err, b)
		}
	}
}

// What was read is what was written, for sets of every size and density, and
// equal sets have equal forms, whatever they went through.
func TestFormsRoundTrip(t *testing.T) {
	for _, last := range lasts {
		rng := rand.New(rand.NewPCG(last, 6))
		b := newSet(last)
		for step := range 40 {
			x := min(rng.Uint64()>>rng.UintN(64), last)
			y := min(x|(1<<rng.UintN(64)-1), last)
			if step%2 == 0 {
				b.SetRange(x, y)
			} else {
				b.ClearRange(x, y)
			}
			for range 600 { // some pages become dense
				if z := x + rng.Uint64N(4096); z >= x && z <= last {
					b.Set(z)
				}
				if z := x + rng.Uint64N(4096); z >= x && z <= last {
					b.Clear(z)
				}
			}
			data := marshal(t, b)
			var back bitmap.Bitmap
			if err := back.UnmarshalBinary(data); err != nil {
				t.Fatalf("last %d: %v", last, err)
			}
			if err := back.Check(); err != nil {
				t.Fatalf("last %d: %v", last, err)
			}
			if diff := diffRuns(runsOf(&back, true), runsOf(b, true)); diff != "" || !back.Equal(b) || back.Count() != b.Count() {
				t.Fatalf("last %d: read back, the runs differ\n%s", last, diff)
			}
			if again := marshal(t, &back); !bytes.Equal(again, data) {
				t.Fatalf("last %d: the form read back is another", last)
			}
		}
	}
}

// An empty or a full set is a few bytes, whatever its size; sparse sets are
// as long as they have ordinals; a dense one is its bits.
func TestFormsAreShort(t *testing.T) {
	for _, last := range lasts {
		for _, full := range []bool{false, true} {
			b := newSet(last)
			if full {
				b.SetRange(0, last)
			}
			// Header, flag and checksum 7, the size 1 to 10, one token 1 to 8.
			if got := len(marshal(t, b)); got > 25 {
				t.Errorf("last %d, full %v: %d bytes", last, full, got)
			}
		}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct {
		name     string
		last     uint64
		count    int
		perOrder float64 // bytes an ordinal, at most
	}{
		{"64 pages, an ordinal each", 1<<18 - 1, 64, 5},
		{"scattered over 2^32", 1<<32 - 1, 1000, 7},
		{"scattered over 2^64", top, 1000, 12},
	} {
		b := newSet(c.last)
		for range c.count {
			b.Set(rng.Uint64() & c.last)
		}
		data := marshal(t, b)
		t.Logf("%s: %.1f bytes an ordinal", c.name, float64(len(data))/float64(c.count))
		if got := float64(len(data)) / float64(c.count); got > c.perOrder {
			t.Errorf("%s: %.1f bytes an ordinal, want at most %.1f", c.name, got, c.perOrder)
		}
	}
	if got, most := len(marshal(t, every(1<<20-1, 3, 1)())), 1<<20/8+40; got > most {
		t.Errorf("a dense set of 2^20 takes %d bytes, want at most %d", got, most)
	}
}

// The boundary between a page that lists its ordinals, set or clear, and one
// of 64 words. Both are part of the form: a reader must take either.
func TestSparseBoundary(t *testing.T) {
	for _, c := range []struct {
		count  uint64 // set ordinals of a page, every other one from 0
		cut    bool   // clear ones, in a full page
		length int
	}{
		// Header 3, size 2, checksum 4, token 2; then a byte an ordinal or 512.
		{192, false, 3 + 2 + 4 + 2 + 192},
		{193, false, 3 + 2 + 4 + 1 + 512},
		{192, true, 3 + 2 + 4 + 2 + 192},
		{193, true, 3 + 2 + 4 + 1 + 512},
	} {
		b := bitmap.New(4096)
		if c.cut {
			b.SetRange(0, 4095)
		}
		for i := range c.count {
			if c.cut {
				b.Clear(i * 2)
			} else {
				b.Set(i * 2)
			}
		}
		data := marshal(t, b)
		if len(data) != c.length {
			t.Errorf("%d ordinals, clear %v: %d bytes, want %d", c.count, c.cut, len(data), c.length)
		}
		var back bitmap.Bitmap
		if err := back.UnmarshalBinary(data); err != nil || !back.Equal(b) {
			t.Errorf("%d ordinals, clear %v: reads back as %v, %v", c.count, c.cut, &back, err)
		}
	}
}

// AppendBinary appends, and the checksum is that of its own part.
func TestAppendBinary(t *testing.T) {
	b := filled(9999, [2]uint64{5, 5000})()
	data := marshal(t, b)
	for _, prefix := range []string{"", "x", "a longer prefix"} {
		got, err := b.AppendBinary([]byte(prefix))
		if err != nil || string(got) != prefix+string(data) {
			t.Errorf("after %q: %x, %v, want %x", prefix, got, err, data)
		}
	}
	buf := make([]byte, 0, 1<<12)
	if n := fewestAllocs(20, func() { buf, _ = b.AppendBinary(buf[:0]) }); n != 0 {
		t.Errorf("AppendBinary into a large enough slice allocates %v times", n)
	}
}

// The set keeps nothing of the bytes, and what it was before is gone.
func TestUnmarshalReplaces(t *testing.T) {
	data := marshal(t, every(5000, 3, 1)())
	b := newSet(top)
	b.SetRange(0, top/2)
	b.BestFit(3)
	in := slices.Clone(data)
	if err := b.UnmarshalBinary(in); err != nil {
		t.Fatal(err)
	}
	for i := range in {
		in[i] = 0xFF
	}
	if !b.Equal(every(5000, 3, 1)()) || b.Check() != nil {
		t.Fatalf("read back as %v", b)
	}
	if lo, ok := b.BestFit(1); !ok || lo != 4 { // 0 3 6 are set, so 4-5 is the first pair
		t.Errorf("BestFit(1) = %d %v, want 4", lo, ok)
	}
	again := marshal(t, b)
	if !bytes.Equal(again, data) {
		t.Error("the form read back is another")
	}
}
