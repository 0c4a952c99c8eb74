package boltstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

// Backup writes a copy of the store, as of the last commit, to w and returns its size. The copy is a file that Open and
// [Restore] read, tables included. Commits continue meanwhile; the pages that they free are not reused until Backup returns, so
// the file grows while w is slow.
//
// After an error, including the error of ctx, the bytes that w received are not a store.
func (s *Store) Backup(ctx context.Context, w io.Writer) (n int64, err error) {
	err = s.view(ctx, "back up", func(tx *bbolt.Tx) error {
		n, err = tx.WriteTo(&boundWriter{ctx, w})
		return err
	})
	if err != nil {
		return n, failure("back up", s.path, err)
	}
	return n, nil
}

// boundWriter is a writer that fails when a context ends.
type boundWriter struct {
	ctx context.Context
	w   io.Writer
}

func (b *boundWriter) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.w.Write(p)
}

// boundReader is a reader that fails when a context ends.
type boundReader struct {
	ctx context.Context
	r   io.Reader
}

func (b *boundReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Restore makes a new store file from a copy that [Store.Backup] wrote. Stop every engine first: an engine on a moved or removed
// file ends with ipalloc.ErrReplaced at its next call. The file appears under its name when all of it has been read and verified.
// An existing file is never overwritten: os.ErrExist. [ErrLocked]: a running process has the file of that name open, or had it
// open when it was removed, if the system can tell. [ipalloc.ErrCorrupt] and [ipalloc.ErrMismatch] concern the copy. After an
// error no file was made.
func Restore(ctx context.Context, r io.Reader, path string) error {
	if pid, process := lockHolder(path); pid != 0 {
		return held("restore", path, pid, process, "a running process has the file of that name: stop every engine before a copy gets it")
	}
	err := makeFile(path, 0o600, func(f *os.File) error {
		_, err := io.Copy(f, &boundReader{ctx, r})
		return err
	})
	if err != nil {
		return failure("restore", path, err)
	}
	return nil
}

// Compact writes the store, as of the last commit, into a new file without free pages, because a file never shrinks by
// itself. To use the new file, close the store and rename the file over the old one. The file appears under its name when it
// is whole and verified. An existing file is never overwritten: os.ErrExist. Commits continue meanwhile, as with Backup, and are
// not in the new file.
func (s *Store) Compact(ctx context.Context, path string) error {
	err := makeFile(path, s.opts.Mode, func(f *os.File) error {
		return s.view(ctx, "back up", func(from *bbolt.Tx) error { return pack(ctx, from, f) })
	})
	if err != nil {
		return failure("compact into", path, err)
	}
	return nil
}

// packBytes is how much goes into one transaction of a file that is being made.
const packBytes = 4 << 20

// pack copies all that a transaction sees into an empty file.
func pack(ctx context.Context, from *bbolt.Tx, f *os.File) error {
	w, err := newPacker(f.Name())
	if err != nil {
		return err
	}
	err = from.ForEach(func(name []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return w.put(name, k, v)
		})
	})
	return errors.Join(err, w.close(err == nil))
}

// A packer writes entries in ascending order into a file that no other process has.
type packer struct {
	db   *bbolt.DB
	tx   *bbolt.Tx
	size int
}

func newPacker(path string) (*packer, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 1, NoSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	w := &packer{db: db}
	if w.tx, err = db.Begin(true); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	_, err = w.tx.CreateBucket([]byte(recordsBucket)) // there even if it is empty
	if err != nil {
		return nil, errors.Join(err, w.close(false))
	}
	return w, nil
}

// put adds an entry, and begins a new transaction when there is much in this one.
func (w *packer) put(bucket, key, value []byte) error {
	if w.size += len(key) + len(value); w.size > packBytes {
		if err := w.tx.Commit(); err != nil {
			return err
		}
		tx, err := w.db.Begin(true)
		if err != nil {
			return err
		}
		w.tx, w.size = tx, 0
	}
	b, err := w.tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	b.FillPercent = 0.9
	return b.Put(key, value)
}

// close ends the file: both meta pages show all of it, and it is on the disk.
func (w *packer) close(commit bool) error {
	if !commit {
		return errors.Join(w.tx.Rollback(), w.db.Close())
	}
	err := w.tx.Commit()
	if err == nil {
		err = w.db.Update(func(*bbolt.Tx) error { return nil })
	}
	return errors.Join(err, w.db.Sync(), w.db.Close())
}

// makeFile makes a file that fill writes, verifies it, and gives it its name, which must be free.
func makeFile(path string, mode os.FileMode, fill func(*os.File) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "make", Path: path, Err: fs.ErrExist}
	}
	f, err := emptyFile(path, mode)
	if err != nil {
		return err
	}
	defer func() {
		if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) { // publish may have taken that name away
			err = errors.Join(err, e)
		}
	}()
	defer f.Close()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	im, err := readImage(f, path, info.Size())
	if err == nil {
		err = im.verify()
	}
	if err != nil {
		return err
	}
	return publish(f.Name(), path, true)
}
