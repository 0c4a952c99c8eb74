package boltstore

import (
	"context"
	"encoding/binary"
	"io"
	"os"

	"github.com/ipalloc/ipalloc"
)

// A commit of bbolt writes to pages that are free, then a meta page that shows them. The pages of a commit stay as they are until the
// commit after the next one, so a file can be copied beside its writer: every page that was written meanwhile was free after some
// commit, or is new at the end, and the list of free pages of each commit says which those are. They are copied again, until no
// commit comes in between. A copier that misses a commit does not know what it wrote and begins again.

const (
	snapshotChunk = 256 << 10 // between two looks at the meta pages; some 100 µs
	snapshotTries = 200
)

// Snapshot writes a copy of the file src to the new file dst. The copy is the state after one commit. It takes no lock: another
// process may have src open and commit meanwhile, and does not wait. dst is a store, and is not synced to the disk. Snapshot reads
// src once, and reads pages that change meanwhile again.
//
// Errors: os.ErrExist if dst exists. [ErrLocked] if commits arrive so fast that every attempt misses some. [ipalloc.ErrCorrupt] and
// [ErrForeign] as from [Open], even while another process writes the file.
func Snapshot(ctx context.Context, src, dst string) error {
	return snapshot(ctx, src, dst, func() {})
}

// snapshot calls between after each piece that it copies.
func snapshot(ctx context.Context, from, to string, between func()) (err error) {
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return failure("snapshot", to, err)
	}
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(to)
			err = failure("snapshot", from, err)
		}
	}()
	for range snapshotTries {
		done, err := snapshotOnce(ctx, from, dst, between)
		if done || err != nil {
			return err
		}
	}
	return &ipalloc.Error{Package: "boltstore", Op: "snapshot", Text: from, Err: ErrLocked, Reason: "the process that has the file commits faster than it can be read"}
}

// snapshotOnce reports whether it saw every commit that came while it copied.
func snapshotOnce(ctx context.Context, from string, dst *os.File, between func()) (done bool, err error) {
	src, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer src.Close()
	c := copying{src: src, dst: dst, path: from, between: between}
	if seen, err := c.look(); err != nil || !seen {
		return false, err
	}
	size := int64(c.last.meta.high) * c.last.pageSize
	if c.last.stale {
		size = c.last.size // what is behind the last page that is known may be of a later commit
	}
	for at := 2 * c.last.pageSize; at < size; at += snapshotChunk {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := c.copy(at, min(snapshotChunk, size-at)); err != nil {
			return false, err
		}
		if seen, err := c.look(); err != nil || !seen {
			return false, err
		}
	}
	for at := c.last.meta.txid; ; at = c.last.meta.txid {
		if err := c.again(); err != nil {
			return false, err
		}
		seen, err := c.look()
		switch {
		case err != nil || !seen:
			return false, err
		case at == c.last.meta.txid:
			return c.finish()
		}
	}
}

// copying is a copy that is being made.
type copying struct {
	src, dst *os.File
	path     string
	between  func()

	last  *image // as of the last commit that was seen
	free  []bool // the pages that are free after that commit
	dirty []bool // the pages that may have been written since the first commit that was seen
	buf   []byte
}

// look notes a commit that has come since the last look. It returns false if it may have missed one.
func (c *copying) look() (seen bool, err error) {
	now, err := c.image()
	if err != nil || c.last != nil && now.meta.txid == c.last.meta.txid {
		return true, err
	}
	if c.last != nil && (now.meta.txid != c.last.meta.txid+1 || now.meta.freelist == noFreelist || c.last.meta.freelist == noFreelist) {
		return false, nil
	}
	free := make([]bool, now.meta.high)
	ferr := now.freelist(func(id uint64) error { free[id] = true; return nil })
	after, err := c.image()
	switch {
	case err != nil:
		return false, err
	case after.meta.txid != now.meta.txid:
		return false, nil // the list may be that of another commit
	case ferr != nil:
		return false, ferr
	}
	if c.last != nil {
		c.dirty = append(c.dirty, make([]bool, max(0, len(free)-len(c.dirty)))...)
		for id := range c.dirty {
			c.dirty[id] = c.dirty[id] || uint64(id) >= c.last.meta.high || c.free[id]
		}
	}
	c.last, c.free = now, free
	return true, nil
}

// image reads the meta pages.
func (c *copying) image() (*image, error) {
	for tries := 0; ; tries++ {
		info, err := c.src.Stat()
		if err != nil {
			return nil, err
		}
		im, err := readImage(c.src, c.path, info.Size())
		if (err == nil && !im.stale) || tries == snapshotTries {
			return im, err // a meta page that is being written looks damaged for a moment
		}
	}
}

// copy copies a part of the file.
func (c *copying) copy(at, n int64) error {
	c.buf = grow(c.buf[:0], n)
	if _, err := c.src.ReadAt(c.buf, at); err != nil && err != io.EOF {
		return err
	}
	_, err := c.dst.WriteAt(c.buf, at)
	c.between()
	return err
}

// again copies the pages that may have been written, and are not free now.
func (c *copying) again() error {
	for id := range c.dirty {
		if !c.dirty[id] {
			continue
		}
		if c.dirty[id] = false; id < len(c.free) && !c.free[id] {
			if err := c.copy(int64(id)*c.last.pageSize, c.last.pageSize); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish writes the meta pages, both of the last commit; one that was damaged stays so. It returns false if that commit is not the
// last one any more, or the file has been replaced.
func (c *copying) finish() (bool, error) {
	newest, at, found := make([]byte, c.last.pageSize), int64(0), false
	for id := int64(0); id < 2 && !found; id++ {
		at = id * c.last.pageSize
		if _, err := c.src.ReadAt(newest, at); err != nil {
			return false, err
		}
		m, err := parseMeta(newest[pageHead:])
		found = err == nil && m == c.last.meta
	}
	if !found || !current(c.src, c.path) {
		return false, nil
	}
	for id := range int64(2) {
		page := newest
		if id*c.last.pageSize != at {
			page = append([]byte(nil), newest...)
			binary.NativeEndian.PutUint64(page, uint64(id)) // which the checksum does not cover
			if c.last.stale {
				if _, err := c.src.ReadAt(page, id*c.last.pageSize); err != nil {
					return false, err
				}
			}
		}
		if _, err := c.dst.WriteAt(page, id*c.last.pageSize); err != nil {
			return false, err
		}
	}
	if c.last.stale {
		return true, nil
	}
	return true, c.dst.Truncate(int64(c.last.meta.high) * c.last.pageSize)
}
