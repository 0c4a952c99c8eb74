package boltstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// sample makes a file of some fifty pages in use, with free ones between them: a branch with leaves, a value that takes several
// pages, a journal. It returns the file as it was in the middle and in the end, and what is in it then.
func sample(t *testing.T, n int, closeIt bool) (path string, older, newer []byte, recs, last []store.Record) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{})
	used := int64(0) // of the file; the rest is for it to grow into
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b[:min(int64(len(b)), used+8*int64(os.Getpagesize()))]
	}
	fill := func(from, to int) {
		var ops []store.Op
		for i := from; i < to; i++ {
			ops = append(ops, store.Op{Kind: store.Put, Key: fmt.Sprintf("b%04d", i), Value: strings.Repeat("value", i%50), Expect: store.AnyRevision})
		}
		if _, err := s.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	fill(0, n)
	put(t, s, "c", strings.Repeat("catalog", n))
	used = s.Stats().Bytes
	older = read()
	for i := range 5 {
		fill(i*n/5, i*n/5+n/20+1)
	}
	if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Delete, Key: "b0001", Expect: store.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
	last, _ = contents(t, s)
	put(t, s, "b0000", "the last commit")
	recs, _ = contents(t, s)
	used = s.Stats().Bytes
	if closeIt {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path, older, read(), recs, last
}

// damages are ways in which one page of a file goes wrong.
func damages(page int, size int, older, newer []byte) map[string][]byte {
	change := func(f func(p []byte)) []byte {
		b := bytes.Clone(newer)
		f(b[page*size : (page+1)*size])
		return b
	}
	out := map[string][]byte{
		"zeroed":     change(func(p []byte) { clear(p) }),
		"torn":       change(func(p []byte) { clear(p[512:]) }),
		"torn front": change(func(p []byte) { clear(p[:512]) }),
		"noise": change(func(p []byte) {
			r := rand.New(rand.NewPCG(uint64(page), 1))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
		}),
		"bit":   change(func(p []byte) { p[page%200] ^= 1 << (page % 8) }),
		"moved": change(func(p []byte) { copy(p, newer[(page+1)*size%(len(newer)-size):]) }),
	}
	if (page+1)*size <= len(older) {
		out["older"] = change(func(p []byte) { copy(p, older[page*size:]) })
		out["half older"] = change(func(p []byte) { copy(p[size/2:], older[page*size+size/2:]) })
	}
	return out
}

// examine opens a damaged file, and returns whether that was refused, as it must be unless everything is as one of wants.
func examine(t *testing.T, path, what string, data []byte, opts boltstore.Options, wants ...[]store.Record) (refused bool) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := boltstore.Open(t.Context(), path, opts)
	if err != nil {
		if !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, boltstore.ErrForeign) && !errors.Is(err, ipalloc.ErrVersion) {
			t.Errorf("%s: %v", what, err)
		}
		return true
	}
	recs, _, err := s.List(t.Context(), store.Range{})
	if err != nil || !slices.ContainsFunc(wants, func(w []store.Record) bool { return slices.Equal(recs, w) }) {
		t.Errorf("%s: opened with %d records of %d, %v", what, len(recs), len(wants[0]), err)
	}
	for range 8 { // the damage must not come out later, as when a page in use is taken for a free one
		put(t, s, "b0007", strings.Repeat("later", 1000))
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: close: %v", what, err)
	}
	s, err = boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true, Verify: boltstore.VerifyAlways})
	if err != nil {
		t.Errorf("%s: opened, written, and then: %v", what, err)
		return false
	}
	defer s.Close()
	after, _ := contents(t, s)
	other := func(r store.Record) bool { return r.Key == "b0007" }
	if !slices.Equal(slices.DeleteFunc(recs, other), slices.DeleteFunc(after, other)) {
		t.Errorf("%s: opened, written, and then other records changed", what)
	}
	return false
}

