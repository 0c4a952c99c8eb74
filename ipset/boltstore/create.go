package boltstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// create makes an empty store under a name that nobody has. It is written beside it, and then given the name; that somebody
// else was first is no error.
func create(path string, mode os.FileMode) error {
	temp, err := emptyFile(path, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := initialise(temp); err != nil {
		return err
	}
	if err := publish(temp, path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
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
func initialise(path string) error {
	w, err := newPacker(path)
	if err != nil {
		return err
	}
	err = w.put([]byte(stateBucket), []byte(stateKey), state{boot: bootID()}.append(nil))
	return errors.Join(err, w.close(err == nil))
}

// publish gives a whole file its name; os.ErrExist: somebody has that.
func publish(temp, path string) error {
	err := os.Link(temp, path)
	switch {
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
