package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// An image is a bbolt file read page by page through ReadAt, with every number checked before it is followed: it can
// neither panic nor touch a page that is not there, as bbolt and its memory map do on a file that is damaged. bbolt's own
// Tx.Check cannot take its place: it works in a goroutine of its own, where a fault of the map ends the process. Of 600 damaged
// files it killed 11 processes, hung on one, and found nothing that this reader misses. Salvage needs the reader, too. It reads
// what [bbolt] calls version 2, whose numbers have the byte order of the machine:
//
//	page        id 8, flags 2, count 2, overflow 4: how many pages follow that belong to it
//	meta        in pages 0 and 1, after the head: magic 4, version 4, page size 4, flags 4, root page of the root bucket 8,
//	            sequence 8, freelist page 8, high-water mark 8, transaction 8, FNV-64a of all these 8
//	branch      count times: position of the key relative to here 4, its length 4, page 8
//	leaf        count times: flags 4, position of the key relative to here 4, its length 4, length of the value after it 4
//	bucket      a value with leafBucket set: root page 8, sequence 8; if the root page is 0, a leaf page follows
//	freelist    count page ids of 8; if count is 0xffff the first one says how many follow
//
// [bbolt]: https://pkg.go.dev/go.etcd.io/bbolt
type image struct {
	file     io.ReaderAt
	path     string
	size     int64
	pageSize int64
	meta     meta
	stale    bool   // the other meta page is damaged: it may have been the newer one
	cut      bool   // no meta page is readable, or the file has fewer pages than that says
	seen     []bool // pages that are in use, or free; nil if not needed
	unread   int    // if above 0, walk takes the pages of this depth for leaves and does not read them
}

const (
	pageHead    = 16
	metaSize    = 64
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)
	minPage     = 1 << 10
	maxPage     = 1 << 24
	leafBucket  = 1
	maxDepth    = 64 // of a tree; a branch has at least two children

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
)

// meta is one of the two pages that a file begins with.
type meta struct {
	pageSize                   uint32
	root, freelist, high, txid uint64
}

var (
	errNoMagic = errors.New("no magic number")
	errBolt    = errors.New("another version of bbolt")
)

// parseMeta reads what follows the head of a meta page.
func parseMeta(b []byte) (meta, error) {
	e := binary.NativeEndian
	switch {
	case len(b) < metaSize || e.Uint32(b) != boltMagic:
		return meta{}, errNoMagic
	case e.Uint32(b[4:]) != boltVersion:
		return meta{}, errBolt
	}
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	if h.Sum64() != e.Uint64(b[metaSize-8:]) {
		return meta{}, errors.New("checksum")
	}
	m := meta{pageSize: e.Uint32(b[8:]), root: e.Uint64(b[16:]), freelist: e.Uint64(b[32:]), high: e.Uint64(b[40:]), txid: e.Uint64(b[48:])}
	if m.pageSize < minPage || m.pageSize > maxPage || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, errors.New("page size")
	}
	return m, nil
}

// readImage reads the meta pages of a file and decides as bbolt does which one counts.
func readImage(file io.ReaderAt, path string, size int64) (*image, error) {
	im := &image{file: file, path: path, size: size}
	if size == 0 {
		return nil, im.damaged(-1, "it is empty (if it is meant to be a new store, remove it)")
	}
	m0, err0 := im.metaAt(0)
	m1, err1 := meta{}, errNoMagic
	if err0 == nil {
		m1, err1 = im.metaAt(int64(m0.pageSize))
	} else {
		for n := int64(minPage); n <= maxPage && n < size; n *= 2 {
			if m, err := im.metaAt(n); err == nil && int64(m.pageSize) == n {
				m1, err1 = m, nil
			} else if !errors.Is(err, errNoMagic) && err1 != nil {
				err1 = err
			}
		}
	}
	switch {
	case err0 != nil && err1 != nil:
		return nil, im.noMeta(err0, err1)
	case err0 == nil && err1 == nil && m0.pageSize != m1.pageSize:
		return nil, im.damaged(1, "page size")
	case err0 != nil || err1 == nil && m1.txid > m0.txid:
		im.meta = m1
	default:
		im.meta = m0
	}
	im.stale = err0 != nil || err1 != nil
	im.pageSize = int64(im.meta.pageSize)
	if m := &im.meta; m.high < 4 || m.high > uint64(size)/uint64(im.pageSize) {
		return nil, im.damaged(-1, fmt.Sprintf("it has %d bytes of the %d pages of %d that were written: it was cut off", size, m.high, im.pageSize))
	}
	return im, nil
}

