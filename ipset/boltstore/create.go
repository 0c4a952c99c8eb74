package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// create makes an empty store. It is written under another name and then given its own.
// It succeeds as well if another process is first. With NoSync, a crash of the machine may
// leave a damaged file.
func create(path string, opts *Options) error {
	sync := !opts.NoSync
	f, err := emptyFile(path, opts.Mode)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(emptyImage(os.Getpagesize(), state{boot: opts.boot()}))
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := publish(f.Name(), path, sync); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// emptyFile makes and opens a file beside path under a name of its own.
func emptyFile(path string, mode os.FileMode) (*os.File, error) {
	for {
		f, err := openFile(fmt.Sprintf("%s.%08x.new", path, rand.Uint32()), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// emptyImage returns the file of a store without records: what bbolt writes for it, in one
// piece. See [image] for the form.
func emptyImage(pageSize int, st state) []byte {
	e := binary.NativeEndian
	page := func(b []byte, id uint64, flags uint16, count int) []byte {
		b = e.AppendUint16(e.AppendUint64(b, id), flags)
		return e.AppendUint32(e.AppendUint16(b, uint16(count)), 0)
	}
	const root, free, high = 3, 2, 4
	file := make([]byte, 0, high*pageSize)
	for id := range uint64(2) {
		file = page(file[:int(id)*pageSize], id, flagMeta, 0)
		at := len(file)
		for _, v := range []uint32{boltMagic, boltVersion, uint32(pageSize), 0} {
			file = e.AppendUint32(file, v)
		}
		for _, v := range []uint64{root, 0, free, high, id} {
			file = e.AppendUint64(file, v)
		}
		h := fnv.New64a()
		h.Write(file[at:])
		file = e.AppendUint64(file, h.Sum64())
	}
	leaf := func(id uint64, bucket uint32, entries ...string) []byte {
		b := page(nil, id, flagLeaf, len(entries)/2)
		pos := len(entries) / 2 * 16 // of the first key, relative to its element
		for i := 0; i < len(entries); i += 2 {
			for _, v := range []int{int(bucket), pos, len(entries[i]), len(entries[i+1])} {
				b = e.AppendUint32(b, uint32(v))
			}
			pos += len(entries[i]) + len(entries[i+1]) - 16
		}
		return append(b, strings.Join(entries, "")...)
	}
	inline := func(b []byte) string { return string(make([]byte, 16)) + string(b) } // root page 0, sequence 0
	file = page(file[:free*pageSize], free, flagFreelist, 0)
	return append(file[:root*pageSize], leaf(root, leafBucket,
		recordsBucket, inline(leaf(0, 0)), stateBucket, inline(leaf(0, 0, stateKey, string(st.append(nil)))),
	)...)[:high*pageSize]
}

// publish gives a whole file its name. os.ErrExist: the name is taken.
func publish(temp, path string, sync bool) error {
	err := giveName(temp, path)
	switch {
	case err == nil && !sync:
		return nil
	case err == nil:
		return syncDir(path)
	case errors.Is(err, fs.ErrExist):
		return &fs.PathError{Op: "make", Path: path, Err: fs.ErrExist}
	}
	// A file system without links. A crash from here to the end of the copy leaves a file that is refused as damaged.
	from, err := os.Open(temp)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close(), syncDir(path))
}

// syncDir makes the name of a file durable. Where a directory can't be opened or synced, the system sees to that itself.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil
	}
	defer d.Close()
	if err := d.Sync(); errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}
