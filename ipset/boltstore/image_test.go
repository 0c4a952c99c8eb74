package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ipalloc/ipalloc"
)

// pages is a file of small pages, and the image of it.
func pages(n int) (file []byte, im *image) {
	file = make([]byte, n*minPage)
	return file, &image{file: bytes.NewReader(file), path: "pages", size: int64(len(file)), pageSize: minPage,
		meta: meta{pageSize: minPage, root: noFreelist, freelist: noFreelist, high: uint64(n)}}
}

// head writes the head of a page.
func head(file []byte, id uint64, flags, count uint16, more uint32) (body []byte) {
	b, e := file[int(id)*minPage:], binary.NativeEndian
	e.PutUint64(b, id)
	e.PutUint16(b[8:], flags)
	e.PutUint16(b[10:], count)
	e.PutUint32(b[12:], more)
	return b[pageHead:]
}

// TestPageBounds: the meta pages, and those behind the last one, are no page of a tree or a list.
func TestPageBounds(t *testing.T) {
	file, im := pages(4)
	for id := range uint64(4) {
		head(file, id, flagLeaf, 0, 0)
	}
	for id, good := range map[uint64]bool{0: false, 1: false, 2: true, 3: true, 4: false, noFreelist: false} {
		if _, _, _, err := im.page(nil, id); (err == nil) != good || !good && !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("page %d: %v", id, err)
		}
	}
}

// TestPagesUsedTwice: of a page that takes several, each is in use.
func TestPagesUsedTwice(t *testing.T) {
	file, im := pages(6)
	im.seen = make([]bool, 6)
	head(file, 2, flagLeaf, 0, 2)
	if _, _, _, err := im.page(nil, 2); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(6) {
		if err := im.mark(id, 1); errors.Is(err, ipalloc.ErrCorrupt) != (id >= 2 && id <= 4) {
			t.Errorf("page %d: %v", id, err)
		}
	}
}

// TestFullListOfFreePages: a list may fill its pages, in both of its forms, and no more.
func TestFullListOfFreePages(t *testing.T) {
	const room = (minPage - pageHead) / 8
	for _, c := range []struct {
		count uint16
		long  uint64 // the count in place of the first entry
		want  int    // -1: damaged
	}{{room - 1, 0, room - 1}, {room, 0, room}, {room + 1, 0, -1}, {0xffff, room - 1, room - 1}, {0xffff, room, -1}} {
		file, im := pages(4)
		im.meta.freelist = 2
		body, e := head(file, 2, flagFreelist, c.count, 0), binary.NativeEndian
		for i := range room {
			e.PutUint64(body[8*i:], 3)
		}
		if c.long > 0 {
			e.PutUint64(body, c.long)
		}
		n := 0
		err := im.freelist(func(uint64) error { n++; return nil })
		if c.want < 0 && !errors.Is(err, ipalloc.ErrCorrupt) || c.want >= 0 && (err != nil || n != c.want) {
			t.Errorf("count %d, %d: visited %d, %v", c.count, c.long, n, err)
		}
	}
}

// TestCutFile: of a file that was cut off, the list of free pages is of use up to its end, and the other meta page is missed if one is
// readable. Else what was deleted comes back.
func TestCutFile(t *testing.T) {
	for _, cut := range []bool{false, true} {
		file, im := pages(4)
		im.meta.freelist, im.cut = 2, cut
		body, e := head(file, 2, flagFreelist, 3, 0), binary.NativeEndian
		var free []uint64
		for i, id := range []uint64{3, 9, 3} {
			e.PutUint64(body[8*i:], id)
		}
		if err := im.freelist(func(id uint64) error { free = append(free, id); return nil }); (err == nil) != cut || cut && !slices.Equal(free, []uint64{3, 3}) {
			t.Errorf("cut %t: %d, %v", cut, free, err)
		}
	}
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open(t.Context(), path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := readImage(bytes.NewReader(file), path, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	size := int(whole.pageSize)
	for damaged, stale := range map[[2]bool]bool{{false, false}: false, {true, false}: true, {false, true}: true, {true, true}: false} {
		data := bytes.Clone(file[:int(whole.meta.high-1)*size])
		for page, bad := range damaged {
			if bad {
				clear(data[page*size:][:size])
			}
		}
		if im := salvageImage(bytes.NewReader(data), path, int64(len(data))); im.stale != stale || !im.cut {
			t.Errorf("meta pages damaged %t: %+v", damaged, im)
		}
	}
}

// TestLeavesBehindABadPage: the pages that a page without one good entry claims are searched on their own; those of a good one are
// not.
func TestLeavesBehindABadPage(t *testing.T) {
	entry1 := func(body []byte, key, value string) {
		for i, v := range []int{0, 16, len(key), len(value)} { // flags, position, lengths
			binary.NativeEndian.PutUint32(body[4*i:], uint32(v))
		}
		copy(body[16:], key+value)
	}
	for _, good := range []bool{false, true} {
		file, im := pages(6)
		entry1(head(file, 2, flagLeaf, 1, 1), "claims", strings.Repeat("x", minPage+100))
		entry1(head(file, 3, flagLeaf, 1, 0), "claimed", "1")
		entry1(head(file, 4, flagLeaf, 1, 0), "other", "2")
		var seen []string
		err := im.leaves(t.Context(), make([]bool, 6), func(_ string, e entry) bool {
			seen = append(seen, string(e.key))
			return good || string(e.key) != "claims"
		})
		want := []string{"claims", "claimed", "other"}
		if good {
			want = []string{"claims", "other"}
		}
		if err != nil || !slices.Equal(seen, want) {
			t.Errorf("good %t: %q, %v, want %q", good, seen, err, want)
		}
	}
}

// TestLookBesideAWriter: a look has an image of one commit if it says so, and none if a commit came while it read.
func TestLookBesideAWriter(t *testing.T) {
	s := openT(t, Options{NoSync: true})
	stop, done := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-done }()
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if err := s.db.Update(func(*bbolt.Tx) error { return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	missed := 0
	for range 5000 {
		c := copying{src: s.file, path: s.path, between: func() {}}
		seen, err := c.look()
		if err != nil || seen != (c.last != nil) {
			t.Fatalf("seen %t, image %v, %v", seen, c.last, err)
		}
		if !seen {
			if missed++; missed == 3 {
				break
			}
		}
	}
	t.Logf("%d looks were crossed by a commit", missed)
}
