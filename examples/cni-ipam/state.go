package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The files of a network, in the directory where host-local has its own.
const (
	lockName     = "lock"             // host-local's, so that the two never work at once
	stateName    = "ipalloc.db"       // all that is known
	bootName     = "ipalloc.boot"     // the boot in which the state was last opened
	exportedName = "ipalloc.exported" // written back for host-local: hands off
)

// errBusy is that another call of the same network did not end in time.
var errBusy = errors.New("the network's lock is taken")

// errExported is that host-local has the state again.
var errExported = errors.New("the state was written back for host-local")

// lockWait is how long to wait for it.
const lockWait = 2 * time.Minute

// place is where a network's state is and how it is to be opened.
type place struct {
	dir     string
	network string
	sets    []hostlocal.RangeSet
	boot    string
	leases  bool
	afresh  bool
	verify  bool // read the whole file, whatever has happened
}

// state is an open network.
type state struct {
	place
	exporting bool // go on with an export: make no state, take nothing over
	lock      *os.File
	store     *boltstore.Store
	engine    *hostlocal.Engine
}

// openState opens the network of a configuration.
func openState(c *netConf, sets []hostlocal.RangeSet) (*state, error) {
	boot, err := readBootID(c.IPAM.BootIDFile)
	if err != nil && c.IPAM.RebootLeases {
		return nil, err
	}
	return place{
		dir: c.dir(), network: c.Name, sets: sets, boot: boot, leases: c.IPAM.RebootLeases, afresh: c.IPAM.StartAfresh,
	}.open()
}

func readBootID(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// open takes the lock of a network, opens its state, which is made if there is none, and imports what host-local left in
// the directory.
func (p place) open() (*state, error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	s := &state{place: p}
	if err := s.openLocked(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *state) openLocked() (err error) {
	if s.lock, err = takeLock(filepath.Join(s.dir, lockName), lockWait); err != nil {
		return err
	}
	if _, err := os.Lstat(s.file(exportedName)); err == nil && !s.exporting {
		return fmt.Errorf("%w: cni-ipam import takes it over again (%s)", errExported, s.file(exportedName))
	}
	if s.store, err = s.openStore(); err != nil {
		return err
	}
	s.engine, err = hostlocal.New(s.store, hostlocal.Config{Network: s.network, Sets: s.sets, Boot: s.boot, Leases: s.leases})
	if err != nil {
		return err
	}
	if s.exporting {
		return nil
	}
	return s.settle()
}

func (s *state) file(name string) string { return filepath.Join(s.dir, name) }

// openStore opens the state file. One that is damaged is refused, unless the machine was started since it was last opened,
// nothing that it tells of can be alive, and the configuration says to go on without it.
func (s *state) openStore() (*boltstore.Store, error) {
	path := s.file(stateName)
	// The lock is ours, so nobody has the file but a tool that reads it. Nothing is synced: what a process wrote outlives it,
	// and after the death of the machine the file is verified.
	opts := boltstore.Options{NoSync: true, Verify: boltstore.VerifyRestart, LockWait: lockWait, NoCreate: s.exporting}
	if s.verify {
		opts.Verify = boltstore.VerifyAlways
	}
	db, err := boltstore.Open(context.Background(), path, opts)
	if !errors.Is(err, ipalloc.ErrCorrupt) && !errors.Is(err, boltstore.ErrForeign) {
		return db, err
	}
	last, bootErr := readBootID(s.file(bootName))
	switch {
	case !s.afresh:
		return nil, fmt.Errorf("%w (ipam.startAfresh lets the node go on without it after a reboot)", err)
	case bootErr != nil || s.boot == "" || last == "" || last == s.boot:
		return nil, fmt.Errorf("%w (not started afresh: the machine has not been started since)", err)
	}
	aside := fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Rename(path, aside); err != nil {
		return nil, err
	}
	logf("ERROR: the state of network %s is lost and set aside as %s: %v", s.network, aside, err)
	return boltstore.Open(context.Background(), path, opts)
}

// close gives the network back.
func (s *state) close() (err error) {
	if s.store != nil {
		err = s.store.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close()) // that gives the lock back
	}
	s.store, s.lock = nil, nil
	return err
}

// note is what the program itself keeps in the state: when the directory was last changed at the time it was last looked
// through, and the boot that is written down beside the state.
type note struct {
	changed int64
	// settled says that some time had passed then. Without, a change in the same tick of the clock could be overlooked.
	settled bool
	boot    string
}

const noteKey = "cni-ipam"

// settleTime is longer than any file system takes for one time for another.
const settleTime = 2 * time.Second

func (n note) encode() string {
	b := binary.BigEndian.AppendUint64([]byte{1, 0}, uint64(n.changed))
	if n.settled {
		b[1] = 1
	}
	return string(append(b, n.boot...))
}

func decodeNote(s string) (n note) {
	if len(s) < 10 || s[0] != 1 {
		return note{} // as if nothing had been looked at
	}
	return note{int64(binary.BigEndian.Uint64([]byte(s[2:]))), s[1] == 1, s[10:]}
}

// settle imports what lies in the directory and is not known, if the directory has changed since that was last done: on first
// use, when host-local ran in between, and when a call of host-local that had begun before the first use ended after it.
func (s *state) settle() error {
	ctx := context.Background()
	recs, err := s.store.Get(ctx, nil, noteKey)
	if err != nil {
		return err
	}
	was := decodeNote(recs[0].Value)
	now := note{boot: s.boot}
	if was.boot != s.boot {
		s.writeBoot()
	}
	if now.changed, err = changed(s.dir); err != nil {
		return err
	}
	if was.settled && was.changed == now.changed && was.boot == s.boot {
		return nil
	}
	if !was.settled || was.changed != now.changed {
		if err := s.importFiles(); err != nil {
			return err
		}
		if now.changed, err = changed(s.dir); err != nil {
			return err
		}
	}
	age := time.Since(time.Unix(0, now.changed))
	now.settled = age.Abs() > settleTime
	if now == was {
		return nil
	}
	_, err = s.store.Commit(ctx, []store.Op{{Kind: store.Put, Key: noteKey, Value: now.encode(), Expect: recs[0].Rev}})
	return err
}

// changed returns when an entry was last made or removed in a directory.
func changed(dir string) (int64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}

// writeBoot writes down the boot in which the state is open. If it cannot, there must be none at all: an old one would say
// that nothing is alive.
func (s *state) writeBoot() {
	err := os.WriteFile(s.file(bootName), []byte(s.boot+"\n"), 0o600)
	if err == nil {
		return
	}
	if gone := os.Remove(s.file(bootName)); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	logf("the boot could not be written down: %v", err)
}
