package kubestore

// How a store notices that it is not the one it was: an object that is gone, and a cluster whose etcd was set back to older
// data, after which other processes made other commits. The write of a commit object depends on the object before it in its
// slot, which both pasts can have in common.

import (
	"context"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// get reads an object. That it is not there counts only if the API server says so twice.
func (s *Store) get(ctx context.Context, name string) (o *object, err error) {
	for range 2 {
		err = s.retry(ctx, func() (err error) {
			o, err = s.client.get(ctx, name)
			return err
		})
		if !gone(err, name) {
			break
		}
	}
	return o, err
}

// read reads the head or a log object, without which there is no store.
func (s *Store) read(ctx context.Context, name string) (*object, error) {
	o, err := s.get(ctx, name)
	if gone(err, name) {
		return nil, s.fail(replaced(name, "the object was deleted"))
	}
	return o, err
}

// relabel reads an object that a list or a watch does not show any more, and gives it back its labels.
func (s *Store) relabel(ctx context.Context, name, role string) (*object, error) {
	o, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.check(o, role); err != nil {
		return nil, s.fail(err)
	}
	if o.Metadata.Labels[nameLabel] == s.name && o.Metadata.Labels[roleLabel] == role {
		return o, nil
	}
	o.Metadata.Labels = s.object(name, role).Metadata.Labels
	if now, err := s.client.update(ctx, o); err == nil {
		o = now // after an error the next write of the object brings the labels
	}
	return o, nil
}

// assure verifies the past if the cluster may have been set back since the last answer.
func (s *Store) assure(ctx context.Context) error {
	if s.client.calm() {
		return nil
	}
	return s.verify(ctx)
}

// verify reads the newest commit object that the replica has. If another one is in its place, or an older one, the cluster
// was set back. If the log went round, sync reads a snapshot, which is compared with the replica. If the cluster was set back
// without the loss of a commit, it may lack the last snapshot: verify notes what the head says now. The commit object is read last,
// because a write follows, and each read is repeated while the cluster does not answer.
func (s *Store) verify(ctx context.Context) error {
	begin := time.Now()
	if _, err := s.readHead(ctx); err != nil { // it may name an older snapshot than before, which holds less
		return err
	}
	s.mu.Lock()
	seq, last := s.rep.seq, s.rep.last
	s.mu.Unlock()
	o, err := s.read(ctx, slotName(s.name, seq, s.slots))
	if err != nil {
		return err
	}
	if err := s.check(o, roleLog); err != nil {
		return s.fail(err)
	}
	f, err := decodeFrame(o)
	if err != nil {
		return s.fail(err)
	}
	if f.seq < seq || f.seq == seq && f.id != last {
		return s.fail(replaced(o.Metadata.Name, "the cluster was set back: commit object %d is not the one that this process has seen", seq))
	}
	if time.Since(begin) < s.client.quiet {
		s.client.settle()
	}
	return nil
}

// continues returns an error if a replica that was read again cannot have come from r. It has what both have: a record of a
// revision that r has seen is in r, too, and the same.
func (r *replica) continues(later *replica) error {
	recs, _, err := later.mem.List(context.Background(), store.Range{})
	if err != nil {
		return err
	}
	var old []store.Record
	for _, rec := range recs {
		if rec.Rev > r.rev {
			continue
		}
		if old, err = r.mem.Get(context.Background(), old[:0], rec.Key); err != nil {
			return err
		}
		if old[0] != rec {
			return replaced(rec.Key, "the cluster was set back: the record has another content at revision %d than this process has seen", rec.Rev)
		}
	}
	return nil
}
