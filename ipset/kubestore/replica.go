package kubestore

import (
	"context"
	"fmt"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// replica is the state of the store in this process: all commits up to commit object seq.
type replica struct {
	mem   *store.Memory
	seq   uint64
	last  id // of commit object seq
	rev   uint64
	slots []slot
	size  int             // bytes of keys and values
	live  bool            // it is the store's: what does not continue it is of another past
	gone  context.Context // ends when another replica takes its place
	end   context.CancelFunc
}

// slot is what the replica knows of one log object.
type slot struct {
	uid     string
	version string // its resource version, on which the next write of it depends
	seq     uint64
	id      id
}

func newReplica(slots int) *replica {
	r := &replica{mem: store.NewMemory(), seq: uint64(slots) - 1, slots: make([]slot, slots)}
	r.gone, r.end = context.WithCancel(context.Background())
	return r
}

// slot returns the slot of a commit object.
func (r *replica) slot(seq uint64) *slot { return &r.slots[seq%uint64(len(r.slots))] }

// What a log object is to a replica.
type news int

const (
	known  news = iota // nothing later than the replica has
	next               // the next commits; they were applied
	beyond             // later ones; some between are missing
)

// apply takes a log object over. The error is ErrCorrupt or ipalloc.ErrReplaced, and the replica is then unchanged.
func (r *replica) apply(o *object, f *frame) (news, error) {
	at := r.slot(f.seq)
	switch {
	case f.seq > r.seq+1:
		return beyond, nil
	case f.seq <= r.seq && at.uid != "" && f.seq == at.seq && (f.id != at.id || o.Metadata.UID != at.uid):
		return known, replaced(o.Metadata.Name, "commit object %d is not the one that was read before", f.seq)
	case f.seq <= r.seq:
		if at.uid == "" || f.seq == at.seq { // labels may have changed, or how it is stored
			*at = slot{uid: o.Metadata.UID, version: o.Metadata.ResourceVersion, seq: f.seq, id: f.id}
		}
		return known, nil
	case at.uid != "" && at.uid != o.Metadata.UID:
		return known, replaced(o.Metadata.Name, "the object was deleted and created again")
	case r.live && f.prev != r.last:
		return known, replaced(o.Metadata.Name, "commit object %d follows another one than this process has seen", f.seq)
	case f.prev != r.last || f.rev != r.rev:
		return known, corrupt(o.Metadata.Name, "commit object %d at revision %d does not continue the one before it", f.seq, f.rev)
	}
	for _, ops := range f.commits {
		r.size += r.growth(ops)
		rev, err := r.mem.Commit(context.Background(), ops)
		if err != nil || rev != r.rev+1 {
			return known, corrupt(o.Metadata.Name, "revision %d after %d, %v", rev, r.rev, err)
		}
		r.rev = rev
	}
	r.seq, r.last = f.seq, f.id
	*at = slot{uid: o.Metadata.UID, version: o.Metadata.ResourceVersion, seq: f.seq, id: f.id}
	return next, nil
}

// growth returns by how much a commit changes the size.
func (r *replica) growth(ops []store.Op) (n int) {
	var recs []store.Record
	for i := range ops {
		op := &ops[i]
		if op.Kind == store.Guard {
			continue
		}
		recs, _ = r.mem.Get(context.Background(), recs[:0], op.Key) // fails for a context that has ended only
		if recs[0].Rev != 0 {
			n -= len(op.Key) + len(recs[0].Value)
		}
		if op.Kind == store.Put {
			n += len(op.Key) + len(op.Value)
		}
	}
	return n
}

// check returns the error of an object that is not of this store.
func (s *Store) check(o *object, role string) error {
	if o.Spec.Store != s.id || o.Spec.Role != role {
		return replaced(o.Metadata.Name, "the object is a %q of store %q, not a %q of %q", o.Spec.Role, o.Spec.Store, role, s.id)
	}
	return nil
}

// take applies a log object to the replica of the store.
func (s *Store) take(o *object) (news, error) {
	if err := s.check(o, roleLog); err != nil {
		return known, s.fail(err)
	}
	f, err := decodeFrame(o)
	if err != nil {
		return known, s.fail(err)
	}
	s.seen(o)
	s.mu.Lock()
	n, err := s.rep.apply(o, f)
	if err == nil && n == next {
		s.pace.note(f, time.Now())
	}
	s.mu.Unlock()
	return n, s.fail(err)
}

// listAfter is after how many commits that were read one by one the rest is listed.
const listAfter = 8

// sync brings the replica up to the newest commit there was when sync was called: it reads the slot of the next commit
// object until that still holds an old one. The read is linearizable, so there was no later commit then.
//
// Where the cluster may have been set back since the last answer, the newest commit that the replica has is read, too.
func (s *Store) sync(ctx context.Context) error {
	if err := s.assure(ctx); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := s.usable(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		seq := s.rep.seq + 1
		s.mu.Unlock()
		if i >= listAfter {
			if done, err := s.replay(ctx, s.take); done || err != nil {
				return err
			}
			if err := s.reload(ctx); err != nil {
				return err
			}
			continue
		}
		name := slotName(s.name, seq, s.slots)
		o, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		if k := uint64(s.slots); o.Spec.Seq%k != seq%k || o.Spec.Seq+k < seq {
			return s.fail(replaced(name, "the object holds commit object %d; %d or %d was expected", o.Spec.Seq, seq-k, seq))
		}
		switch n, err := s.take(o); {
		case err != nil:
			return err
		case n == known && o.Spec.Seq < seq:
			return nil
		case n == beyond:
			i = listAfter
		}
	}
}

// replay lists all log objects and calls take for those from the next one on, in order. done reports whether this reached
// the newest: false if the commits after those of the replica are overwritten already.
func (s *Store) replay(ctx context.Context, take func(*object) (news, error)) (done bool, err error) {
	var listed map[string]*object
	err = s.retry(ctx, func() error {
		listed = make(map[string]*object)
		return s.client.list(ctx, s.name, roleLog, false, func(o *object) error {
			listed[o.Metadata.Name] = o
			return s.check(o, roleLog)
		})
	})
	if err != nil {
		return false, s.fail(err)
	}
	found := make(map[uint64]*object)
	for i := range uint64(s.slots) {
		name := slotName(s.name, i, s.slots)
		o := listed[name]
		if o == nil {
			if o, err = s.relabel(ctx, name, roleLog); err != nil {
				return false, err
			}
		}
		found[o.Spec.Seq] = o
	}
	high := uint64(0)
	for seq := range found {
		high = max(high, seq)
	}
	for seq := high + 1 - min(high+1, uint64(s.slots)); seq <= high; seq++ {
		if o := found[seq]; o == nil {
			return false, s.fail(corrupt(s.name, "no log object holds commit object %d, but one holds %d", seq, high))
		} else if n, err := take(o); err != nil || n == beyond {
			return false, err
		}
	}
	return true, nil
}

// reload reads the snapshot and the log again.
func (s *Store) reload(ctx context.Context) error {
	for {
		head, err := s.readHead(ctx)
		if err != nil {
			return err
		}
		r, err := s.readSnapshot(ctx, head)
		if err != nil {
			return err
		}
		if r == nil {
			continue // another snapshot took its place
		}
		done, err := s.replay(ctx, func(o *object) (news, error) {
			f, err := decodeFrame(o)
			if err != nil {
				return known, s.fail(err)
			}
			s.seen(o)
			n, err := r.apply(o, f)
			return n, s.fail(err)
		})
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		return s.replace(r)
	}
}

// replace puts a replica that was read again in the place of the present one. Slots are never deleted, so that both have the
// same objects unless the store was restored.
func (s *Store) replace(r *replica) error {
	s.mu.Lock()
	old := s.rep
	if old != nil {
		early, late := old, r
		if r.rev < old.rev { // other commits came while r was read
			early, late = r, old
		}
		if err := early.continues(late); err != nil {
			s.mu.Unlock()
			return s.fail(err)
		}
	}
	for i := range r.slots {
		if old != nil && r.slots[i].uid != old.slots[i].uid {
			s.mu.Unlock()
			return s.fail(replaced(slotName(s.name, uint64(i), s.slots), "the object was deleted and created again"))
		}
	}
	defer s.mu.Unlock()
	if old == nil || r.seq > old.seq {
		s.rep, r.live = r, true
		if old != nil {
			old.end()
		}
	}
	return nil
}

// readHead reads the head and notes what it says.
func (s *Store) readHead(ctx context.Context) (head *object, err error) {
	if head, err = s.relabel(ctx, s.name, roleHead); err != nil {
		return nil, err
	}
	s.covered(head.Spec.Seq)
	return head, nil
}

// readSnapshot returns a replica with the snapshot that the head names; nil if that is deleted because of a newer one.
func (s *Store) readSnapshot(ctx context.Context, head *object) (*replica, error) {
	r := newReplica(s.slots)
	ref := head.Spec.Snapshot
	if ref == nil {
		return r, nil
	}
	var data []byte
	for i := range ref.Parts {
		name := partName(s.name, ref, i)
		o, err := s.get(ctx, name)
		if gone(err, name) {
			now, err := s.readHead(ctx)
			if err == nil && now.Spec.Snapshot != nil && *now.Spec.Snapshot == *ref {
				err = s.fail(replaced(name, "the object was deleted"))
			}
			return nil, err
		}
		if err == nil {
			err = s.fail(s.check(o, roleSnapshot))
		}
		if err != nil {
			return nil, err
		}
		data = append(data, o.Spec.Data...)
	}
	in, body := wire.Open(data, snapshotMagic, frameVersion), []byte(nil)
	r.code(in, &body)
	err := in.End()
	if err == nil {
		r.mem, err = store.RestoreMemory(body)
	}
	if err == nil && r.seq != head.Spec.Seq {
		err = fmt.Errorf("%w: it holds commit object %d, the head says %d", ipalloc.ErrCorrupt, r.seq, head.Spec.Seq)
	}
	if err == nil {
		var recs []store.Record
		recs, _, err = r.mem.List(ctx, store.Range{})
		for i := range recs {
			r.size += len(recs[i].Key) + len(recs[i].Value)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, s.fail(corrupt(s.name, "snapshot %d: %v", ref.Generation, err))
	}
	return r, nil
}