// metaAt reads the meta page at an offset.
func (im *image) metaAt(off int64) (meta, error) {
	b := make([]byte, pageHead+metaSize)
	n, err := im.file.ReadAt(b, off)
	if err != nil && err != io.EOF {
		return meta{}, fmt.Errorf("read: %w", err)
	}
	return parseMeta(b[min(pageHead, n):n])
}

// noMeta says what a file is that has no meta page.
func (im *image) noMeta(err0, err1 error) error {
	switch {
	case errors.Is(err0, errBolt) || errors.Is(err1, errBolt):
		return newer(im.path, errBolt.Error())
	case !errors.Is(err0, errNoMagic):
		return im.damaged(0, err0.Error())
	case !errors.Is(err1, errNoMagic):
		return im.damaged(1, err1.Error())
	}
	b := make([]byte, 2*pageHead+metaSize)
	n, _ := im.file.ReadAt(b, 0)
	if len(bytes.Trim(b[:n], "\x00")) == 0 {
		return im.damaged(0, "it begins with zeroes")
	}
	return foreign(im.path, "not a bbolt database, or both its first pages are gone")
}

// damaged returns the error of a damaged file.
func (im *image) damaged(page int64, what string) error {
	return damaged(im.path, page, what)
}

// mark notes that pages are in use, and finds out if they were already.
func (im *image) mark(id, n uint64) error {
	if im.seen == nil {
		return nil
	}
	for i := id; i < id+n; i++ {
		if im.seen[i] {
			return im.damaged(int64(i), "used twice")
		}
		im.seen[i] = true
	}
	return nil
}

// noPage returns the error of a page number that no page has.
func (im *image) noPage(id uint64) error {
	return im.damaged(int64(id), fmt.Sprintf("not one of the %d pages", im.meta.high))
}

// page reads a page with those that belong to it into buf, and returns its flags and count.
func (im *image) page(buf []byte, id uint64) (b []byte, flags uint16, count int, err error) {
	if id < 2 || id >= im.meta.high {
		return nil, 0, 0, im.noPage(id)
	}
	b = grow(buf, im.pageSize)
	if _, err := im.file.ReadAt(b, int64(id)*im.pageSize); err != nil {
		return nil, 0, 0, im.damaged(int64(id), err.Error())
	}
	e := binary.NativeEndian
	flags, count = e.Uint16(b[8:]), int(e.Uint16(b[10:]))
	more := uint64(e.Uint32(b[12:]))
	if e.Uint64(b) != id || more >= im.meta.high-id {
		return nil, 0, 0, im.damaged(int64(id), "its head is not that of the page")
	}
	if more > 0 {
		b = grow(b, int64(more+1)*im.pageSize)
		if _, err := im.file.ReadAt(b[im.pageSize:], int64(id+1)*im.pageSize); err != nil {
			return nil, 0, 0, im.damaged(int64(id), err.Error())
		}
	}
	return b, flags, count, im.mark(id, more+1)
}

// grow returns b with length n, keeping what is in it.
func grow(b []byte, n int64) []byte {
	if int64(cap(b)) >= n {
		return b[:n]
	}
	return append(make([]byte, 0, n), b...)[:n]
}

// entry is one element of a leaf page; key and value are good until visit returns.
type entry struct {
	page       uint64
	bucket     bool
	key, value []byte
}

// walk visits every entry of the tree under a page in order. Keys must lie in [from, to); a nil to is no bound.
func (im *image) walk(id uint64, from, to []byte, depth int, visit func(entry) error) error {
	if depth > maxDepth {
		return im.damaged(int64(id), "the tree is too deep")
	}
	if depth > 0 && depth == im.unread {
		if id < 2 || id >= im.meta.high {
			return im.noPage(id)
		}
		return im.mark(id, 1)
	}
	b, flags, count, err := im.page(nil, id)
	if err != nil {
		return err
	}
	switch flags {
	case flagLeaf:
		if first, err := im.firstKey(id, b, count); err != nil || depth > 0 && !bytes.Equal(first, from) {
			return errors.Join(err, im.damaged(int64(id), "not the page that the one above it names"))
		}
		_, err := im.leaf(id, b, count, from, to, visit)
		return err
	case flagBranch:
	default:
		return im.damaged(int64(id), fmt.Sprintf("flags %#x", flags))
	}
	if count == 0 {
		return im.damaged(int64(id), "a branch without children")
	}
	e := binary.NativeEndian
	var last []byte
	child, below := uint64(0), []byte(nil)
	for i := range count + 1 {
		key, next := to, uint64(0)
		if i < count {
			if pageHead+(i+1)*16 > len(b) {
				return im.damaged(int64(id), "count")
			}
			at := b[pageHead+i*16:]
			if key, err = im.slice(id, at, uint64(e.Uint32(at)), uint64(e.Uint32(at[4:]))); err != nil {
				return err
			}
			next = e.Uint64(at[8:])
			if i == 0 && depth > 0 && !bytes.Equal(key, from) { // bbolt finds a page it has changed by its first key
				return im.damaged(int64(id), "not the page that the one above it names")
			}
			if i > 0 && bytes.Compare(key, last) <= 0 || to != nil && bytes.Compare(key, to) >= 0 {
				return im.damaged(int64(id), "order of keys")
			}
		}
		if i > 0 {
			if err := im.walk(child, below, key, depth+1, visit); err != nil {
				return err
			}
		}
		child, below, last = next, key, key
	}
	return nil
}

