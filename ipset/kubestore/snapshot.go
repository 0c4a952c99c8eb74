package kubestore

import (
	"context"
	"net/http"

	"github.com/ipalloc/ipalloc/internal/wire"
)

// partSize is how much of a snapshot one object holds.
const partSize = 768 << 10

// covered notes that the snapshot of the head holds everything up to a commit object. A head that was set back holds less than before.
func (s *Store) covered(seq uint64) {
	s.mu.Lock()
	s.snapped = seq
	s.mu.Unlock()
}

// compaction is the writing of a snapshot that calls can wait for.
type compaction struct {
	done chan struct{}
	err  error
}

// compact returns the running compaction, or begins one. It ends when a request fails for as long as requests are repeated;
// as long as parts get there it takes the time that it takes. The caller holds the lock.
func (s *Store) compact() *compaction {
	if s.compacting == nil {
		c := &compaction{done: make(chan struct{})}
		s.compacting = c
		go func() {
			c.err = s.snapshot(context.Background())
			s.mu.Lock()
			s.compacting = nil
			s.mu.Unlock()
			close(c.done)
		}()
	}
	return s.compacting
}

// draft is a snapshot that is being written. It outlives a compaction that failed: the next one goes on where it stopped.
type draft struct {
	ref  *snapshot
	seq  uint64
	data []byte
	done int // parts that are there
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
	d := s.draw(head)
	if d == nil {
		return nil
	}
	for ; d.done < d.ref.Parts; d.done++ {
		if err := s.writePart(ctx, d, d.done); err != nil {
			return err
		}
	}
	if err := s.fillUp(ctx, d); err != nil {
		return err
	}
	head.Spec.Seq, head.Spec.Snapshot = d.seq, d.ref
	err = s.retry(ctx, func() error {
		err := s.verify(ctx) // a snapshot of a past that is not the cluster's would replace what others did
		if err == nil {
			_, err = s.client.update(ctx, head)
		}
		return err
	})
	if err != nil && !is(err, http.StatusConflict) {
		return err
	}
	if err == nil {
		if err := s.fillUp(ctx, d); err != nil {
			return err
		}
	}
	s.draft = nil
	if head, err = s.readHead(ctx); err != nil { // in conflict, it may be ours all the same
		return err
	}
	return s.sweep(ctx, head)
}

// writePart writes a part of a draft.
func (s *Store) writePart(ctx context.Context, d *draft, i int) error {
	o := s.object(partName(s.name, d.ref, i), roleSnapshot)
	o.Spec.Seq, o.Spec.Data = d.seq, d.data[i*partSize:min((i+1)*partSize, len(d.data))]
	return s.retry(ctx, func() error {
		_, err := s.client.create(ctx, o)
		if exists(err) {
			return nil // an earlier request did
		}
		return err
	})
}

// fillUp writes the parts of a draft that are missing because the cluster was set back since they were written.
func (s *Store) fillUp(ctx context.Context, d *draft) error {
	have, err := s.parts(ctx)
	for i := range d.ref.Parts {
		if _, ok := have[partName(s.name, d.ref, i)]; !ok && err == nil {
			err = s.writePart(ctx, d, i)
		}
	}
	return err
}

// parts returns the parts of all snapshots, by their names.
func (s *Store) parts(ctx context.Context) (have map[string]snapshot, err error) {
	err = s.retry(ctx, func() error {
		have = make(map[string]snapshot)
		return s.client.list(ctx, s.name, roleSnapshot, true, func(o *object) error {
			if p, ok := parsePart(s.name, o.Metadata.Name); ok {
				have[o.Metadata.Name] = p
			}
			return nil
		})
	})
	return have, err
}

// draw returns the snapshot to write, or to go on with; nil if that of the head is new enough.
func (s *Store) draw(head *object) *draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rep
	generation := uint64(1)
	if old := head.Spec.Snapshot; old != nil {
		generation = old.Generation + 1
	}
	switch {
	case r.seq-min(r.seq, head.Spec.Seq) < uint64(s.slots)/2:
		s.draft = nil
	case s.draft == nil || s.draft.ref.Generation != generation:
		data := r.encode()
		s.draft = &draft{seq: r.seq, data: data, ref: &snapshot{Generation: generation, ID: newID().String(), Parts: (len(data) + partSize - 1) / partSize}}
	}
	return s.draft
}

// encode returns the replica as the parts of a snapshot hold it.
func (r *replica) encode() []byte {
	w := wire.Frame(nil, snapshotMagic, frameVersion)
	body, _ := r.mem.MarshalBinary() // has no error
	r.code(w, &body)
	data, _ := w.Finish()
	return data
}

// code codes what a snapshot says beside the records, and these.
func (r *replica) code(c *wire.Coder, body *[]byte) {
	wire.Uint(c, &r.seq)
	r.last.code(c)
	wire.Uint(c, &r.rev)
	wire.Blob(c, body)
}

// sweep deletes the parts of snapshots that are of no use.
func (s *Store) sweep(ctx context.Context, head *object) error {
	now := head.Spec.Snapshot
	if now == nil {
		return nil
	}
	have, err := s.parts(ctx)
	for name, p := range have {
		if p.Generation > now.Generation || p.ID == now.ID {
			continue
		}
		if err == nil {
			err = s.retry(ctx, func() error {
				err := s.assure(ctx) // the head of a cluster that was set back may name the part
				if err == nil {
					err = s.client.delete(ctx, name)
				}
				return err
			})
		}
		if gone(err, name) {
			err = nil
		}
	}
	return err
}
