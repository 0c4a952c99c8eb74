package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"
)

// create makes an empty store under a name that nobody has. It is written beside it, and then given the name, which fails if
// somebody else was first; that is no error.
func create(path string, mode os.FileMode) error {
	temp, err := emptyFile(path, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := initialise(temp, mode); err != nil {
		return err
	}
	return publish(temp, path)
}

// emptyFile makes a file beside path under a name of its own.
func emptyFile(path string, mode os.FileMode) (string, error) {
	for {
		temp := fmt.Sprintf("%s.%08x.new", path, rand.Uint32())
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return temp, f.Close()
	}
}

// initialise writes an empty store into an empty file.
func initialise(path string, mode os.FileMode) error {
	db, err := bbolt.Open(path, mode, &bbolt.Options{Timeout: 1})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(stateBucket))
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucket([]byte(recordsBucket)); err != nil {
			return err
		}
		return b.Put([]byte(stateKey), state{boot: bootID()}.append(nil))
	})
	if err == nil {
		err = db.Update(func(*bbolt.Tx) error { return nil }) // both meta pages show it
	}
	return errors.Join(err, db.Close())
}

// publish gives a whole file its name, unless somebody has it.
func publish(temp, path string) error {
	err := os.Link(temp, path)
	switch {
	case err == nil:
		return syncDir(path)
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	// A file system without links. A crash from here to the end of the copy leaves a file that is refused as damaged.
	data, err := os.ReadFile(temp)
	if err != nil {
		return err
	}
	info, err := os.Stat(temp)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close(), syncDir(path))
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
