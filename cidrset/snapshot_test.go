package cidrset_test

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset"
)

var _ encoding.BinaryMarshaler = (*cidrset.Set)(nil)

// samples returns sets of every shape that a snapshot can have.
func samples(t testing.TB) map[string]*cidrset.Set {
	opt, clock := cooldown(60)
	cold := occupied(t, "10.0.0.0/16", 24, "10.0.0.0/18", opt)
	release(t, cold, "10.0.3.0/24", 1)
	clock.second = 1010
	release(t, cold, "10.0.8.0/21", 8)
	next(t, cold, "10.0.64.0/24")
	moved := newSet(t, "fd00::/48", 64)
	for range 5 {
		if _, err := moved.AllocateNext(); err != nil {
			t.Fatal(err)
		}
	}
	release(t, moved, "fd00:0:0:2::/64", 1)
	return map[string]*cidrset.Set{
		"empty": newSet(t, "10.0.0.0/16", 24),
		"full":  occupied(t, "10.0.0.0/16", 24, "10.0.0.0/16"),
		"cold":  cold,
		"moved": moved,
		"one":   occupied(t, "10.9.8.7/32", 32, "10.9.8.7/32"),
		"wide":  occupied(t, "fd00::/64", 128, "fd00::7/128 fd00::ffff:0:0/96"),
		"pages": occupied(t, "10.0.0.0/8", 24, "10.0.7.0/24 10.64.0.0/11 10.255.255.0/24"),
	}
}

// The form of version 1, which must not change.
func TestSnapshotGolden(t *testing.T) {
	for name, want := range goldenSnapshots {
		s := samples(t)[name]
		if got := hex.EncodeToString(snapshot(t, s)); got != want {
			t.Errorf("%s is\n%s, want\n%s", name, got, want)
		}
		data, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		opt, _ := cooldown(60)
		back, err := cidrset.Restore(s.Pool(), s.ChildBits(), data, opt)
		if err != nil {
			t.Fatal(err)
		}
		check(t, back)
		if !bytes.Equal(snapshot(t, back), data) {
			t.Errorf("%s is written as %x after it was read", name, snapshot(t, back))
		}
	}
}

// All of the state goes over: children, cursor, what cools and in which order.
func TestRestoreGoesOn(t *testing.T) {
	for name, s := range samples(t) {
		data := snapshot(t, s)
		opt, clock := cooldown(60)
		clock.second = 1070 // all have cooled
		back, err := cidrset.Restore(s.Pool(), s.ChildBits(), data, opt)
		if err != nil {
			t.Fatal(err)
		}
		check(t, back)
		if back.Pool() != s.Pool() || back.ChildBits() != s.ChildBits() || back.Cursor() != s.Cursor() || back.Stats() != s.Stats() {
			t.Fatalf("%s: restored %v in /%d at %v with %+v", name, back.Pool(), back.ChildBits(), back.Cursor(), back.Stats())
		}
		if !slices.Equal(slices.Collect(back.UsedPrefixes()), slices.Collect(s.UsedPrefixes())) {
			t.Fatalf("%s: other prefixes are used", name)
		}
		if name != "cold" {
			continue
		}
		if p, err := back.AllocatePrefix(17); err != nil || p != pfx("10.0.128.0/17") {
			t.Fatal(p, err)
		}
		for i := 65; i < 128; i++ { // what is fresh, from the cursor
			next(t, back, fmt.Sprintf("10.0.%d.0/24", i))
		}
		for _, i := range []int{3, 8, 9, 10, 11, 12, 13, 14, 15} { // oldest first
			next(t, back, fmt.Sprintf("10.0.%d.0/24", i))
		}
	}
	// A set without Cooldown has them free.
	back, err := cidrset.Restore(pfx("10.0.0.0/16"), 24, snapshot(t, samples(t)["cold"]))
	if err != nil {
		t.Fatal(err)
	}
	check(t, back)
	if st := back.Stats(); st.Cooling != 0 || st.Used != 56 {
		t.Fatalf("%+v", st)
	}
	// Another policy.
	back, err = cidrset.Restore(pfx("fd00::/48"), 64, snapshot(t, samples(t)["moved"]), cidrset.LowestFirst())
	if err != nil {
		t.Fatal(err)
	}
	next(t, back, "fd00:0:0:2::/64")
}

