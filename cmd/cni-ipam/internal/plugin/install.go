package plugin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
)

// Beside an installed program, under its name with a suffix, are the program that it replaced and a record, which has keptLine
// once there was a program to keep. The record stays after uninstall: it tells a person who swapped the original back from an
// installer that did.
const (
	pluginName   = "host-local"
	recordSuffix = ".installed"
	keptLine     = "kept"
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

// pluginDir returns the directory of plugins that a command names, locked against other commands, and removes what one that was
// killed left in it.
func (w *word) pluginDir(args []string) (dir string, unlock func() error, err error) {
	if len(args) == 0 {
		return "", nil, fmt.Errorf("%s needs the directory of the plugins", w.name)
	}
	dir = filepath.Join(w.root, args[0])
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", nil, err
	}
	lock, err := lockFile(at, false, false, lockWait)
	if err != nil {
		return "", nil, err
	}
	for _, name := range []string{pluginName, pluginName + recordSuffix, sharedName} {
		for _, suffix := range []string{newSuffix, ".kept-"} {
			left, _ := filepath.Glob(filepath.Join(dir, name+suffix+"*"))
			for _, path := range left {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}
	return dir, lock.Close, err
}

// newSuffix is that of a file that is about to get another name. Earlier versions appended the id of their process, and had a
// second one.
const newSuffix = ".new"

// install puts this program into a directory of plugins under the name of the one it
// replaces, and the command for shared networks beside it if it is there. The program that it replaces stays beside it until
// this one has read every network, also those that were made in the meantime.
func (w *word) install(args []string) error {
	if len(args) != 1 {
		return errors.New("install needs the directory of the plugins")
	}
	dir, unlock, err := w.pluginDir(args)
	if err != nil {
		return err
	}
	defer unlock()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dest := filepath.Join(dir, pluginName)
	if same, err := sameContent(self, dest); err != nil {
		return err
	} else if _, unfinished := os.Lstat(dest + previousSuffix); !same || unfinished == nil {
		if err := w.put(self, dest); err != nil {
			return err
		}
	}
	return w.putShared(self, dir)
}

// putShared copies the command for shared networks, if it is beside this one.
func (w *word) putShared(self, dir string) error {
	from := filepath.Join(filepath.Dir(self), sharedName)
	if _, err := os.Stat(from); err != nil {
		return nil
	}
	return w.replace(from, filepath.Join(dir, sharedName), os.Rename)
}

// put replaces the program at dest by this one.
func (w *word) put(self, dest string) error {
	if err := w.canRead(); err != nil {
		return fmt.Errorf("%w; nothing was replaced", err)
	}
	for {
		if err := w.keepOther(self, dest); err != nil {
			return err
		}
		if err := w.putShared(self, filepath.Dir(dest)); err != nil {
			return err
		}
		put := os.Link // fails if there is a program by now: that one must be kept
		if _, missing := os.Lstat(dest); missing == nil {
			put = supplant
			if err := keepAs(dest, previousSuffix); err != nil {
				return err
			}
		}
		if err := w.replace(self, dest, put); err == nil {
			break
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := w.canRead(); err != nil { // the program before made a network in the meantime
		back := os.Rename(dest+previousSuffix, dest)
		if errors.Is(back, fs.ErrNotExist) {
			back = os.Remove(dest)
		}
		return errors.Join(fmt.Errorf("%w; the program before is back", err), back)
	}
	return place{dir: filepath.Dir(dest)}.remove(pluginName + previousSuffix)
}

// canRead returns an error if this program cannot read a network in the form that it has. A damaged one can be read by no
// program.
func (w *word) canRead() error {
	return w.each(nil, func(p place) error {
		v, err := p.look(true)
		switch {
		case errors.Is(err, errDamaged), errors.Is(err, ipalloc.ErrCorrupt):
			logf("network %s: %v", p.network, err)
			return nil
		case err == nil && !v.ours && p.exists("ipalloc.shared"):
			return fmt.Errorf("an earlier version shares it in a store: drain the node, remove %s, and use the type %s", p.dir, sharedName)
		}
		return err
	})
}

// keepAs gives the program at dest a second name.
func keepAs(dest, suffix string) error {
	temp := dest + newSuffix
	err := place{}.remove(temp)
	if err == nil {
		err = os.Link(dest, temp)
	}
	if err == nil {
		err = os.Rename(temp, dest+suffix)
	}
	return errors.Join(err, place{}.remove(temp)) // which is there if both names are of one file
}

// keepOther keeps the program at dest if it is to be replaced and is not this plugin: also if
// another one was kept before, because an update of the package is what is wanted later.
func (w *word) keepOther(self, dest string) error {
	if same, err := sameContent(self, dest); err != nil || same {
		return err
	}
	kept, _, err := readRecord(dest)
	if err != nil {
		return err
	}
	theirs, err := isTheirs(dest)
	if err != nil {
		return err
	}
	original, err := isTheirs(dest + originalSuffix)
	if err != nil {
		return err
	}
	if theirs && !original && kept && w.every > 0 {
		return fmt.Errorf("%s: %w", dest, errSwappedBack)
	}
	if theirs {
		if err := keepAs(dest, originalSuffix); err != nil {
			return err
		}
	}
	line := ""
	if kept || theirs || original {
		line = keptLine + "\n"
	}
	return writeRecord(dest, line)
}

// writeRecord writes a record in one step: on a full disk, the one that is there stays.
func writeRecord(dest, line string) error {
	temp := dest + recordSuffix + newSuffix
	defer os.Remove(temp)
	err := writeNew(temp, line)
	if err == nil {
		err = os.Rename(temp, dest+recordSuffix)
	}
	return err
}

// replace replaces a program in one step, so that every call finds one or the other.
func (w *word) replace(self, dest string, put func(from, to string) error) error {
	if same, err := sameContent(self, dest); err != nil || same {
		return err
	}
	temp := dest + newSuffix
	defer os.Remove(temp)
	err := place{}.remove(temp)
	if err == nil {
		err = copyFile(self, temp)
	}
	if err == nil {
		err = put(temp, dest)
	}
	if err == nil {
		fmt.Fprintf(w.stdout, "%s: installed\n", dest)
	}
	return err
}

// supplant puts the program at from in the place of the one at dest. It fails with fs.ErrExist, and
// leaves dest as it is, if that is neither this plugin nor the kept original: a package update put it
// there after the last look. Without an exchange in the file system, it looks and then renames.
func supplant(from, dest string) error {
	out := from
	if !exchange(from, dest) {
		out = dest
	}
	update, err := isTheirs(out)
	if original := dest + originalSuffix; err == nil && update && from != original {
		var same bool
		same, err = sameContent(out, original)
		update = !same
	}
	switch {
	case err == nil && !update && out == from:
		return os.Remove(from)
	case err == nil && !update:
		return os.Rename(from, dest)
	case out == from && !exchange(from, dest):
		return errors.Join(err, fmt.Errorf("%s was at %s and cannot be put back", from, dest))
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: another program came meanwhile: %w", dest, fs.ErrExist)
}

// readRecord reports whether a program was installed at dest, and whether one was kept.
func readRecord(dest string) (kept, known bool, err error) {
	data, err := os.ReadFile(dest + recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	return slices.Contains(strings.Fields(string(data)), keptLine), err == nil, err
}

// isTheirs reports whether there is a program, and it is no version of this one: those have its
// name in them.
func isTheirs(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	b, kept := make([]byte, 64<<10), 0
	for {
		n, err := f.Read(b[kept:])
		if n += kept; bytes.Contains(b[:n], []byte(mark)) {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(b, b[max(0, n-len(mark)):n])
	}
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
	f, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer f.Close()
	g, err := os.Open(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer g.Close()
	x, y := bufio.NewReaderSize(f, 64<<10), bufio.NewReaderSize(g, 64<<10)
	for {
		left, err := x.ReadByte()
		right, other := y.ReadByte()
		switch {
		case err != nil && err != io.EOF, other != nil && other != io.EOF:
			return false, errors.Join(err, other)
		case left != right, err != other:
			return false, nil
		case err == io.EOF:
			return true, nil
		}
	}
}
