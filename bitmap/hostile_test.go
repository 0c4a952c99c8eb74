package bitmap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/bitmap"
)

// seal replaces the checksum of a form, so that what is behind it is tested.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// form builds a sealed form over [0, last] of raw tokens.
func form(last uint64, tokens ...any) []byte {
	body := binary.AppendUvarint([]byte{0xB7, 1, 1}, last)
	for _, tok := range tokens {
		switch v := tok.(type) {
		case int:
			body = binary.AppendUvarint(body, uint64(v))
		case uint64:
			body = binary.AppendUvarint(body, v)
		case []byte:
			body = append(body, v...)
		}
	}
	return seal(body)
}

const (
	tokClear  = 0
	tokSet    = 1
	tokDense  = 2
	tokSparse = 3
)

func token(n uint64, kind uint64) uint64 { return n<<2 | kind }

func page(words ...uint64) []byte {
	out := make([]byte, 0, 512)
	for _, w := range words {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return append(out, make([]byte, 512-len(out))...)
}

// decode reads data into a set that already has something, and checks what holds
// of any bytes: an error and the same set, or a set that passes its own check and
// has a form of its own that means the same.
func decode(t testing.TB, data []byte) (*bitmap.Bitmap, error) {
	t.Helper()
	b := bitmap.New(200)
	b.SetRange(70, 99)
	if err := b.UnmarshalBinary(data); err != nil {
		var e *ipalloc.Error
		if !errors.As(err, &e) || e.Package != "bitmap" || !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, ipalloc.ErrVersion) {
			t.Fatalf("%x: error %v is of no kind", data, err)
		}
		if b.Len() != 200 || b.Count() != 30 || b.CountRange(70, 99) != 30 || b.Check() != nil {
			t.Fatalf("%x: the set changed on error %v", data, err)
		}
		return nil, err
	}
	if err := b.Check(); err != nil {
		t.Fatalf("%x: %v", data, err)
	}
	var again bitmap.Bitmap
	if err := again.UnmarshalBinary(marshal(t, b)); err != nil || !again.Equal(b) {
		t.Fatalf("%x: %v reads back as %v, %v", data, b, &again, err)
	}
	return b, nil
}

// Each rule of the form broken once.
func TestHostileForms(t *testing.T) {
	full := bytes.Repeat([]byte{0xFF}, 512)
	ten := bytes.Repeat([]byte{0xFF}, 10)
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"nothing", nil},
		{"too short", []byte{0xB7, 1, 0, 0, 0, 0}},
		{"other magic", seal([]byte{0xB8, 1, 0})},
		{"version 0", seal([]byte{0xB7, 0, 0})},
		{"version 2", seal([]byte{0xB7, 2, 0})},
		{"flag 2", seal([]byte{0xB7, 1, 2})},
		{"no ordinals, and more", seal([]byte{0xB7, 1, 0, 0})},
		{"no size", seal([]byte{0xB7, 1, 1})},
		{"size cut short", seal([]byte{0xB7, 1, 1, 0x80})},
		{"size above 64 bits", seal(append([]byte{0xB7, 1, 1}, ten...))},
		{"no token", form(0)},
		{"token cut short", form(0, []byte{0x84})},
		{"token above 64 bits", form(0, ten)},
		{"clear run of none", form(4095, token(0, tokClear))},
		{"set run of none", form(4095, token(0, tokSet))},
		{"dense run of none", form(4095, token(0, tokDense))},
		{"a page too many", form(4095, token(2, tokSet))},
		{"a page too many, in two", form(4095, token(1, tokSet), token(1, tokClear))},
		{"a page missing", form(4096, token(1, tokSet))},
		{"bytes too many", form(4095, token(1, tokSet), 0)},
		{"2^62-1 pages", form(top, token(1<<62-1, tokSet))},
		{"2^52+1 pages of 2^64", form(top, token(1<<52+1, tokSet))},
		{"dense page cut short", form(4095, token(1, tokDense), full[:511])},
		{"dense pages not there", form(top, token(1<<52, tokDense))},
		{"dense pages not there, one is", form(top, token(1<<52, tokDense), full)},
		{"dense ordinal beyond n", form(9, token(1, tokDense), page(1<<10))},
		{"dense word beyond n", form(63, token(1, tokDense), page(0, 1))},
		{"dense last word beyond n", form(4094, token(1, tokDense), full)},
		{"sparse page of none", form(4095, token(0<<1|1, tokSparse))},
		{"sparse page of none, clear", form(4095, token(0, tokSparse))},
		{"sparse page of 193", form(4095, token(193<<1|1, tokSparse), make([]byte, 193))},
		{"sparse ordinal missing", form(4095, token(2<<1|1, tokSparse), 7)},
		{"sparse ordinal beyond its page", form(8191, token(1<<1|1, tokSparse), 4096, token(1, tokClear))},
		{"sparse ordinal beyond n", form(9, token(1<<1|1, tokSparse), 10)},
		{"sparse clear ordinal beyond n", form(9, token(1<<1, tokSparse), 10)},
		{"sparse sum beyond its page", form(8191, token(2<<1|1, tokSparse), 4000, 95, token(1, tokClear))},
		{"sparse gap that wraps", form(4095, token(2<<1|1, tokSparse), 7, top)},
		{"sparse beyond the last of all", form(top, token(1<<52-1, tokClear), token(2<<1|1, tokSparse), 4095, 0)},
		{"sparse gap above 64 bits", form(4095, token(1<<1|1, tokSparse), ten)},
	} {
		if b, err := decode(t, c.data); err == nil {
			t.Errorf("%s: reads as %v, want an error", c.name, b)
		} else if len(err.Error()) <= len("bitmap: unmarshal: corrupt: ") {
			t.Errorf("%s: error %q says nothing more", c.name, err)
		}
	}
}

