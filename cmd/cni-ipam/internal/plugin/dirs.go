package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Networks may be in any directory: a configuration names it in dataDir, and a person who calls a command does not have that
// configuration. So the first call of a network records its data directory in a list, which every command reads. An entry is a
// symbolic link to the directory. A link has no content that a crash of the machine could lose.

// defaultDataDir is where host-local keeps networks by default. The tests link another one.
var defaultDataDir = "/var/lib/cni/networks"

// listName is the list, in the default directory. No network has a name that begins with a dot.
const listName = ".ipalloc"

// recordDir records the data directory of a network.
func (p place) recordDir() {
	dir, err := filepath.Abs(filepath.Dir(p.dir))
	if err != nil || dir == defaultDataDir {
		return
	}
	list := filepath.Join(defaultDataDir, listName)
	name := sha256.Sum256([]byte(dir))
	entry := filepath.Join(list, hex.EncodeToString(name[:8]))
	if err = os.Symlink(dir, entry); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(list, 0o755); err == nil {
			err = os.Symlink(dir, entry)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		logf("the data directory %s cannot be recorded, so name it with -data-dir: %v", dir, err)
	}
}

// dirs returns the data directories that a command works on: those that it was given, or the default one and those on the list.
func (w *word) dirs() ([]string, error) {
	if len(w.dataDirs) > 0 {
		return w.dataDirs, nil
	}
	dirs := []string{filepath.Join(w.root, defaultDataDir)}
	entries, err := filepath.Glob(filepath.Join(w.root, defaultDataDir, listName, "*"))
	for _, entry := range entries {
		dir, e := os.Readlink(entry)
		if e != nil {
			return nil, e
		}
		_, gone := os.Stat(filepath.Join(w.root, dir))
		switch {
		case gone == nil:
			dirs = append(dirs, filepath.Join(w.root, dir))
		case w.root != "":
			return nil, fmt.Errorf("the node has networks in %s: mount it at %s (%w)", dir, filepath.Join(w.root, dir), gone)
		}
	}
	if _, gone := os.Stat(dirs[0]); errors.Is(gone, fs.ErrNotExist) {
		if w.root != "" {
			return nil, gone
		}
		dirs = dirs[1:]
	}
	return dirs, err
}

// forgetDirs removes the entries of the list.
func (w *word) forgetDirs() error {
	if len(w.dataDirs) > 0 {
		return nil
	}
	return os.RemoveAll(filepath.Join(w.root, defaultDataDir, listName))
}

// networks returns the names of the networks in a data directory. One may be a link to a directory elsewhere.
func networks(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !plainName(e.Name()) {
			continue
		}
		info, bad := os.Stat(filepath.Join(dir, e.Name()))
		switch {
		case bad == nil && info.IsDir():
			names = append(names, e.Name())
		case bad != nil && !errors.Is(bad, fs.ErrNotExist) || bad != nil && e.Type() == fs.ModeSymlink:
			err = errors.Join(err, bad)
		}
	}
	return names, err
}

// The suffixes of a program that another one has replaced: the original of install, and this plugin during an upgrade or an
// uninstall.
const (
	originalSuffix = ".original"
	previousSuffix = ".previous"
)

// replaced reports whether the program of this process is no longer the one that a runtime calls.
func replaced() bool {
	self, err := os.Readlink("/proc/self/exe")
	return err == nil && (strings.HasSuffix(self, " (deleted)") || strings.HasSuffix(self, originalSuffix) || strings.HasSuffix(self, previousSuffix))
}