// firstKey returns the first key of a leaf page, nil if it is empty.
func (im *image) firstKey(id uint64, b []byte, count int) ([]byte, error) {
	if count == 0 {
		return nil, nil
	}
	at, e := b[pageHead:], binary.NativeEndian
	return im.slice(id, at, uint64(e.Uint32(at[4:])), uint64(e.Uint32(at[8:])))
}

// leaf visits the entries of a leaf page and returns where the last of them ends.
func (im *image) leaf(id uint64, b []byte, count int, from, to []byte, visit func(entry) error) (end uint64, err error) {
	e := binary.NativeEndian
	var last []byte
	for i := range count {
		if pageHead+(i+1)*16 > len(b) {
			return end, im.damaged(int64(id), "count")
		}
		at := b[pageHead+i*16:]
		pos, n := uint64(e.Uint32(at[4:])), uint64(e.Uint32(at[8:]))
		kv, err := im.slice(id, at, pos, n+uint64(e.Uint32(at[12:])))
		if err != nil {
			return end, err
		}
		key := kv[:n]
		if n == 0 || i > 0 && bytes.Compare(key, last) <= 0 || bytes.Compare(key, from) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
			return end, im.damaged(int64(id), "order of keys")
		}
		if err := visit(entry{page: id, bucket: e.Uint32(at)&leafBucket != 0, key: key, value: kv[n:]}); err != nil {
			return end, err
		}
		end = max(end, uint64(pageHead+i*16)+pos+uint64(len(kv)))
		last = key
	}
	return end, nil
}

// slice returns n bytes of a page at a position relative to an element.
func (im *image) slice(id uint64, at []byte, pos, n uint64) ([]byte, error) {
	if pos+n > uint64(len(at)) {
		return nil, im.damaged(int64(id), "an entry ends behind the page")
	}
	return at[pos : pos+n : pos+n], nil
}

// bucket visits every entry of a bucket, given the entry that holds it.
func (im *image) bucket(b entry, visit func(entry) error) error {
	if !b.bucket || len(b.value) < 16 {
		return im.damaged(int64(b.page), fmt.Sprintf("%q is not a bucket", b.key))
	}
	if root := binary.NativeEndian.Uint64(b.value); root != 0 {
		return im.walk(root, nil, nil, 0, visit)
	}
	page := b.value[16:]
	if len(page) < pageHead || binary.NativeEndian.Uint16(page[8:]) != flagLeaf {
		return im.damaged(int64(b.page), fmt.Sprintf("bucket %q", b.key))
	}
	_, err := im.leaf(b.page, page, int(binary.NativeEndian.Uint16(page[10:])), nil, nil, visit)
	return err
}

// freelist visits every free page.
func (im *image) freelist(visit func(id uint64) error) error {
	id := im.meta.freelist
	if id == noFreelist {
		return nil
	}
	b, flags, count, err := im.page(nil, id)
	switch {
	case err != nil:
		return err
	case flags != flagFreelist:
		return im.damaged(int64(id), "not a list of free pages")
	}
	b = b[pageHead:]
	n := uint64(count)
	if count == 0xffff {
		n, b = binary.NativeEndian.Uint64(b), b[8:]
	}
	if n > uint64(len(b)/8) {
		return im.damaged(int64(id), "count of free pages")
	}
	for ; n > 0; n-- {
		switch free := binary.NativeEndian.Uint64(b); {
		case free >= 2 && free < im.meta.high:
			if err := visit(free); err != nil {
				return err
			}
		case free < 2 || !im.cut:
			return im.damaged(int64(id), "a free page that is none")
		}
		b = b[8:]
	}
	return nil
}