// A file that is cut off at any page, or in the middle of one, is refused or has everything. Nothing is ever taken as empty.
func TestTruncated(t *testing.T) {
	path, _, whole, recs, _ := sample(t, 400, true)
	size, refused := os.Getpagesize(), 0
	intact := reopen(t, path, boltstore.Options{NoSync: true})
	used := int(intact.Stats().Bytes)
	if err := intact.Close(); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += size / 2 {
		if examine(t, path, fmt.Sprintf("cut at %d", at), whole[:at], boltstore.Options{NoSync: true}, recs) {
			refused++
		} else if at == 0 {
			t.Error("an empty file was opened")
		}
		if err := os.WriteFile(path, whole[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true, Verify: boltstore.VerifyNever}); err == nil {
			if got, _ := contents(t, s); int64(at) < s.Stats().Bytes || len(got) != len(recs) {
				t.Errorf("cut at %d, not verified: opened with %d records", at, len(got))
			}
			s.Close()
		} else if at >= 2*size && at < used && !strings.Contains(err.Error(), "it was cut off") {
			t.Errorf("cut at %d of %d, not verified: %v", at, used, err)
		}
	}
	if refused < 20 {
		t.Errorf("%d of %d were refused", refused, 2*len(whole)/size)
	}
}

// A page that is torn, lost, overwritten, swapped or as it was before gets the file refused, or was not in use. One of the
// two meta pages may go wrong without a loss, if the store was closed.
func TestTornPages(t *testing.T) {
	path, older, newer, recs, _ := sample(t, 400, true)
	size, refused, harmless := os.Getpagesize(), 0, 0
	for page := 0; page < len(newer)/size; page++ {
		for what, data := range damages(page, size, older, newer) {
			switch {
			case bytes.Equal(data, newer):
			case examine(t, path, fmt.Sprintf("page %d %s", page, what), data, boltstore.Options{NoSync: true}, recs):
				refused++
			default:
				harmless++
			}
		}
	}
	t.Logf("%d refused, %d without effect", refused, harmless)
	if refused < 100 || harmless == 0 {
		t.Errorf("%d refused, %d without effect", refused, harmless)
	}
}

// A page that the disk never wrote, so that it is as it was some commits ago and right in itself, gets the file refused.
func TestLostWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	var images [][]byte
	for i := range 12 {
		put(t, s, "a", strings.Repeat(fmt.Sprint(i%10), 900))
		put(t, s, fmt.Sprint("b", i%3), strings.Repeat("x", 1000))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, b[:s.Stats().Bytes])
	}
	want, _ := contents(t, s)
	s.Close()
	newest := images[len(images)-1]
	size, refused := os.Getpagesize(), 0
	for i, older := range images[:len(images)-1] {
		for at := 2 * size; at < min(len(older), len(newest)); at += size {
			data := bytes.Clone(newest)
			copy(data[at:at+size], older[at:])
			if !bytes.Equal(data, newest) && examine(t, path, fmt.Sprintf("page %d of image %d", at/size, i), data, boltstore.Options{NoSync: true}, want) {
				refused++
			}
		}
	}
	if refused < 10 {
		t.Errorf("%d were refused", refused)
	}
}

// The same after a process died, when one of the meta pages shows the last commit and the other the one before. A meta page that
// is older in whole is what a commit that was cut short leaves; one that is damaged gets the file refused.
func TestTornPagesAfterKill(t *testing.T) {
	path, older, newer, recs, last := sample(t, 100, false)
	path += ".copy"
	size := os.Getpagesize()
	for page := 0; page < len(newer)/size; page++ {
		for what, data := range damages(page, size, older, newer) {
			wants := [][]store.Record{recs}
			if page < 2 && (what == "older" || what == "half older" || what == "moved") {
				wants = append(wants, last)
			}
			examine(t, path, fmt.Sprintf("page %d %s", page, what), data, boltstore.Options{NoSync: true}, wants...)
		}
	}
}