// A number is in its shortest form, and every cut of a form behind a right checksum is
// refused.
func TestNumbersAndCuts(t *testing.T) {
	ones := page()
	for i := range ones {
		ones[i] = byte(i)
	}
	whole := form(3*4096-1, token(1, tokDense), ones, token(2<<1|1, tokSparse), 7, 300, token(1, tokSet))
	if _, err := decode(t, whole); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) - 4 {
		if b, err := decode(t, seal(whole[:n])); err == nil {
			t.Errorf("cut to %d bytes it reads as %v", n, b)
		}
	}
	for name, body := range map[string][]byte{
		"the size":     {1, 0xff, 0x9f, 0x00, 1<<2 | tokSet}, // 4095 in three bytes
		"a token":      {1, 0xff, 0x1f, 0x80 | 1<<2 | tokSet, 0x00},
		"an ordinal":   {1, 0xff, 0x1f, (1<<1|1)<<2 | tokSparse, 0x87, 0x00},
		"a flag of 2":  {2},
		"nothing more": {1},
	} {
		if b, err := decode(t, seal(append([]byte{0xB7, 1}, body...))); err == nil {
			t.Errorf("%s: reads as %v", name, b)
		}
	}
	if err := new(bitmap.Bitmap).UnmarshalBinary(seal([]byte{0xB7, 2, 0})); !errors.Is(err, ipalloc.ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
}

// Forms that AppendBinary would not write, and yet mean a set.
func TestLooseForms(t *testing.T) {
	full := bytes.Repeat([]byte{0xFF}, 512)
	for _, c := range []struct {
		name string
		data []byte
		want *bitmap.Bitmap
	}{
		{"runs in pieces", form(1<<18-1, token(1, tokSet), token(62, tokSet), token(1, tokSet)), filled(1<<18-1, [2]uint64{0, 1<<18 - 1})()},
		{"dense page, clear", form(4095, token(1, tokDense), page()), filled(4095)()},
		{"dense page, set", form(4095, token(1, tokDense), full), filled(4095, [2]uint64{0, 4095})()},
		{"dense page of one word", form(63, token(1, tokDense), page(^uint64(0))), filled(63, [2]uint64{0, 63})()},
		{"dense last page of one ordinal", form(1<<18, token(64, tokClear), token(1, tokDense), page(1)), filled(1<<18, [2]uint64{1 << 18, 1 << 18})()},
		{"dense last page of one ordinal, all set", form(1<<18, token(64, tokSet), token(1, tokDense), page(1)), filled(1<<18, [2]uint64{0, 1 << 18})()},
		{"dense pages, set", form(1<<18-1, token(64, tokDense), bytes.Repeat(full, 64)), filled(1<<18-1, [2]uint64{0, 1<<18 - 1})()},
		{"sparse page of all", form(1, token(2<<1|1, tokSparse), 0, 0), filled(1, [2]uint64{0, 1})()},
		{"sparse page of none set", form(1, token(2<<1, tokSparse), 0, 0), filled(1)()},
		{"sparse at the last of all", form(top, token(1<<52-1, tokClear), token(1<<1|1, tokSparse), 4095), filled(top, [2]uint64{top, top})()},
	} {
		if b, err := decode(t, c.data); err != nil || !b.Equal(c.want) {
			t.Errorf("%s: reads as %v, %v; want %v", c.name, b, err, c.want)
		}
	}
}

