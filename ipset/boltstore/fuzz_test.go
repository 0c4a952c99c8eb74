package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// FuzzImage changes some bytes of a file: whatever they are, reading it gives an error of this package or all that was in it,
// and neither panics nor takes memory that the file does not justify. The input is a list of changes: position (4 bytes), byte.
func FuzzImage(f *testing.F) {
	path := filepath.Join(f.TempDir(), "store.db")
	s, err := Open(context.Background(), path, Options{NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 60 {
		ops := []store.Op{put(strings.Repeat(string(rune('a'+i%26)), 1+i/26), strings.Repeat("value", i*3), store.AnyRevision)}
		if _, err := s.Commit(context.Background(), ops); err != nil {
			f.Fatal(err)
		}
	}
	used := s.Stats().Bytes
	page := s.db.Info().PageSize
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	whole = whole[:min(len(whole), int(used)+8*page)]
	for at := 0; at < len(whole); at += page {
		for _, off := range []int{0, 8, 10, 12, 16, 20, 24, 28, 40, 48, 56, 64, page - 1} {
			f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(at+off)), 0xff))
		}
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		data := bytes.Clone(whole)
		for ; len(changes) >= 5; changes = changes[5:] {
			data[int(binary.BigEndian.Uint32(changes))%len(data)] ^= changes[4]
		}
		im, err := readImage(bytes.NewReader(data), "file", int64(len(data)))
		if err == nil {
			_, err = im.rescue(context.Background())
		}
		if err == nil {
			err = im.verify()
		}
		if err != nil && !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, ErrForeign) && !errors.Is(err, ipalloc.ErrVersion) {
			t.Errorf("%v", err)
		}
	})
}

// FuzzState reads any bytes as the record that says what a file is: an error, or a state that is written as it was read.
func FuzzState(f *testing.F) {
	f.Add(state{rev: 7, count: 3, sum: 1 << 40, boot: "boot"}.append(nil))
	f.Add([]byte("ipalloc boltstore 2\nwhatever"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if st, err := parseState(data); err == nil && !bytes.Equal(st.append(nil), data) {
			t.Errorf("%+v from %q", st, data)
		}
	})
}

// TestStateOfOtherBytes: bytes that are no state of a file are refused.
func TestStateOfOtherBytes(t *testing.T) {
	whole := string(state{rev: 7, count: 1, sum: 3}.append(nil))
	for _, raw := range []string{"", "x", "x" + whole, stateMagic, stateMagic + "1", stateMagic + "one\n", stateMagic + "\n" + whole} {
		if st, err := parseState([]byte(raw)); err == nil {
			t.Errorf("%q is %+v", raw, st)
		}
	}
}