// What Options.Verify leaves out at the door is noticed at the record: an error, no crash, and no record that was not written.
func TestTornPagesUnverified(t *testing.T) {
	path, older, newer, recs, _ := sample(t, 150, true)
	written := make(map[string][]string)
	for _, r := range recs {
		written[r.Key] = append(written[r.Key], r.Value)
	}
	size := os.Getpagesize()
	for page := 0; page < len(newer)/size; page++ {
		for what, data := range damages(page, size, older, newer) {
			if strings.Contains(what, "older") || what == "moved" {
				continue // a page as it was, or another one, can't be told by looking at one record
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := boltstore.Open(t.Context(), path, boltstore.Options{Verify: boltstore.VerifyNever, NoSync: true})
			if err != nil {
				continue
			}
			for _, r := range recs {
				got, err := s.Get(t.Context(), nil, r.Key)
				if err == nil && got[0].Rev != 0 && !slices.Contains(written[r.Key], got[0].Value) {
					t.Errorf("page %d %s: %q = %q", page, what, r.Key, got[0].Value)
				}
			}
			if all, _, err := s.List(t.Context(), store.Range{}); err == nil && len(all) > len(recs) {
				t.Errorf("page %d %s: %d records", page, what, len(all))
			}
			_ = s.Close()
		}
	}
}

// What is refused can be salvaged: every record that comes out was written, nearly all do, and the new file is a store.
func TestSalvage(t *testing.T) {
	path, older, newer, recs, _ := sample(t, 200, true)
	dir := filepath.Dir(path)
	size, whole := os.Getpagesize(), 0
	for page := 0; page < len(newer)/size; page += 7 {
		for what, data := range damages(page, size, older, newer) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, fmt.Sprintf("%d-%s", page, what))
			got, err := boltstore.Salvage(t.Context(), path, to)
			if err != nil {
				t.Errorf("page %d %s: %v", page, what, err)
				continue
			}
			s := reopen(t, to, boltstore.Options{Verify: boltstore.VerifyAlways, NoCreate: true, NoSync: true})
			have, _ := contents(t, s)
			if got.Records != uint64(len(have)) || len(have) < len(recs)*3/4 || len(have) > len(recs)+1 {
				t.Errorf("page %d %s: %+v, %d records of %d", page, what, got, len(have), len(recs))
			}
			if got.Whole {
				whole++
				if !slices.Equal(have, recs) {
					t.Errorf("page %d %s: not whole", page, what)
				}
			}
			put(t, s, "after", "")
			s.Close()
			os.Remove(to)
		}
	}
	if whole == 0 {
		t.Error("nothing was salvaged whole")
	}
	os.WriteFile(path, newer, 0o600)
	to := filepath.Join(dir, "new")
	if got, err := boltstore.Salvage(t.Context(), path, to); err != nil || !got.Whole || !got.Known || got.Expected != uint64(len(recs)) {
		t.Errorf("an undamaged file: %+v, %v", got, err)
	}
	if _, err := boltstore.Salvage(t.Context(), path, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("onto a file: %v", err)
	}
	s := reopen(t, path, boltstore.Options{})
	if _, err := boltstore.Salvage(t.Context(), path, to+"2"); !errors.Is(err, boltstore.ErrLocked) {
		t.Errorf("an open file: %v", err)
	}
	s.Close()
	os.WriteFile(path, []byte(strings.Repeat("text", 10000)), 0o600)
	if _, err := boltstore.Salvage(t.Context(), path, to+"3"); !errors.Is(err, boltstore.ErrForeign) {
		t.Errorf("another file: %v", err)
	}
	if left, _ := filepath.Glob(to + "*"); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// A copy that was made while a process wrote to the file is not taken for another program's, and what is sound in it is saved: every