// Times go over to the nanosecond, those before 1970 as well.
func TestRestoreTimes(t *testing.T) {
	for _, now := range []time.Time{time.Unix(1000, 1), time.Unix(1000, 999_999_999), time.Unix(-5000, 3), time.Unix(1<<40, 500)} {
		opt := cidrset.Cooldown(1500*time.Millisecond, func() time.Time { return now })
		s := occupied(t, "10.0.0.0/30", 32, "10.0.0.0/30", opt)
		release(t, s, "10.0.0.2/32", 1)
		back, err := cidrset.Restore(s.Pool(), s.ChildBits(), snapshot(t, s), opt)
		if err != nil {
			t.Fatal(err)
		}
		_, err = back.AllocateNext()
		var e *ipalloc.Error
		if !errors.As(err, &e) || !e.Until.Equal(now.Add(1500*time.Millisecond)) {
			t.Fatalf("released at %v: %v", now, err)
		}
	}
}

// frame puts the checksums of a snapshot right: that of the bitmap inside, if it is
// where it should be, and its own.
func frame(data []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	data = slices.Clone(data)
	if len(data) < 8 {
		return data
	}
	body := data[:len(data)-4]
	at := 4 + int(body[3]) + 2
	for range 2 { // the cursor, then the length of the bitmap
		if at >= len(body) {
			break
		}
		v, n := binary.Uvarint(body[at:])
		if at += max(n, 0); at <= len(body) && v >= 8 && v <= uint64(len(body)-at) {
			inner := body[at : at+int(v)]
			if inner[0] == 0xB7 { // else it was the cursor
				binary.LittleEndian.PutUint32(inner[len(inner)-4:], crc32.Checksum(inner[:len(inner)-4], table))
			}
		}
	}
	binary.LittleEndian.PutUint32(data[len(body):], crc32.Checksum(body, table))
	return data
}

// shape returns the pool and the child length that a snapshot names, which may be
// impossible; others if it names none.
func shape(data []byte) (pool netip.Prefix, bits int) {
	if len(data) > 3 && len(data) > 5+int(data[3]) {
		if a, ok := netip.AddrFromSlice(data[4 : 4+data[3]]); ok {
			return netip.PrefixFrom(a, int(data[4+data[3]])), int(data[5+data[3]])
		}
	}
	return pfx("10.0.0.0/16"), 24
}

// survives wants Restore to refuse the bytes or to make a set that works, of the pool
// that the bytes name.
func survives(t testing.TB, data []byte, opts ...cidrset.Option) (ok bool) {
	pool, bits := shape(data)
	s, err := cidrset.Restore(pool, bits, data, opts...)
	if err != nil {
		var e *ipalloc.Error
		_, bad := cidrset.New(pool, bits)
		is := errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, ipalloc.ErrMismatch) || errors.Is(err, ipalloc.ErrVersion) || bad != nil && errors.Is(err, ipalloc.ErrInvalid)
		if s != nil || !is || !errors.As(err, &e) || e.Op != "restore" {
			t.Fatalf("Restore(%v, %d, %x) = %v, %v", pool, bits, data, s, err)
		}
		return false
	}
	if err := s.Check(); err != nil {
		t.Fatalf("Restore(%x): %v", data, err)
	}
	for range 3 {
		_, _ = s.AllocateNext()
		_, _ = s.AllocatePrefix((s.Pool().Bits() + s.ChildBits()) / 2)
		_, _ = s.Release(s.Cursor())
		_, _ = s.Occupy(s.Cursor())
	}
	for range s.UsedPrefixes() {
		break
	}
	_, _ = s.Release(s.Pool())
	if err := s.Check(); err != nil {
		t.Fatalf("Restore(%x), then some calls: %v", data, err)
	}
	return true
}

// Every byte of several snapshots replaced by every other, with checksums
// put right so that it gets through to the reader.
func TestRestoreMutated(t *testing.T) {
	opt, _ := cooldown(60)
	for name, s := range samples(t) {
		data := snapshot(t, s)
		accepted := 0
		for i := range data[:len(data)-4] {
			step := 1
			if testing.Short() || len(data) > 100 {
				step = 7
			}
			for v := 0; v < 256; v += step {
				mutant := slices.Clone(data)
				mutant[i] = byte(v)
				if survives(t, frame(mutant), opt) {
					accepted++
				}
				if mutant[i] != data[i] && survives(t, mutant) {
					t.Fatalf("%s: byte %d changed is not noticed", name, i)
				}
			}
		}
		if accepted == 0 {
			t.Fatalf("%s: no mutant got through to the reader", name)
		}
	}
}

