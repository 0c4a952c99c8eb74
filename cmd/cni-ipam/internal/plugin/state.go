package plugin

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The files of a network, in the directory where host-local has its own.
const (
	lockName  = "ipalloc.lock"     // the lock of this plugin; only root can open it
	stateName = "ipalloc.db"       // everything that is held
	bootName  = "ipalloc.boot"     // a symbolic link to nowhere: its target is the boot in which the state was last opened
	spareName = "ipalloc.spare"    // space that a release on a full disk gives back first
	guardName = "lock"             // host-local's lock file; a directory once this plugin has the network
	takenName = "host-local.taken" // files that were taken over
)

var (
	// errBusy means another call of the same network did not end in time.
	errBusy = errors.New("the network's lock is taken")
	// errReplaced means another program is in place of the one that runs.
	errReplaced = errors.New("this program was replaced while it ran, and takes no network over")
	// errNothing means the network holds nothing and has no state.
	errNothing = errors.New("nothing is held")
	// errDamaged means the state cannot be read, and what it held may be alive.
	errDamaged = errors.New("the state is damaged")
	// errEarlier means the state is damaged, from an earlier boot, and the configuration
	// refuses to start afresh.
	errEarlier = errors.New("ipam.refuseDamaged is set, and the damage is from an earlier boot")
)

// lockWait is how long a call waits for the one before it.
const lockWait = 2 * time.Minute

// place is where a network's state is and how to open it.
type place struct {
	dir     string
	network string
	sets    []hostlocal.RangeSet
	boot    string
	leases  bool
	refuse  bool // a damaged state of an earlier boot too
	create  bool // the state, if there is none
	short   bool // of space: make no spare
	export  bool // to write it back; makes nothing that is not there
	asIs    bool // take nothing over
	last    bool // the process ends when the state is closed
	tool    bool // a person called, and the configuration is unknown
	caller  string
	lockOf  hostlocal.Attachment // which attachment of a shared network to lock, if any
	shared  *shared
}

// state is an open network.
type state struct {
	place
	ctx     context.Context
	cancel  context.CancelFunc
	lock    *os.File
	unlock  func() error     // of an attachment of a shared network
	store   *boltstore.Store // the state file, if the network is not shared
	session *Session         // the shared store
	engine  *hostlocal.Engine
	fresh   bool // this call made the directory
}

func (p place) file(name string) string { return filepath.Join(p.dir, name) }

// missing reports whether an error says that there is no such file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// there reports whether a file is there.
func (p place) there(name string) (bool, error) {
	_, err := os.Lstat(p.file(name))
	if missing(err) {
		return false, nil
	}
	return true, err
}

// exists reports whether a file is there, or cannot be looked at, so that what reads it fails.
func (p place) exists(name string) bool {
	there, _ := p.there(name)
	return there
}

