package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The directory of a network that nodes share has a mark, which names the store. While it is
// there, a configuration without that store is refused: an empty state of the node's own, or
// host-local, would give out what other nodes hold. The mark is a symbolic link to nowhere,
// which has no content that a crash of the machine could lose.

const sharedName = "ipalloc.shared"

// sharedScheme is how the text of a mark begins.
const sharedScheme = "etcd://"

// turn is how long a call of a shared network waits for the one before it. Calls of one node
// that run one after the other don't compete for the records. A call that waits for etcd must
// not stop the others, so the rest go on without the lock: leave excludes them in the store.
const turn = time.Second

// mark returns the text of the mark: the store, and the space in it.
func (s *shared) mark() string {
	return sharedScheme + strings.Join(s.remote.Endpoints, ",") + s.remote.Prefix + " " + s.space
}

// records returns the part of a mark that says which records hold the network. The members
// of a cluster may change.
func records(mark string) string {
	_, at, _ := strings.Cut(strings.TrimPrefix(mark, sharedScheme), "/")
	return at
}

// readMark returns the text of the mark, empty if the network is not shared.
func (p place) readMark() (text string, err error) {
	if text, err = os.Readlink(p.file(sharedName)); missing(err) {
		return "", nil
	}
	return text, err
}

// sharedIn is readMark for a caller that refuses a network whose mark cannot be read.
func (p place) sharedIn() string {
	text, err := p.readMark()
	if err != nil {
		return "a store"
	}
	return text
}

// mustBeLocal refuses a shared network where the configuration names no store.
func (p place) mustBeLocal() error {
	if at := p.sharedIn(); at != "" && p.shared == nil {
		return badConf("network %s is shared, and its addresses are in %s: name that store in ipam.store, or by -conf FILE", p.network, at)
	}
	return nil
}

// openShared connects, and takes over what the node has in files, of host-local or of this
// plugin. No lock is held while the store does not answer.
func (s *state) openShared() error {
	if openRemote == nil {
		return badConf("ipam.store needs the command %s", helperName)
	}
	s.ctx, s.cancel = context.WithTimeout(s.ctx, lockWait)
	session, err := openRemote(s.ctx, s.shared.remote)
	if err != nil {
		return err
	}
	s.session = session
	// Nodes compete for the same records: the time limit ends a call, not the number of attempts.
	s.engine, err = hostlocal.New(session.Store, hostlocal.Config{
		Network: s.shared.space, Scope: s.scope(), Sets: s.sets, Attempts: 1 << 20,
	})
	if err != nil {
		return err
	}
	if s.joined() && !s.export {
		s.lock, err = lockFile(s.file(lockName), false, true, turn)
		if errors.Is(err, errBusy) {
			err = nil
		}
		return err
	}
	if s.lock, err = lockFile(s.file(lockName), false, true, lockWait); err != nil {
		return err
	}
	if s.export && s.sharedIn() == "" { // left already, but for the guard perhaps
		if !s.guarded() || s.exists(stateName) {
			return errNothing
		}
		return nil
	}
	return s.join()
}

// joined reports whether nothing in the directory is left to do.
func (s *state) joined() bool {
	if !s.guarded() || s.sharedIn() != s.shared.mark() || s.exists(guardName+".new") || s.exists(stateName) {
		return false
	}
	l, err := readLegacy(s.dir)
	return err == nil && len(l.files)+len(l.empty) == 0
}

// join marks the directory, and moves what the node holds in files into the store. If it is
// interrupted, the next call continues.
func (s *state) join() error {
	has, mark := s.sharedIn(), s.shared.mark()
	if has != "" && records(has) != records(mark) {
		return badConf("network %s is shared, and its addresses are in %s, not in %s: see \"cni-ipam export -conf FILE\"", s.network, has, mark)
	}
	if _, err := s.guard(); err != nil {
		return err
	}
	if !s.export {
		if err := s.engine.OpenScope(s.ctx); err != nil {
			return err
		}
	}
	if has != mark {
		if err := s.remove(sharedName); err != nil {
			return err
		}
		if err := os.Symlink(mark, s.file(sharedName)); err != nil {
			return err
		}
	}
	l, err := readLegacy(s.dir)
	if err == nil {
		err = s.importFiles(l)
	}
	if err == nil && s.exists(stateName) {
		err = s.moveLocal()
	}
	return err
}

// remove removes a file of the network that may be gone already.
func (p place) remove(name string) error {
	if err := os.Remove(p.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// moveLocal imports the state file of a network that was not shared before.
func (s *state) moveLocal() error {
	db, err := s.openStore()
	if err != nil {
		return err
	}
	defer db.Close()
	local, err := hostlocal.New(db, hostlocal.Config{Network: s.network})
	if err != nil {
		return err
	}
	all, err := local.Export(s.ctx)
	if err != nil {
		return err
	}
	left, err := s.engine.Import(s.ctx, s.inSpace(all))
	if err != nil {
		return err
	}
	for _, e := range left {
		logf("network %s: the address was given in two places: %v", s.network, e)
	}
	logf("network %s: moved %d attachments of this node into the shared store", s.network, len(all.Holdings))
	return os.Rename(s.file(stateName), s.file(stateName+".moved"))
}

// leave ends the sharing on this node, which must hold nothing in the store: its addresses
// stay taken there, and a state of the node's own would not know of them. The commit that finds
// nothing held closes the node's scope, so that a call without the lock adds nothing later.
func (s *state) leave() error {
	all, err := s.engine.Export(s.ctx)
	if err != nil {
		return err
	}
	if held := s.heldHere(all); held > 0 {
		return fmt.Errorf("this node holds %d attachments in %s: move its pods to other nodes first", held, s.shared.mark())
	}
	if err := s.engine.CloseScope(s.ctx); err != nil {
		return err
	}
	if err := s.remove(sharedName); err != nil {
		return err
	}
	s.forgetTaken() // host-local looks for a container in every directory below
	return s.unguard()
}

// heldHere counts the attachments of this node's network.
func (p place) heldHere(all hostlocal.State) (n int) {
	for _, h := range all.Holdings {
		if h.Scope == p.scope() {
			n++
		}
	}
	return n
}

// In a space that several networks share, the interface of an attachment is recorded with its
// network behind a slash, which no interface has in its name.

// inNetwork returns the attachment as it is recorded.
func (p place) inNetwork(a hostlocal.Attachment) hostlocal.Attachment {
	if p.shared != nil && p.shared.space != p.network && a.Interface != "" {
		a.Interface += "/" + p.network
	}
	return a
}

// inSpace returns what a network of this node held, as it is recorded in the space.
func (p place) inSpace(s hostlocal.State) hostlocal.State {
	held := make([]hostlocal.Holding, len(s.Holdings))
	for i, h := range s.Holdings {
		h.Attachment = p.inNetwork(h.Attachment)
		held[i] = h
	}
	return hostlocal.State{Holdings: held, Cursors: s.Cursors}
}

// retry gives an error of the shared store that passes the code for it.
func (s *state) retry(err error) error {
	if err == nil || s.shared == nil || !store.Retryable(err) {
		return err
	}
	return types.NewError(types.ErrTryAgainLater, err.Error(), "")
}