// Every snapshot cut short or made longer is refused.
func TestRestoreTruncated(t *testing.T) {
	opt, _ := cooldown(60)
	for name, s := range samples(t) {
		data := snapshot(t, s)
		for n := range data {
			if survives(t, data[:n], opt) || n >= 4 && survives(t, frame(data[:n]), opt) {
				t.Fatalf("%s cut to %d bytes is taken", name, n)
			}
			// Cut in the middle of the body.
			if n >= 4 && n < len(data)-4 && survives(t, frame(append(slices.Clone(data[:n]), 0, 0, 0, 0)), opt) {
				t.Fatalf("%s with a body of %d bytes is taken", name, n)
			}
		}
		for _, more := range [][]byte{{0}, {0, 0, 0, 0}, data} {
			long := append(slices.Clone(data), more...)
			if survives(t, long, opt) || survives(t, frame(long), opt) {
				t.Fatalf("%s with %d bytes more is taken", name, len(more))
			}
		}
	}
}

// Random bytes behind a right frame.
func TestRestoreNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	data := snapshot(t, samples(t)["cold"])
	opt, _ := cooldown(60)
	rounds := 20000
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		mutant := slices.Clone(data)
		for range 1 + rng.IntN(4) {
			mutant[rng.IntN(len(mutant))] = byte(rng.UintN(256))
		}
		survives(t, frame(mutant), opt)
		survives(t, frame(mutant))
	}
}

// cold is a run of cooling children in a snapshot.
type cold struct {
	lo, size uint64
	second   int64
	nano     uint64
}

// craft returns a snapshot with the given bitmap of taken and cooling children.
func craft(pool netip.Prefix, bits int, cursor uint64, busy []byte, runs ...cold) []byte {
	p := pool.Addr().AsSlice()
	b := append([]byte{'c', 's', 1, byte(len(p))}, p...)
	b = append(b, byte(pool.Bits()), byte(bits))
	b = binary.AppendUvarint(b, cursor)
	b = binary.AppendUvarint(b, uint64(len(busy)))
	b = append(b, busy...)
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(b, r.lo)
		b = binary.AppendUvarint(b, r.size)
		b = binary.AppendVarint(b, r.second)
		b = binary.AppendUvarint(b, r.nano)
	}
	return frame(append(b, 0, 0, 0, 0))
}

// What contradicts itself, each by itself.
func TestRestoreRefuses(t *testing.T) {
	opt, _ := cooldown(60)
	build := func(pool string, bits int, cursor uint64, busy *cidrset.Set, runs ...cold) []byte {
		return craft(pfx(pool), bits, cursor, bitmapOf(t, busy), runs...)
	}
	half := occupied(t, "10.0.0.0/24", 28, "10.0.0.0/25")
	for _, c := range []struct {
		name string
		ok   bool
		data []byte
	}{
		{"as it is", true, build("10.0.0.0/24", 28, 15, half)},
		{"a cursor beyond the pool", false, build("10.0.0.0/24", 28, 16, half)},
		{"a pool with host bits", false, build("10.0.0.1/24", 28, 0, half)},
		{"a 4-in-6 pool", false, build("::ffff:10.0.0.0/120", 124, 0, half)},
		{"child bits out of range", false, build("10.0.0.0/24", 33, 0, half)},
		{"another number of children", false, build("10.0.0.0/24", 29, 0, half)},
		{"fewer children", false, build("10.0.0.0/24", 27, 0, half)},
		{"cooling", true, build("10.0.0.0/24", 28, 0, half, cold{0, 3, 1000, 0}, cold{5, 0, 1000, 999_999_999}, cold{4, 0, 1001, 0})},
		{"cooling and free", false, build("10.0.0.0/24", 28, 0, half, cold{7, 1, 1000, 0})},
		{"cooling and free before", false, build("10.0.0.0/24", 28, 0, half, cold{8, 0, 1000, 0})},
		{"cooling beyond the pool", false, build("10.0.0.0/24", 28, 0, occupied(t, "10.0.0.0/24", 28, "10.0.0.0/24"), cold{15, 1, 1000, 0})},
		{"cooling up to the end of the pool", true, build("10.0.0.0/24", 28, 0, occupied(t, "10.0.0.0/24", 28, "10.0.0.0/24"), cold{15, 0, 1000, 0})},
		{"cooling from beyond the pool", false, build("10.0.0.0/24", 28, 0, occupied(t, "10.0.0.0/24", 28, "10.0.0.0/24"), cold{16, 0, 1000, 0})},
		{"cooling round the end of uint64", false, build("10.0.0.0/24", 28, 0, half, cold{2, ^uint64(0), 1000, 0})},
		{"cooling twice", false, build("10.0.0.0/24", 28, 0, half, cold{0, 3, 1000, 0}, cold{3, 0, 1000, 0})},
		{"a nanosecond too many", false, build("10.0.0.0/24", 28, 0, half, cold{0, 3, 1000, 1_000_000_000})},
		{"out of order", false, build("10.0.0.0/24", 28, 0, half, cold{0, 0, 1000, 1}, cold{1, 0, 1000, 0})},
	} {
		if got := survives(t, c.data, opt); got != c.ok {
			t.Errorf("%s: restored is %v", c.name, got)
		}
	}
	for name, change := range map[string]func([]byte){
		"another magic":     func(b []byte) { b[0] = 'x' },
		"another magic too": func(b []byte) { b[1] = 'x' },
		"another version":   func(b []byte) { b[2] = 2 },
		"version 0":         func(b []byte) { b[2] = 0 },
	} {
		data := build("10.0.0.0/24", 28, 0, half)
		change(data)
		if survives(t, frame(data), opt) {
			t.Errorf("%s is taken", name)
		}
	}
}

