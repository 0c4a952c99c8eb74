package boltstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// transactionOf returns the transaction of a meta page of a file.
func transactionOf(file []byte, page int) uint64 {
	return binary.NativeEndian.Uint64(file[page*os.Getpagesize()+16+48:])
}

// everything returns the records of a store and of its tables.
func everything(t *testing.T, s *boltstore.Store) []store.Record {
	t.Helper()
	recs, _ := contents(t, s)
	names, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		table, err := s.OpenTable(name)
		if err != nil {
			t.Fatal(err)
		}
		more, _, err := table.List(t.Context(), store.Range{})
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, more...)
		table.Close()
	}
	return recs
}

// manyAtOnce returns the file of a store that was not closed, after commits to three tables that share transactions, and all its records.
func manyAtOnce(t *testing.T, path string) (file []byte, recs []store.Record) {
	t.Helper()
	s := reopen(t, path, boltstore.Options{NoSync: true})
	t1, err1 := s.OpenTable("t1")
	t2, err2 := s.OpenTable("t2")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	commits := []func(context.Context, []store.Op) (uint64, error){s.Commit, t1.Commit, t2.Commit}
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ops := []store.Op{{Kind: store.Put, Key: fmt.Sprintf("k%d-%02d", round, i), Value: strings.Repeat("v", 100), Expect: 0}}
				if _, err := commits[i%3](context.Background(), ops); err != nil {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
	}
	t1.Close()
	t2.Close()
	recs = everything(t, s)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, recs
}

// Damage to the newer meta page of a file that was not closed would drop a transaction, and with it commits that were
// acknowledged. The file is refused, an option accepts the loss, and Salvage saves everything.
func TestNewerMetaPageDamaged(t *testing.T) {
	dir := t.TempDir()
	file, recs := manyAtOnce(t, filepath.Join(dir, "live.db"))
	size := os.Getpagesize()
	newer := 0
	if transactionOf(file, 1) > transactionOf(file, 0) {
		newer = 1
	}
	for page := range 2 {
		for name, damage := range map[string]func(b []byte){
			"cleared":  func(b []byte) { clear(b) },
			"checksum": func(b []byte) { b[16+56] ^= 1 },
			"root":     func(b []byte) { b[16+16] ^= 1 },
			"torn":     func(b []byte) { clear(b[32:]) },
		} {
			what := fmt.Sprintf("page %d %s", page, name)
			path := filepath.Join(dir, strings.ReplaceAll(what, " ", "-"))
			data := bytes.Clone(file)
			damage(data[page*size : (page+1)*size])
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, verify := range []boltstore.Verify{boltstore.VerifyAuto, boltstore.VerifyNever, boltstore.VerifyAlways} {
				s, err := boltstore.Open(t.Context(), path, boltstore.Options{ReadOnly: true, Verify: verify})
				switch {
				case page == newer && !errors.Is(err, ipalloc.ErrCorrupt):
					t.Errorf("%s: %v", what, err)
				case page != newer && err != nil:
					t.Errorf("%s, the older one: %v", what, err)
				}
				if err == nil {
					if got := everything(t, s); !slices.Equal(got, recs) {
						t.Errorf("%s: %d records of %d", what, len(got), len(recs))
					}
					s.Close()
				}
			}
			got, err := boltstore.Salvage(t.Context(), path, path+".saved")
			if err != nil || !got.Known || !got.Whole || got.Records != uint64(len(recs)) {
				t.Errorf("%s: salvaged %+v, %v", what, got, err)
				continue
			}
			saved := reopen(t, path+".saved", boltstore.Options{NoSync: true, NoCreate: true, Verify: boltstore.VerifyAlways})
			if have := everything(t, saved); !slices.Equal(have, recs) {
				t.Errorf("%s: saved %d records of %d", what, len(have), len(recs))
			}
			s := reopen(t, path, boltstore.Options{NoSync: true, AcceptOlder: true})
			if have := everything(t, s); page == newer && len(have) >= len(recs) || len(have) == 0 {
				t.Errorf("%s: opened with %d records of %d", what, len(have), len(recs))
			}
			put(t, s, "after", "")
		}
	}
}

// A file that was closed shows its last commit in both meta pages, and so does a copy of it: either may be damaged without a loss.
func TestEitherMetaPageOfAClosedFile(t *testing.T) {
	path, _, file, recs, _ := sample(t, 100, true)
	if err := boltstore.Snapshot(t.Context(), path, path+".copy"); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(path + ".copy")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range [][]byte{file, file, copied, copied} {
		data := bytes.Clone(file)
		clear(data[i%2*os.Getpagesize():][:os.Getpagesize()])
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := reopen(t, path, boltstore.Options{NoSync: true})
		if got, _ := contents(t, s); !slices.Equal(got, recs) {
			t.Errorf("file %d, page %d: %d records of %d", i/2, i%2, len(got), len(recs))
		}
		s.Close()
	}
}

// A file that was cut off is salvaged as well with a damaged first page as without: the second meta page is found.
func TestSalvageOfAFileDamagedAndCut(t *testing.T) {
	path, _, file, recs, _ := sample(t, 200, true)
	size, known := os.Getpagesize(), 0
	dir := filepath.Dir(path)
	salvage := func(name string, data []byte) boltstore.Salvaged {
		from := filepath.Join(dir, name)
		if err := os.WriteFile(from, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := boltstore.Salvage(t.Context(), from, from+".saved")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return out
	}
	for cut := 1; cut <= 15; cut++ {
		data := bytes.Clone(file[:len(file)-cut*size])
		whole := salvage(fmt.Sprint("cut", cut), data)
		clear(data[:size])
		both := salvage(fmt.Sprint("both", cut), data)
		if both.Known != whole.Known || both.Expected != whole.Expected || both.Records < whole.Records {
			t.Errorf("cut by %d pages: %+v, with a damaged first page %+v", cut, whole, both)
		}
		if both.Known {
			if known++; both.Expected != uint64(len(recs)) {
				t.Errorf("cut by %d pages: %+v, %d records", cut, both, len(recs))
			}
		}
	}
	if known == 0 {
		t.Error("nothing is known of any")
	}
}
