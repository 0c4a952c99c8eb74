package plugin

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Beside an installed program, under its name with one of these suffixes, are the program that
// it replaced and a record: the checksum of each version that was installed, and keptLine once
// there was a program to keep. The record tells an older version of this plugin from another
// program, and a person who swapped the original back from an installer that did.
const (
	originalSuffix = ".original"
	recordSuffix   = ".installed"
	keptLine       = "kept"
)

// errSwappedBack means that install, which looks again and again, must not do it again.
var errSwappedBack = errors.New("the original was swapped back: run install without -every to install again")

// repeated does something once, or again and again.
func repeated(do func(*word, []string) error) func(*word, []string) error {
	return func(w *word, args []string) error {
		for {
			err := do(w, args)
			if w.every <= 0 {
				return err
			}
			if err != nil {
				logf("%v", err)
			}
			time.Sleep(w.every)
		}
	}
}

// install puts this program into a directory of plugins under the name of the one it
// replaces, and the command for shared networks beside it if it is there.
func (w *word) install(args []string) error {
	if len(args) != 1 {
		return errors.New("install needs the directory of the plugins")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dest := filepath.Join(args[0], w.as)
	if err := w.keepOther(self, dest); err != nil {
		return err
	}
	helper := filepath.Join(filepath.Dir(self), helperName)
	if _, err := os.Stat(helper); err == nil {
		if err := w.replace(helper, filepath.Join(args[0], helperName)); err != nil {
			return err
		}
	}
	return w.replace(self, dest)
}

// keepOther keeps the program at dest if it is to be replaced and is another one, and records
// the one that replaces it.
func (w *word) keepOther(self, dest string) error {
	if same, err := sameContent(self, dest); err != nil || same {
		return err
	}
	known, err := readRecord(dest)
	if err != nil {
		return err
	}
	sum, err := checksum(dest)
	foreign := err == nil && !slices.Contains(known, sum)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Lstat(dest + originalSuffix)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case err != nil && !missing:
		return err
	case missing && foreign && slices.Contains(known, keptLine) && w.every > 0:
		return fmt.Errorf("%s: %w", dest, errSwappedBack)
	case missing && foreign:
		if err := os.Link(dest, dest+originalSuffix); err != nil {
			return err
		}
		fallthrough
	case !missing:
		if err := addRecord(dest, known, keptLine); err != nil {
			return err
		}
	}
	if sum, err = checksum(self); err != nil {
		return err
	}
	return addRecord(dest, known, sum)
}

// replace replaces a program in one step, so that every call finds one or the other.
func (w *word) replace(self, dest string) error {
	if same, err := sameContent(self, dest); err != nil || same {
		return err
	}
	temp := fmt.Sprintf("%s.new-%d", dest, os.Getpid())
	defer os.Remove(temp)
	if err := copyFile(self, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, dest); err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: installed\n", dest)
	return nil
}

// uninstall gives all networks back to host-local and puts the original in its place again. A
// call of this plugin may make a network between the two, so it looks at the networks again.
func (w *word) uninstall(args []string) error {
	if len(args) != 1 {
		return errors.New("uninstall needs the directory of the plugins")
	}
	dest := filepath.Join(args[0], w.as)
	if err := each((*word).giveBack)(w, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known, err := readRecord(dest)
	if err != nil {
		return err
	}
	sum, err := checksum(dest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !slices.Contains(known, sum):
		return nil // done before
	}
	if err = os.Rename(dest+originalSuffix, dest); errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(dest) // there was none
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w.stdout, "%s: the original is back\n", dest)
	if err := each((*word).giveBack)(w, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// giveBack exports a network that this plugin has.
func (w *word) giveBack(name string) error {
	p := w.place(name)
	if info, err := os.Lstat(p.file(guardName)); p.sharedIn() == "" && !p.exists(stateName) && (err != nil || !info.IsDir()) {
		return nil
	}
	return w.export(name)
}

// readRecord returns the lines of the record of a program.
func readRecord(dest string) ([]string, error) {
	data, err := os.ReadFile(dest + recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(data)), err
}

// addRecord adds a line to the record.
func addRecord(dest string, known []string, line string) error {
	if slices.Contains(known, line) {
		return nil
	}
	f, err := os.OpenFile(dest+recordSuffix, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := fnv.New128a() // nobody gains by a collision, and package crypto takes a tenth of a millisecond to start
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
}

// sameContent reports whether two files are alike; a missing second one is not. It reads them
// in small pieces: a DaemonSet looks every minute with little memory.
func sameContent(a, b string) (bool, error) {
	x, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := os.Open(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer y.Close()
	left, right := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := io.ReadFull(x, left)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return false, err
		}
		m, other := io.ReadFull(y, right)
		if other != nil && other != io.EOF && other != io.ErrUnexpectedEOF {
			return false, other
		}
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		if err != nil { // both end here, because they are equal to the last byte
			return other != nil, nil
		}
	}
}