// Every mutation of every byte, and every truncation and extension, without
// the checksum (always an error) and with it made right again.
func TestMutatedForms(t *testing.T) {
	forms := [][]byte{}
	for _, s := range samples {
		forms = append(forms, marshal(t, s.set()))
	}
	forms = append(forms,
		marshal(t, every(4999, 5, 2)()),
		marshal(t, every(200, 7, 3)()),
		form(1<<18, token(64, tokClear), token(1, tokDense), page(1)))
	for _, data := range forms {
		body := data[:len(data)-4]
		step := 1
		if len(body) > 200 { // a dense form: all bytes, fewer values
			step = 85
		}
		for i := range data {
			for d := 1; d < 256; d += step {
				bad := slices.Clone(data)
				bad[i] ^= byte(d)
				if err := new(bitmap.Bitmap).UnmarshalBinary(bad); err == nil {
					t.Fatalf("%x: the checksum does not notice byte %d ^ %x", data, i, d)
				}
				if i < len(body) {
					decode(t, seal(bad[:len(body)]))
				}
			}
		}
		for n := range data {
			if _, err := decode(t, data[:n]); err == nil {
				t.Fatalf("%x: cut to %d bytes is no error", data, n)
			}
		}
		for n := range body {
			if _, err := decode(t, seal(body[:n])); err == nil {
				t.Fatalf("%x: body cut to %d bytes is no error", data, n)
			}
		}
		for d := range 256 {
			if _, err := decode(t, seal(append(body[:len(body):len(body)], byte(d)))); err == nil {
				t.Fatalf("%x: one more byte %x is no error", data, d)
			}
		}
	}
}

// Decoding allocates no more than the input justifies. A byte is at most one
// token, a token at most one page and one inner node (2 KiB), whether or not the
// whole turns out to be a set; a size of 2^64 alone costs nothing.
func TestHostileFormsAllocateLittle(t *testing.T) {
	pair := func(tokens ...any) (out []any) { // repeated 400 times
		for range 400 {
			out = append(out, tokens...)
		}
		return out
	}
	far := token(1<<43, tokClear)
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"size alone", form(top)},
		{"all set", form(top, token(1<<52, tokSet))},
		{"dense pages not there", form(top, token(1<<52, tokDense))},
		{"dense pages not there, one is", form(top, token(1<<61, tokDense), bytes.Repeat([]byte{0x55}, 512))},
		{"single pages set and clear", form(top, pair(token(1, tokSet), token(1, tokClear))...)},
		{"sparse pages in a row", form(top, pair(token(1<<1|1, tokSparse), 0)...)},
		{"sparse pages far apart", form(top, pair(token(1<<1|1, tokSparse), 0, far)...)},
		{"holes far apart", form(top, pair(token(1<<1, tokSparse), 0, token(1<<43, tokSet))...)},
		{"dense pages of one word", form(top, pair(token(1, tokDense), page(7))...)},
	} {
		var b bitmap.Bitmap
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := b.UnmarshalBinary(c.data)
		runtime.ReadMemStats(&after)
		got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(c.data))*2048+16384
		t.Logf("%s: %d bytes in, %d allocated, %v", c.name, len(c.data), got, err)
		if got > most {
			t.Errorf("%s: %d bytes allocate %d, want at most %d", c.name, len(c.data), got, most)
		}
	}
}
