package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// A network belongs to one of two plugins. The path of host-local's lock says which: as long
// as it is a file or missing, host-local can work; when it is a directory, every call of
// host-local fails before it reads or writes anything.

// guard makes host-local fail on the network. If host-local has been there, guard returns
// true after its last call has ended: a call of host-local has the lock file open from its
// start to its end, so the files are complete when nobody has it open. A guard that was
// killed while it waited is continued.
func (s *state) guard() (wasTheirs bool, err error) {
	path, old := s.file(guardName), s.file(guardName+".new")
	for {
		if err := os.Mkdir(path, 0o700); err == nil {
			break
		} else if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		if s.guarded() {
			break
		}
		if err := outlast(old, lockWait); err != nil {
			return false, err
		}
		if err := displace(path, old); err != nil {
			return false, err
		}
	}
	info, err := os.Lstat(old)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	return true, outlast(old, lockWait)
}

// acquire guards a network that this plugin does not have, and gives it back if this program was replaced in the meantime: an
// uninstall that put host-local in place before the guard was there has not seen it.
func (s *state) acquire() (wasTheirs bool, err error) {
	if replaced() {
		return false, errReplaced
	}
	if wasTheirs, err = s.guard(); err != nil {
		return wasTheirs, err
	}
	if replaced() {
		return wasTheirs, errors.Join(errReplaced, s.unguard())
	}
	s.recordDir()
	return wasTheirs, nil
}

// displace gives the lock file of host-local another name and puts a directory in its place.
// On a file system that cannot do so in one step, host-local can make the file anew in
// between: then the path is still no directory.
func displace(path, old string) error {
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if exchange(path, old) {
		return nil
	}
	err := os.Remove(old)
	if err == nil {
		err = os.Rename(path, old)
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Times of outlast. A process that is about to open the file when it gets its other name is
// not seen for a moment, so nobody must have it open twice in a row. Where the system does
// not say who has a file open, patience is the time within which a call of host-local asks
// for the lock after it has opened it.
const (
	lookAgain = 20 * time.Millisecond
	patience  = time.Second
)

// outlast waits until no process has the displaced lock file of host-local open, and removes it.
func outlast(path string, wait time.Duration) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return nil
	case err != nil:
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	known, err := disused(f, wait)
	if err == nil && !known {
		time.Sleep(patience)
		var last *os.File
		if last, err = lockFile(path, false, false, wait); err == nil {
			err = last.Close()
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// disused waits until no other process has a file open or runs it. known is false where the
// system does not say who does.
func disused(f *os.File, wait time.Duration) (known bool, err error) {
	for began, idle := time.Now(), 0; idle < 2; time.Sleep(lookAgain) {
		switch free, known := unopened(f); {
		case !known:
			return false, nil
		case free:
			idle++
		case time.Since(began) > wait:
			return true, fmt.Errorf("a call that had begun has %s open: %w", f.Name(), errBusy)
		default:
			idle = 0
		}
	}
	return true, nil
}

// importState imports what the files say. left are the files whose address another
// attachment holds.
func (s *state) importState(l *legacy) (left map[string]string, err error) {
	refused, err := s.engine.Import(s.ctx, l.State)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", s.dir, err)
	}
	left = map[string]string{}
	for _, e := range refused {
		left[fileName(e.Addr)] = e.Error()
	}
	return left, nil
}

// importFiles takes over what host-local left and moves its files aside. If it is
// interrupted anywhere, the next call continues.
func (s *state) importFiles(l *legacy) error {
	if len(l.files)+len(l.empty) == 0 {
		return nil
	}
	left, err := s.importState(l)
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.file(takenName), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, name := range slices.Concat(l.files, l.empty) {
		if why := left[name]; why != "" {
			logf("import %s: %s; the file stays where it is", s.dir, why)
			continue
		}
		if err := os.Rename(s.file(name), s.file(takenName+"/"+name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	taken := slices.DeleteFunc(l.Holdings, func(h hostlocal.Holding) bool {
		return !slices.ContainsFunc(h.Addresses, func(a netip.Addr) bool { return left[fileName(a)] == "" })
	})
	if len(taken) > 0 {
		logf("network %s: took over %d attachments of host-local from %s; its files are in %s", s.network, len(taken), s.dir, takenName)
	}
	if len(l.empty) > 0 {
		logf("network %s: freed what a host-local that was killed left without a name: %s", s.network, strings.Join(l.empty, " "))
	}
	return nil
}

// remove removes a file of the network that may be gone already.
func (p place) remove(name string) error {
	if err := os.Remove(p.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forgetTaken removes the files that were moved aside.
func (p place) forgetTaken() {
	if err := os.RemoveAll(p.file(takenName)); err != nil {
		logf("%v", err)
	}
}

// guarded reports whether host-local fails on the network.
func (p place) guarded() bool {
	info, err := os.Lstat(p.file(guardName))
	return err == nil && info.IsDir()
}

// unguard lets host-local work on the network again. The caller has the lock of the network. Only
// a directory goes: a file is host-local's lock, which a call of it may hold.
func (p place) unguard() error {
	if !p.guarded() {
		return nil
	}
	if err := outlast(p.file(guardName+".new"), lockWait); err != nil { // of a takeover that was killed
		return err
	}
	syscall.Rmdir(p.file(guardName + ".new"))
	return syscall.Rmdir(p.file(guardName))
}

// view is what a look at a network shows.
type view struct {
	state hostlocal.State // what this plugin holds
	files *legacy         // files of host-local that were not taken over
	ours  bool            // this plugin has the network
}

// look reads a network and changes nothing, whichever plugin has it. If check is true, it
// also compares the state with itself.
func (p place) look(check bool) (v view, err error) {
	if p.shared != nil {
		return p.lookShared(check)
	}
	lock, err := lockFile(p.file(lockName), true, false, lockWait)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without the file, this plugin never had the network
		return v, err
	}
	defer lock.Close() // a nil file returns an error, which is no news
	if v.files, err = readLegacy(p.dir); err != nil {
		return v, err
	}
	if v.ours, err = p.there(stateName); err != nil || !v.ours {
		return v, err
	}
	opts := boltstore.Options{ReadOnly: true, LockWait: lockWait, Verify: boltstore.VerifyNever}
	if check {
		opts.Verify = boltstore.VerifyAlways
	}
	db, err := boltstore.Open(context.Background(), p.file(stateName), opts)
	switch {
	case damaged(err) && p.earlierBoot(p.lastBoot()):
		return v, fmt.Errorf("%w (%s), and no container of it is alive: the next call sets it aside and begins anew", errDamaged, damage(err))
	case damaged(err):
		return v, fmt.Errorf("%w (%s), and its containers may be alive: drain the node and reboot it", errDamaged, damage(err))
	case err != nil:
		return v, err
	}
	defer db.Close()
	engine, err := hostlocal.New(db, hostlocal.Config{Network: p.network})
	if err == nil {
		v.state, err = engine.Export(context.Background())
	}
	if err == nil && check {
		err = engine.Check(context.Background())
	}
	return v, err
}