// open takes the lock of a network, opens its state and takes over what host-local left in
// the directory. Without create it returns errNothing if there is neither.
func (p place) open() (*state, error) {
	s := &state{place: p, ctx: context.Background()}
	if p.create && p.shared == nil {
		err := os.Mkdir(p.dir, 0o755)
		if s.fresh = err == nil; errors.Is(err, fs.ErrNotExist) {
			err = os.MkdirAll(p.dir, 0o755)
			s.fresh = err == nil
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	open := s.openLocal
	if p.shared != nil {
		open = s.openShared
	}
	if err := open(); err != nil {
		return nil, errors.Join(s.retry(err), s.close())
	}
	return s, nil
}

func (s *state) openLocal() (err error) {
	if err = s.takeLock(); err != nil {
		return err
	}
	if s.caller != "" && callers() != s.caller { // the DEL may have come and gone
		return errOrphan
	}
	if !s.create && !s.exists(stateName) {
		if s.export { // written back, but for the guard perhaps; or never taken over
			return cmp.Or(s.unguard(), errNothing)
		}
		if l, err := readLegacy(s.dir); err != nil || s.asIs || len(l.files) == 0 {
			return cmp.Or(err, errNothing)
		}
		s.create = true // what host-local left is taken over
	}
	wasTheirs := false
	if !s.asIs && !s.guarded() {
		if wasTheirs, err = s.acquire(); err != nil {
			return err
		}
	} else if !s.asIs {
		if wasTheirs, err = s.guard(); err != nil {
			return err
		}
	}
	if !s.fresh && !s.asIs && !s.exists(stateName) { // what cannot be released later is not taken over
		err = s.makeSpare()
	}
	if err == nil {
		s.store, err = s.openStore()
	}
	if err != nil {
		if noSpace(err) && !s.exists(stateName) { // host-local can still release
			err = errors.Join(err, s.unguard())
		}
		return err
	}
	s.engine, err = hostlocal.New(s.store, hostlocal.Config{Network: s.network, Sets: s.sets, Boot: s.boot, Leases: s.leases})
	switch {
	case err != nil, s.asIs:
		return err
	case s.fresh && !wasTheirs: // the next call settles
		s.noteBoot()
		s.recordDir()
		return nil
	}
	return s.settle()
}

// takeLock takes the lock of the network. A call that makes no state makes no lock where
// there is nothing to take over.
func (s *state) takeLock() (err error) {
	s.lock, err = lockFile(s.file(lockName), false, s.create, lockWait)
	if s.lock != nil || s.create {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		l, none := readLegacy(s.dir)
		if none == nil && (len(l.files) > 0 && !s.export || s.exists(stateName) || s.guarded()) {
			s.lock, err = lockFile(s.file(lockName), false, true, lockWait)
			return err
		}
		if err = none; err == nil {
			return errNothing
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		return errNothing
	}
	return err
}

// openStore opens the state file. A damaged one is set aside if nothing in it can be alive,
// because the machine was started since it was last opened, or if that cannot be known.
func (s *state) openStore() (*boltstore.Store, error) {
	path := s.file(stateName)
	last := s.lastBoot()
	// The network is locked, and nothing needs a sync: what a process wrote outlives it, and
	// after the death of the machine the file is verified.
	opts := boltstore.Options{NoSync: true, InitialMap: 1 << 20, LockWait: lockWait, NoCreate: !s.create, Verify: boltstore.VerifyAlways}
	if last != "" && last == s.boot {
		opts.Verify = boltstore.VerifyNever
	}
	if len(s.boot) <= 64 {
		opts.Boot = s.boot
	}
	db, err := boltstore.Open(s.ctx, path, opts)
	switch {
	case !damaged(err):
		return db, err
	case !s.earlierBoot(last):
		return nil, fmt.Errorf("%w (%s), and its containers may be alive: drain the node and reboot it", errDamaged, damage(err))
	case s.refuse:
		return nil, fmt.Errorf("%w (%s): %w", errDamaged, damage(err), errEarlier)
	}
	aside, renamed := s.setAside()
	if renamed != nil {
		return nil, errors.Join(err, renamed)
	}
	logf("ERROR: the state of network %s is lost and set aside as %s: %s", s.network, aside, damage(err))
	opts.NoCreate = false
	return boltstore.Open(s.ctx, path, opts)
}

// setAside gives the state file another name and returns it. The last one that was set aside
// stays, older ones go.
func (p place) setAside() (string, error) {
	aside := p.asideName()
	return aside, os.Rename(p.file(stateName), aside)
}

// asideName returns a name for a damaged state, and removes all earlier ones but the last.
func (p place) asideName() string {
	older, _ := filepath.Glob(p.file(stateName) + ".damaged-*") // in the order of their times
	for _, path := range older[:max(0, len(older)-1)] {
		if err := os.Remove(path); err != nil {
			logf("%v", err)
		}
	}
	return fmt.Sprintf("%s.damaged-%s", p.file(stateName), time.Now().UTC().Format("20060102T150405.000Z"))
}

func damaged(err error) bool {
	return errors.Is(err, ipalloc.ErrCorrupt) || errors.Is(err, boltstore.ErrForeign)
}

// damage returns what is damaged. What the store advises is for programs.
func damage(err error) string {
	text, _, _ := strings.Cut(err.Error(), "; nothing was changed")
	text, _, _ = strings.Cut(text, "; Salvage saves")
	return text
}

// earlierBoot reports whether the state was last opened before the machine was started, or in no boot that is known. A command
// knows the boot by the kernel's name for it alone.
func (p place) earlierBoot(last string) bool {
	return last == "" || last != p.boot && (!p.tool || len(last) == len(p.boot))
}

func noSpace(err error) bool {
	return errors.Is(err, boltstore.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lastBoot returns the boot in which the state was last opened; empty if that is unknown.
func (p place) lastBoot() string {
	last, err := os.Readlink(p.file(bootName))
	if err != nil {
		return ""
	}
	return last
}

// noteBoot records the boot if it is another one, and returns the last one. A symbolic link has
// no content that a crash of the machine could lose: after one, the link is there, or it is not
// and the boot is unknown.
func (s *state) noteBoot() (last string) {
	if last = s.lastBoot(); s.boot == "" || last == s.boot {
		return ""
	}
	err := os.Symlink(s.boot, s.file(bootName))
	if errors.Is(err, fs.ErrExist) {
		if err = os.Remove(s.file(bootName)); err == nil {
			err = os.Symlink(s.boot, s.file(bootName))
		}
	}
	if err != nil {
		logf("the boot cannot be recorded: %v", err)
	}
	return last
}

// close gives the network back.
func (s *state) close() (err error) {
	if s.unlock != nil {
		if e := s.unlock(); e != nil { // ends with this process
			logf("%v", e)
		}
	}
	if s.session != nil {
		err = s.session.Close()
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.store != nil && s.last {
		err = s.store.Abandon()
	} else if s.store != nil {
		err = s.store.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	s.store, s.session, s.lock = nil, nil, nil
	return err
}

// noteKey is the key of the one record that the plugin itself keeps in the state: when the
// directory last changed, as of the last time it was read and quiet. Before that, a change in
// the same tick of the clock could be missed.
const noteKey = "Ncni-ipam"

// settleTime is longer than any file system takes for one time for another.
const settleTime = 2 * time.Second

func encodeNote(changed int64) string {
	return string(binary.BigEndian.AppendUint64([]byte{1}, uint64(changed)))
}

// decodeNote returns 0, a time at which no directory changed, for a note that is none.
func decodeNote(s string) (changed int64) {
	if len(s) != 9 || s[0] != 1 {
		return 0
	}
	return int64(binary.BigEndian.Uint64([]byte(s[1:])))
}

// settle brings the directory in order if it has changed since that was last done: on first
// use, after a boot, when a call of host-local that began before the first use ended after
// it, and when an earlier call was killed.
func (s *state) settle() error {
	recs, err := s.store.Get(s.ctx, nil, noteKey)
	if err != nil {
		return err
	}
	was := decodeNote(recs[0].Value)
	now, err := changed(s.dir)
	if err != nil {
		return err
	}
	if last := s.noteBoot(); last != "" {
		s.forgetTaken()
		s.recordDir()
	}
	if was == now {
		return nil
	}
	quiet := time.Since(time.Unix(0, now)).Abs() > settleTime
	if err := s.tidy(quiet); err != nil {
		return err
	}
	if after, err := changed(s.dir); err != nil || after != now || !quiet {
		return err // the next call reads the directory again
	}
	_, err = s.store.Commit(s.ctx, []store.Op{{Kind: store.Put, Key: noteKey, Value: encodeNote(now), Expect: recs[0].Rev}})
	if noSpace(err) {
		return nil
	}
	return err
}

// tidy takes over files of host-local and removes what killed calls left. In a directory
// that is quiet it makes the spare, which the first call of a network need not wait for.
func (s *state) tidy(quiet bool) error {
	l, err := readLegacy(s.dir)
	if err != nil {
		return err
	}
	for _, name := range l.stray {
		if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			logf("%v", err)
		}
	}
	if err := s.importFiles(l); err != nil {
		return err
	}
	if quiet && !s.short && !s.exists(spareName) {
		_ = s.makeSpare() // the next call tries again
	}
	return nil
}

// makeSpare makes the spare, or nothing where there is no space.
func (p place) makeSpare() error {
	err := writeNew(p.file(spareName), string(make([]byte, spareSize)))
	if err != nil {
		os.Remove(p.file(spareName))
	}
	return err
}

// spareSize holds the pages that releasing one attachment writes, several times over.
const spareSize = 64 << 10

// changed returns when an entry was last made or removed in a directory.
func changed(dir string) (int64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}

// releasing opens the network for a call that releases, and calls do. Without a state there
// is nothing to release. On a full disk it gives the spare space back, or that of the files that
// were taken over, and tries once more.
func (p place) releasing(do func(*state) error) error {
	for {
		s, err := p.open()
		if err == nil {
			err = errors.Join(s.retry(do(s)), s.close())
		}
		switch {
		case errors.Is(err, errNothing):
			return nil
		case !noSpace(err) || p.short || p.shared != nil:
			return err
		case os.Remove(p.file(spareName)) == nil:
		case p.exists(takenName):
			p.forgetTaken()
		default:
			return err
		}
		p.short = true
	}
}