// record that is there is one that was written.
func TestCopyOfALiveFile(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, filepath.Join(dir, "store.db"), boltstore.Options{NoSync: true})
	written := map[string]bool{}
	write := func(n int) {
		for i := range 60 {
			key, value := fmt.Sprintf("k%05d", i*7%(n+60)), fmt.Sprint("v", n, strings.Repeat("x", i))
			written[key+value] = true
			if _, err := s.Commit(t.Context(), []store.Op{{Kind: store.Put, Key: key, Value: value, Expect: store.AnyRevision}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func() []byte {
		data, err := os.ReadFile(s.Path())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	salvaged := 0
	for n := range 40 {
		write(n)
		old := read()
		write(n + 100)
		now := read()
		at := 2 * os.Getpagesize() // first the meta pages, and then a part of the rest before the commits
		if n%2 == 1 {
			at = min(at*(1+n), len(old))
		}
		path := filepath.Join(dir, fmt.Sprint("copy", n))
		if err := os.WriteFile(path, append(old[:at:at], now[at:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if db, err := boltstore.Open(t.Context(), path, boltstore.Options{NoCreate: true, Verify: boltstore.VerifyAlways}); err == nil {
			db.Close()
		} else if !errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, boltstore.ErrForeign) {
			t.Errorf("%d: %v", n, err)
		}
		out, err := boltstore.Salvage(t.Context(), path, path+".saved")
		if err != nil {
			t.Errorf("%d: %v", n, err)
			continue
		}
		salvaged++
		recs, _, err := reopen(t, path+".saved", boltstore.Options{Verify: boltstore.VerifyAlways}).List(t.Context(), store.Range{})
		if err != nil || uint64(len(recs)) != out.Records || len(recs) < 60 {
			t.Errorf("%d: %+v, %d records, %v", n, out, len(recs), err)
		}
		if all, _, err := s.List(t.Context(), store.Range{}); n%2 == 0 && (err != nil || !slices.Equal(all, recs)) { // all pages are there
			t.Errorf("%d: saved %d records, not the %d as the last commit left them, %v", n, len(recs), len(all), err)
		}
		for _, r := range recs {
			if !written[r.Key+r.Value] {
				t.Errorf("%d: invented %+v", n, r)
			}
		}
	}
	t.Logf("%d copies salvaged", salvaged)
}

// Branch pages that name themselves, the page above, or a free page are found when the file is opened, whatever its size and whatever
// Options.Verify says: bbolt follows page numbers without a bound, which ends the process.
func TestBranchesThatReferBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := reopen(t, path, boltstore.Options{NoSync: true})
	for i := range 20 {
		var ops []store.Op
		for j := range 4000 {
			ops = append(ops, store.Op{Kind: store.Put, Key: fmt.Sprintf("k%03d/%05d", i, j), Value: strings.Repeat("v", 250)})
		}
		if _, err := s.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "k000/00000x", "frees some pages")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size, e := os.Getpagesize(), binary.NativeEndian
	page := func(data []byte, id int) []byte { return data[id*size : (id+1)*size] }
	isBranch := func(id int) bool { b := page(file, id); return e.Uint64(b) == uint64(id) && e.Uint16(b[8:]) == 1 }
	free := map[int]bool{}
	meta := page(file, 0)
	if transactionOf(file, 1) > transactionOf(file, 0) {
		meta = page(file, 1)
	}
	list := page(file, int(e.Uint64(meta[16+32:])))
	for i := range int(e.Uint16(list[10:])) {
		free[int(e.Uint64(list[16+8*i:]))] = true
	}
	type named struct{ by, at int } // a page number in a branch page
	above := map[int]named{}
	var branches []int
	for id := 2; id < len(file)/size; id++ {
		if isBranch(id) && !free[id] {
			branches = append(branches, id)
			for i := range int(e.Uint16(page(file, id)[10:])) {
				above[int(e.Uint64(page(file, id)[16+16*i+8:]))] = named{id, i}
			}
		}
	}
	if len(file) <= 16<<20 || len(branches) < 10 || len(free) == 0 {
		t.Fatalf("%d bytes, %d branch pages, %d free", len(file), len(branches), len(free))
	}
	overwrite := func(id int, b []byte) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(b, int64(id*size))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	anyFree := 0
	for id := range free {
		anyFree = id
	}
	for what, target := range map[string]func(id int) int{
		"itself": func(id int) int { return id }, "the page above": func(id int) int { return above[id].by }, "a free page": func(int) int { return anyFree },
		"a meta page": func(int) int { return 1 }, "a page behind the end": func(int) int { return len(file) / size },
		"another branch": func(id int) int { return branches[(slices.Index(branches, id)+1)%len(branches)] },
	} {
		for n, id := range branches {
			to := target(id)
			if to == 0 || n%5 > 0 { // the root of the table
				continue
			}
			b := bytes.Clone(page(file, id))
			e.PutUint64(b[16+16*(n%int(e.Uint16(b[10:])))+8:], uint64(to))
			overwrite(id, b)
			for _, v := range []boltstore.Verify{boltstore.VerifyAuto, boltstore.VerifyRestart, boltstore.VerifyNever} {
				s, err := boltstore.Open(t.Context(), path, boltstore.Options{NoSync: true, Verify: v})
				if !errors.Is(err, ipalloc.ErrCorrupt) {
					t.Errorf("page %d names %s: %v", id, what, err)
				}
				if err == nil {
					s.Close()
				}
			}
			overwrite(id, page(file, id))
		}
	}
	s = reopen(t, path, boltstore.Options{NoSync: true})
	if recs, _ := contents(t, s); len(recs) != 80_001 {
		t.Errorf("%d records", len(recs))
	}
}
