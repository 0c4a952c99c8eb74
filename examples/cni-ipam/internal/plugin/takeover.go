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

	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// A network belongs to one of two plugins. The path of host-local's lock says which: as long
// as it is a file or missing, host-local can work; when it is a directory, every call of
// host-local fails before it reads or writes anything.

// guard makes host-local fail on the network. If host-local has been there, it takes
// host-local's lock instead and returns it: takeOver does the rest.
func (s *state) guard() (theirs *os.File, err error) {
	path := s.file(guardName)
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return nil, nil
	}
	err = os.Mkdir(path, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return lockFile(path, lockWait)
}

// takeOver imports what host-local left and replaces its lock by the guard, with host-local's
// lock held. The files stay where they are until the calls of host-local that were waiting
// for the lock have ended: those still see what is held.
func (s *state) takeOver(theirs *os.File) error {
	l, err := readLegacy(s.dir)
	if err == nil {
		_, err = s.importState(l)
	}
	if err == nil {
		err = exchange(s.file(guardName), s.file(guardName)+".new")
	}
	if err == nil {
		err = relock(theirs, lockWait)
	}
	return err
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

// forgetTaken removes the files that were moved aside.
func (p place) forgetTaken() {
	if err := os.RemoveAll(p.file(takenName)); err != nil {
		logf("%v", err)
	}
}

// unguard lets host-local work on the network again.
func (p place) unguard() error {
	if err := os.Remove(p.file(guardName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// view is what a look at a network shows.
type view struct {
	state    hostlocal.State // what this plugin holds
	files    *legacy         // files of host-local that were not taken over
	ours     bool            // this plugin has the network
	exported bool            // this plugin had it and wrote it back
}

// look reads a network and changes nothing, whichever plugin has it. If check is true, it
// also compares the state with itself.
func (p place) look(check bool) (v view, err error) {
	if p.shared != nil {
		return p.lookShared(check)
	}
	lock, err := lockDir(p.dir, true, lockWait)
	if err != nil {
		return v, err
	}
	defer lock.Close()
	if v.files, err = readLegacy(p.dir); err != nil {
		return v, err
	}
	v.ours, v.exported = p.exists(stateName), p.exists(exportedName)
	if !v.ours {
		return v, nil
	}
	opts := boltstore.Options{ReadOnly: true, LockWait: lockWait, Verify: boltstore.VerifyNever}
	if check {
		opts.Verify = boltstore.VerifyAlways
	}
	db, err := boltstore.Open(context.Background(), p.file(stateName), opts)
	if err != nil {
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
