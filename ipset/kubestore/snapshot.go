package kubestore

import (
	"context"
	"net/http"

	"github.com/ipalloc/ipalloc/internal/snap"
)

// partSize is how much of a snapshot one object holds.
const partSize = 768 << 10

// covered notes that a snapshot holds everything up to a commit object.
func (s *Store) covered(seq uint64) {
	s.mu.Lock()
	s.snapped = max(s.snapped, seq)
	s.mu.Unlock()
}

// compact writes a snapshot in the background. If it fails, a later commit does it.
func (s *Store) compact() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	_ = s.snapshot(ctx)
	s.mu.Lock()
	s.snapping = false
	s.mu.Unlock()
}

// snapshot writes the replica into objects, names them in the head, and deletes those of earlier snapshots. It does nothing if
// another process has done that since half of the log was written.
//
// The parts have names that no other process writes. Naming them in the head is a compare-and-swap; the generation in it rises
// by one. So parts of a generation that the head has reached, and that it does not name, are of no use to any process.
func (s *Store) snapshot(ctx context.Context) error {
	head, err := s.readHead(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	r := s.rep
	fresh := r.seq-min(r.seq, head.Spec.Seq) < uint64(s.slots)/2
	seq := r.seq
	var data []byte
	if !fresh {
		data = r.encode()
	}
	s.mu.Unlock()
	if fresh {
		return nil
	}
	ref := &snapshot{Generation: 1, ID: newID().String(), Parts: (len(data) + partSize - 1) / partSize}
	if old := head.Spec.Snapshot; old != nil {
		ref.Generation = old.Generation + 1
	}
	for i := range ref.Parts {
		o := s.object(partName(s.name, ref, i), roleSnapshot)
		o.Spec.Seq, o.Spec.Data = seq, data[i*partSize:min((i+1)*partSize, len(data))]
		err := s.retry(ctx, func() error {
			_, err := s.client.create(ctx, o)
			if is(err, http.StatusConflict) {
				return nil // an earlier request did
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	head.Spec.Seq, head.Spec.Snapshot = seq, ref
	err = s.retry(ctx, func() error {
		_, err := s.client.update(ctx, head)
		return err
	})
	if err != nil && !is(err, http.StatusConflict) {
		return err
	}
	if head, err = s.readHead(ctx); err != nil { // in conflict, it may be ours all the same
		return err
	}
	return s.sweep(ctx, head)
}

// encode returns the replica as the parts of a snapshot hold it.
func (r *replica) encode() []byte {
	w := snap.NewWriter(nil, snapshotMagic, frameVersion)
	w.Uvarint(r.seq)
	w.Bytes(r.last[:])
	w.Uvarint(r.rev)
	w.Marshal(r.mem)
	data, _ := w.Finish() // Memory's part has no error
	return data
}

// sweep deletes the parts of snapshots that are of no use.
func (s *Store) sweep(ctx context.Context, head *object) error {
	now := head.Spec.Snapshot
	if now == nil {
		return nil
	}
	var names []string
	err := s.retry(ctx, func() error {
		names = nil
		return s.client.list(ctx, s.name, roleSnapshot, true, func(o *object) error {
			if p, ok := parsePart(s.name, o.Metadata.Name); ok && p.Generation <= now.Generation && p.ID != now.ID {
				names = append(names, o.Metadata.Name)
			}
			return nil
		})
	})
	for _, name := range names {
		if err == nil {
			err = s.retry(ctx, func() error { return s.client.delete(ctx, name) })
		}
		if is(err, http.StatusNotFound) {
			err = nil
		}
	}
	return err
}
