package boltstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// keysOf returns where the keys of a page are, as offsets in the file, by the form of bbolt's pages.
func keysOf(file []byte, page, size int) (keys [][2]int, leaf bool) {
	e := binary.NativeEndian
	b := file[page*size:]
	flags, count := e.Uint16(b[8:]), int(e.Uint16(b[10:]))
	if e.Uint64(b) != uint64(page) || flags != 1 && flags != 2 {
		return nil, false
	}
	for i := range count {
		at := 16 + i*16
		pos, n := int(e.Uint32(b[at:])), int(e.Uint32(b[at+4:]))
		if flags == 2 {
			pos, n = int(e.Uint32(b[at+4:])), int(e.Uint32(b[at+8:]))
		}
		keys = append(keys, [2]int{page*size + at + pos, n})
	}
	return keys, flags == 2
}

// A bit that flips in a key, in a leaf or in a branch, gives an error or has no effect: no record reads as absent, no list is
// short, and nothing is written over it. The file is not verified when it is opened, as one over 16 MiB may not be.
func TestFlippedKeys(t *testing.T) {
	path, _, file, recs, _ := sample(t, 150, true)
	step := 7
	if testing.Short() {
		step = 17
	}
	size, found, flips := os.Getpagesize(), 0, 0
	for page := 2; page < len(file)/size; page++ {
		keys, leaf := keysOf(file, page, size)
		for i, key := range keys {
			for bit := 0; bit < 8*key[1]; bit++ {
				if leaf && (i*7+bit)%step != 0 {
					continue
				}
				data := bytes.Clone(file)
				data[key[0]+bit/8] ^= 1 << (bit % 8)
				flips++
				if readFlipped(t, fmt.Sprintf("page %d, key %d, bit %d", page, i, bit), path, data, recs) {
					found++
				}
			}
		}
	}
	if t.Logf("%d of %d flips gave an error", found, flips); found < flips/4 {
		t.Error("too few")
	}
}

// readFlipped reads a store whose file was damaged, and reports whether that gave an error.
func readFlipped(t *testing.T, what, path string, data []byte, recs []store.Record) (found bool) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := boltstore.Open(t.Context(), path, boltstore.Options{Verify: boltstore.VerifyNever, NoSync: true})
	if err != nil {
		return true
	}
	defer s.Close()
	check := func(call string, err error, same bool) {
		if err != nil && !errors.Is(err, ipalloc.ErrCorrupt) || err == nil && !same {
			t.Errorf("%s: %s: %v, same %v", what, call, err, same)
		}
		found = found || err != nil
	}
	for i, r := range recs {
		got, err := s.Get(t.Context(), nil, r.Key)
		check("get of "+r.Key, err, err != nil || got[0] == r)
		for _, reverse := range []bool{false, true} {
			want := slices.Clone(recs[i:min(i+3, len(recs))])
			rg := store.Range{From: r.Key, Reverse: reverse}
			if i+3 < len(recs) {
				rg.To = recs[i+3].Key
			}
			if reverse {
				slices.Reverse(want)
			}
			some, _, err := s.List(t.Context(), rg)
			check(fmt.Sprintf("list from %s, reverse %v", r.Key, reverse), err, slices.Equal(some, want))
		}
	}
	all, _, err := s.List(t.Context(), store.Range{})
	check("list", err, slices.Equal(all, recs))
	for _, r := range recs[:len(recs):len(recs)] {
		_, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: r.Key, Value: "another", Expect: 0}})
		if !errors.Is(err, ipalloc.ErrConflict) && !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%s: %s was written as if it did not exist: %v", what, r.Key, err)
		}
	}
	return found
}

// Two entries of a leaf that changed places have right checksums, and the count and the sum are right. bbolt's search would miss
// them. The file is refused, and a list of one that is not verified fails.
func TestOrderInALeaf(t *testing.T) {
	path, _, file, recs, _ := sample(t, 150, true)
	e := binary.NativeEndian
	size, refused, leaves := os.Getpagesize(), 0, 0
	for page := 2; page < len(file)/size; page++ {
		keys, leaf := keysOf(file, page, size)
		if !leaf || len(keys) < 3 {
			continue
		}
		leaves++
		data := bytes.Clone(file)
		a, b := data[page*size+16+16:][:16], data[page*size+16+32:][:16]
		first, second := bytes.Clone(a), bytes.Clone(b)
		copy(a, second)
		copy(b, first)
		e.PutUint32(a[4:], e.Uint32(second[4:])+16) // positions are relative to the element
		e.PutUint32(b[4:], e.Uint32(first[4:])-16)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := boltstore.Open(t.Context(), path, boltstore.Options{Verify: boltstore.VerifyAlways, NoSync: true})
		if err == nil {
			s.Close() // a free page
			continue
		}
		if refused++; !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("page %d: %v", page, err)
		}
		s, err = boltstore.Open(t.Context(), path, boltstore.Options{Verify: boltstore.VerifyNever, NoSync: true})
		if err != nil {
			continue
		}
		for _, reverse := range []bool{false, true} {
			all, _, err := s.List(t.Context(), store.Range{Reverse: reverse})
			if damaged := errors.Is(err, ipalloc.ErrCorrupt); damaged != (len(all) == 0) || !damaged && len(all) != len(recs) {
				t.Errorf("page %d, reverse %v: %d records, %v", page, reverse, len(all), err)
			}
		}
		s.Close()
	}
	if t.Logf("%d of %d leaves refused", refused, leaves); refused < 3 {
		t.Error("too few")
	}
}

// A damaged record fails the commits that read it, and no other: reads of the rest, and commits elsewhere, go on.
func TestDamagedRecordIsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	for i := range 20 {
		put(t, s, fmt.Sprintf("k%02d", i), fmt.Sprintf("the value of %02d", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; ; at++ { // in every page that has it, free ones as well
		next := bytes.Index(file[at:], []byte("value of 07"))
		if next < 0 {
			break
		}
		at += next
		file[at] ^= 1
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, path, boltstore.Options{NoSync: true, Verify: boltstore.VerifyNever})
	for range 2 {
		for key, want := range map[string]error{"k07": ipalloc.ErrCorrupt, "k06": nil, "k15": nil} {
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: "new", Expect: store.AnyRevision}}); !errors.Is(err, want) {
				t.Errorf("commit of %s: %v", key, err)
			}
			if got, err := s.Get(t.Context(), nil, key); !errors.Is(err, want) || err == nil && got[0].Value != "new" {
				t.Errorf("get of %s: %v, %v", key, got, err)
			}
		}
	}
}
