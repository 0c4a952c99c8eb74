package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// uninstall puts the original in place of this plugin again and writes all networks back in its form. It looks at everything
// before it changes anything. The program changes first: calls of the original fail on a network that is not written back, and a
// call of this plugin that is still under way takes no network over (see acquire). If a network cannot be written back,
// this plugin comes back too, and takes over what was written with its next call.
func (w *word) uninstall(args []string) error {
	dir, unlock, err := w.pluginDir(args)
	if err != nil {
		return err
	}
	defer unlock()
	dest := filepath.Join(dir, pluginName)
	change, err := w.original(dest)
	if err == nil && change != nil && len(args) > 1 {
		err = fmt.Errorf("the original is not in place in %s, where all networks go back with it: name no network", dir)
	}
	if err == nil {
		err = w.inspect(args[1:])
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	if w.dryRun {
		if change != nil {
			fmt.Fprintf(w.stdout, "%s: would put the original back\n", dest)
		}
		return nil
	}
	if change != nil {
		if _, none := os.Lstat(dest); none == nil {
			err = keepPrevious(dest)
		}
		if err == nil {
			err = change()
		}
		if errors.Is(err, fs.ErrExist) { // an update of the package came meanwhile: it stays
			err = nil
		}
	}
	if err == nil {
		err = w.each(args[1:], w.writeBack)
	}
	if err != nil {
		return errors.Join(err, comeBack(dest))
	}
	if change != nil {
		fmt.Fprintf(w.stdout, "%s: the original is back\n", dest)
	}
	in := place{dir: dir}
	err = errors.Join(in.remove(pluginName+previousSuffix), in.remove(sharedName), syncAll(dir))
	if len(args) == 1 {
		err = errors.Join(err, w.forgetDirs())
	}
	return err
}

// comeBack puts this plugin in place again after an uninstall that could not end, and keeps the original beside it.
func comeBack(dest string) error {
	if _, none := os.Lstat(dest + previousSuffix); none != nil {
		return nil
	}
	if theirs, err := isTheirs(dest); err != nil || theirs {
		if err = errors.Join(err, keepAs(dest, originalSuffix)); err != nil {
			return err
		}
	}
	if err := os.Rename(dest+previousSuffix, dest); err != nil {
		return err
	}
	return errors.New("this plugin goes on with every network")
}

// keepPrevious keeps this plugin, which is in place but for an uninstall that was killed.
func keepPrevious(dest string) error {
	if theirs, err := isTheirs(dest); err != nil || theirs {
		return err
	}
	return keepAs(dest, previousSuffix)
}

// inspect returns what is in the way of writing networks back.
func (w *word) inspect(names []string) error {
	var in []string
	err := w.each(names, func(p place) error {
		if !p.has() {
			return nil
		}
		in = append(in, p.network)
		v, err := p.look(false)
		if errors.Is(err, errDamaged) && p.earlierBoot(p.lastBoot()) {
			return nil // nothing of it is alive
		}
		if err == nil {
			err = checkLegacy(p.dir, v.state)
		}
		if err == nil && w.dryRun {
			fmt.Fprintf(w.stdout, "%s: would write back %d attachments\n", p.network, len(v.state.Holdings))
		}
		return err
	})
	if err == nil && len(in) == 0 {
		dirs, e := w.dirs()
		err = e
		fmt.Fprintf(w.stdout, "there is no network of this plugin in %s\n", strings.Join(dirs, ", "))
	}
	return err
}

// has reports whether this plugin has the network.
func (p place) has() bool { return p.exists(stateName) || p.guarded() }

// writeBack writes a network back: the files, and when they are on the disk the state goes, and the guard last, all of it
// under the network's lock. If it is interrupted in between, repeating it continues.
func (w *word) writeBack(p place) error {
	if !p.has() {
		return nil
	}
	p.export = true
	s, err := p.open()
	if errors.Is(err, errNothing) {
		return nil // but for the guard
	}
	if err != nil {
		return err
	}
	held, err := s.writeBack()
	if err = errors.Join(err, s.close()); err == nil {
		fmt.Fprintf(w.stdout, "%s: wrote back %d attachments\n", p.network, held)
	}
	return err
}

func (s *state) writeBack() (held int, err error) {
	all, err := s.engine.Export(s.ctx)
	if err != nil {
		return 0, err
	}
	undo, err := writeLegacy(s.dir, all)
	if err == nil {
		err = syncAll(s.dir) // the files are to be there if the machine dies when the state is gone
	}
	if err != nil {
		undo()
		return 0, err
	}
	s.forgetTaken()
	for _, name := range []string{bootName, spareName, stateName} {
		if err := s.remove(name); err != nil {
			return 0, err
		}
	}
	if err := s.unguard(); err != nil {
		return 0, err
	}
	return len(all.Holdings), syncAll(s.dir)
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
	case theirs, missing != nil && known && !kept && !original: // also if another installer put it there
		return nil, nil
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
