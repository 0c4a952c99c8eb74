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
)

// Beside an installed program, under its name with one of these suffixes, are the program that
// it replaced and a record, which has keptLine once there was a program to keep. The record stays
// after uninstall: it tells a person who swapped the original back from an installer that did.
const (
	pluginName     = "host-local"
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
	dest := filepath.Join(args[0], pluginName)
	_, missing := os.Lstat(dest)
	if err := w.keepOther(self, dest); err != nil {
		return err
	}
	helper := filepath.Join(filepath.Dir(self), helperName)
	if _, err := os.Stat(helper); err == nil {
		if err := w.replace(helper, filepath.Join(args[0], helperName), os.Rename); err != nil {
			return err
		}
	}
	put := os.Link // fails if there is a program by now: that one must be kept
	if missing == nil {
		put = supplant
	}
	err = w.replace(self, dest, put)
	if errors.Is(err, fs.ErrExist) {
		return w.install(args)
	}
	return err
}

// tempName returns the name of a file that is about to get the name at dest. One of a call that was
// killed goes: in a container, the next call has the same process id.
func tempName(dest, what string) (string, error) {
	temp := fmt.Sprintf("%s.%s-%d", dest, what, os.Getpid())
	return temp, place{}.remove(temp)
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
		temp, err := tempName(dest, "kept")
		defer os.Remove(temp)
		if err == nil {
			err = os.Link(dest, temp)
		}
		if err == nil {
			err = os.Rename(temp, dest+originalSuffix)
		}
		if err != nil {
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
	temp, err := tempName(dest+recordSuffix, "new")
	defer os.Remove(temp)
	if err == nil {
		err = writeNew(temp, line)
	}
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
	temp, err := tempName(dest, "new")
	defer os.Remove(temp)
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

// uninstall gives all networks back to host-local and puts the original in its place again. It
// looks at everything before it changes anything, and takes back what it gave if it cannot go on.
// A call of this plugin that began before the original was back may make a network, so it waits
// until these calls have ended and looks at the networks once more.
func (w *word) uninstall(args []string) error {
	if len(args) != 1 {
		return errors.New("uninstall needs the directory of the plugins")
	}
	dest := filepath.Join(args[0], pluginName)
	w.program = "uninstall " + dest + "\n"
	change, err := w.original(dest)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	look := *w
	if look.dryRun = true; !w.dryRun {
		look.stdout = io.Discard
	}
	found := false
	err = look.eachDir(func(w *word, name string) error {
		found = found || w.hasNetwork(name)
		return w.giveBack(name)
	})
	if err == nil && !found {
		fmt.Fprintf(w.stdout, "there is no network of this plugin in %s\n", strings.Join(w.dirs(), ", "))
	}
	if w.dryRun {
		if err == nil && change != nil {
			fmt.Fprintf(w.stdout, "%s: would put the original back\n", dest)
		}
		return err
	}
	if err == nil {
		err = w.eachDir((*word).giveBack)
	}
	if change == nil {
		return err
	}
	var replaced *os.File
	if err == nil {
		replaced, err = os.Open(dest)
	}
	defer replaced.Close() // a nil file returns an error, which is no news
	if err == nil {
		if err = change(); errors.Is(err, fs.ErrExist) { // an update of the package came meanwhile: it stays
			err = nil
		}
	}
	if err != nil {
		if e := w.eachDir((*word).takeBack); e != nil {
			return errors.Join(err, fmt.Errorf("and taking back what was given: %w", e))
		}
		return fmt.Errorf("%w; this plugin goes on with every network", err)
	}
	fmt.Fprintf(w.stdout, "%s: the original is back\n", dest)
	return errors.Join(syncAll(args[0]), outlastCalls(replaced), w.eachDir((*word).giveBack), place{dir: args[0]}.remove(helperName))
}

// outlastCalls waits until no process runs the program that was replaced. This one may.
func outlastCalls(program *os.File) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	info, err := program.Stat()
	if mine, e := os.Stat(own); err != nil || e == nil && os.SameFile(info, mine) {
		return err
	}
	_, err = disused(program, lockWait)
	return err
}

// original returns what puts the original in the place of the program at dest, nil if that was
// done before, and an error if there is no original or this plugin is not what is to be replaced.
func (w *word) original(dest string) (change func() error, err error) {
	kept, known, err := readRecord(dest)
	if err != nil {
		return nil, err
	}
	theirs, err := isTheirs(dest)
	if err != nil {
		return nil, err
	}
	original, err := isTheirs(dest + originalSuffix)
	if err != nil {
		return nil, err
	}
	_, missing := os.Stat(dest)
	_, left := os.Lstat(dest + originalSuffix)
	if err := mayWrite(filepath.Dir(dest)); missing == nil && err != nil {
		return nil, err
	}
	switch {
	case theirs && known && left == nil && !original: // this plugin, of an uninstall that was killed after the exchange
		return func() error { return os.Remove(dest + originalSuffix) }, nil
	case theirs && known, missing != nil && known && !kept && !original:
		return nil, nil
	case theirs:
		return nil, fmt.Errorf("%s is another program, and nothing says that it was replaced", dest)
	case original && (known || missing == nil):
		return func() error {
			if err := writeRecord(dest, keptLine+"\n"); err != nil { // for a repetition
				return err
			}
			return supplant(dest+originalSuffix, dest)
		}, nil
	case missing != nil:
		return nil, missing
	case known && !kept: // there was none
		return func() error {
			if theirs, err := isTheirs(dest); err != nil || theirs {
				return err
			}
			return os.Remove(dest)
		}, nil
	}
	return nil, fmt.Errorf("%s is this plugin, and %s is gone: put the program of that name there from its package", dest, dest+originalSuffix)
}

// dirs returns the data directories that are there.
func (w *word) dirs() []string {
	if _, none := os.Stat(w.dataDir); len(w.dataDirs) == 0 && none == nil {
		return []string{w.dataDir}
	}
	return w.dataDirs
}

// eachDir does something for each network of each data directory.
func (w *word) eachDir(do func(*word, string) error) (err error) {
	for _, dir := range w.dirs() {
		in := *w
		in.dataDir = dir
		err = errors.Join(err, each(do)(&in, nil))
	}
	return err
}

// hasNetwork reports whether there is something to give back.
func (w *word) hasNetwork(name string) bool {
	p := w.place(name)
	return p.sharedIn() != "" || p.exists(stateName) || p.guarded()
}

// giveBack exports a network that this plugin has.
func (w *word) giveBack(name string) error {
	if !w.hasNetwork(name) {
		return nil
	}
	return w.export(name)
}

// takeBack imports a network that an uninstall of the same program has given back.
func (w *word) takeBack(name string) error {
	marker, err := os.ReadFile(w.place(name).file(exportedName))
	if err != nil || !strings.HasSuffix(string(marker), "\n"+w.program) {
		return nil
	}
	return w.takeOver(name)
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
		if n += kept; bytes.Contains(b[:n], []byte(about)) {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(b, b[max(0, n-len(about)):n])
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
	x, y := bufio.NewReader(f), bufio.NewReader(g)
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