// bitmapOf cuts the bitmap out of the snapshot of a set.
func bitmapOf(t testing.TB, s *cidrset.Set) []byte {
	data := snapshot(t, s)
	at := 4 + int(data[3]) + 2
	_, n := binary.Uvarint(data[at:])
	at += n
	size, n := binary.Uvarint(data[at:])
	at += n
	return data[at : at+int(size)]
}

// A few bytes cannot make Restore take much memory.
func TestRestoreTakesNoMoreThanTheBytesJustify(t *testing.T) {
	opt, _ := cooldown(60)
	for name, s := range samples(t) {
		data := snapshot(t, s)
		for i := range data[:len(data)-4] {
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				mutant := slices.Clone(data)
				mutant[i] = v
				mutant = frame(mutant)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _ = cidrset.Restore(s.Pool(), s.ChildBits(), mutant, opt)
				runtime.ReadMemStats(&after)
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
					t.Fatalf("%s, byte %d as %d: %d bytes make %d", name, i, v, len(data), grown)
				}
			}
		}
	}
}

// A snapshot is small where there is little to tell.
func TestSnapshotSize(t *testing.T) {
	for _, c := range []struct {
		set  *cidrset.Set
		most int
	}{
		{newSet(t, "::/0", 64), 64}, {occupied(t, "::/0", 64, "::/0"), 64}, {occupied(t, "10.0.0.0/8", 32, "10.0.0.0/8"), 64},
		{occupied(t, "fd00::/64", 128, "fd00::1/128 fd00::1:0:0:1/128"), 96},
	} {
		if got := len(snapshot(t, c.set)); got > c.most {
			t.Errorf("%v of %v take %d bytes", c.set.Stats().Used, c.set.Pool(), got)
		}
	}
	s := newSet(t, "10.0.0.0/16", 32)
	for a := s.Pool().Addr(); s.Pool().Contains(a); a = a.Next().Next() {
		if _, err := s.Occupy(netip.PrefixFrom(a, 32)); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(snapshot(t, s)); got > 1<<16/8+200 {
		t.Errorf("every other of 2^16 takes %d bytes", got)
	}
}

// goldenSnapshots are snapshots of version 1, by the name of the sample.
var goldenSnapshots = map[string]string{
	"cold":  "637301040a0000001018414cb70101ff018f040000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a6ccd7b5020300c810000807dc1000c10c3f54",
	"empty": "637301040a0000001018000ab70101ff010496f0fa28009d389e73",
	"full":  "637301040a0000001018000ab70101ff0105957391da009d389e73",
	"moved": "63730110fd00000000000000000000000000000030400510b70101ffff0327000001003c4cb2cfe800f79970a6",
	"one":   "637301040a09080720200009b7010100057355d95a00e6d7e48b",
	"pages": "637301040a00000008180012b70101ffff030f070c09240fff1f2db0edf10090f53b1f",
	"wide":  "63730110fd00000000000000000000000000000040800025b70101ffffffffffffffffff010f07fcfffffdff07818080028080808080f8ff1fa73acacd00fd8e09a0",
}
