package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// call is a Commit that waits for its outcome.
type call = combine.Call

// writes reports whether ops change anything.
func writes(ops []store.Op) bool {
	return slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind != store.Guard })
}

// Commit implements [store.Store]: one write of one object, which may carry several waiting commits. A commit that conflicts,
// or that has no puts and deletes, costs one read.
//
// If the answer to a request is lost, Commit sends the request again to settle its outcome; the API server carries it out at
// most once. The outcome stays unknown if that does not succeed within 15 seconds, or if ctx ends meanwhile.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, wrap("commit", err)
	}
	if err := store.CheckOps("kubestore", ops, s.Limits()); err != nil {
		return 0, err
	}
	c := combine.NewCall(ctx, "", ops)
	switch fate := s.queue.Do(c); {
	case fate == combine.Answered:
		return c.Rev, c.Err
	case fate == combine.Doubtful && writes(ops):
		return 0, unknown(ctx.Err())
	}
	return 0, wrap("commit", ctx.Err()) // it will not be sent, because its context has ended
}

// serve makes the commits of a batch: as many as fit one object.
func (s *Store) serve() {
	bytes, ops := 0, 0
	batch := s.queue.Take(func(c *call) bool {
		bytes, ops = bytes+c.Bytes, ops+len(c.Ops)
		return bytes <= maxBytes && ops <= maxOps
	})
	s.queue.Exit(batch...)
	s.makeAll(context.Background(), batch)
}

// makeAll makes the commits of a batch, in as many writes as their conflicts with each other and with other processes take.
// Each of its requests ends; how long the processes before this one take is not its limit.
func (s *Store) makeAll(ctx context.Context, batch []*call) {
	current := false // whether the replica was, since the calls began, up to date
	for lost := 0; len(batch) > 0; {
		if err := s.usable(ctx); err != nil {
			s.answerAll(batch, failure("commit", err))
			return
		}
		waited, err := s.turn(ctx)
		if err != nil {
			s.answerAll(batch, failure("commit", err))
			return
		}
		current = current || waited
		p := s.plan(batch)
		for i, c := range p.over {
			c.Answer(0, p.why[i])
		}
		batch = p.rest
		if len(p.made) > 0 {
			written, err := s.write(ctx, p)
			if err != nil {
				s.answerAll(p.made, err)
				s.answerAll(slices.Concat(p.read, p.conflict, p.deferred), notMade(err))
				return
			}
			if !written {
				current = true // write has caught up with the faster process
				lost++
				s.giveWay(ctx, p, lost)
				continue
			}
			lost = 0
		} else if !current && len(batch) > 0 {
			if err := s.sync(ctx); err != nil {
				s.answerAll(batch, failure("commit", err))
				return
			}
			current = true
			continue
		}
		current = true
		s.settle(p)
		batch = p.deferred
	}
}

// giveWay pauses after a lost attempt: for another process that has touched the slot, or, if that has won it, for a moment
// that is not the same for all who lost.
func (s *Store) giveWay(ctx context.Context, p *plan, lost int) {
	s.mu.Lock()
	touched, step := s.rep.seq < p.frame.seq, s.pace.step()
	s.mu.Unlock()
	if touched {
		step = yieldFor
	} else if lost%touchAfter == 0 {
		s.touch(ctx)
		return
	}
	_ = sleep(ctx, step/2)
}

func (s *Store) answerAll(batch []*call, err error) {
	for _, c := range batch {
		c.Answer(0, err)
	}
}

// plan is what one write makes of a batch.
type plan struct {
	frame    *frame
	old      slot    // what is in the slot to write
	made     []*call // their commits are in the frame
	read     []*call // they write nothing, and their expectations hold
	conflict []*call // with a record of the replica
	keys     []string
	deferred []*call // in conflict with one of made
	rest     []*call // all of these
	over     []*call // their contexts have ended, or there is no room for them
	why      []error // of each of over
}

// plan sorts the calls of a batch by what becomes of them on the replica as it is.
func (s *Store) plan(batch []*call) *plan {
	s.queue.Exit(batch...)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rep
	p := &plan{frame: &frame{seq: r.seq + 1, id: s.newFrameID(), prev: r.last, rev: r.rev}, old: *r.slot(r.seq + 1)}
	wrote := make(map[string]uint64) // the revisions that the frame gives
	size := r.size
	for _, c := range batch {
		if err := c.Ctx.Err(); err != nil {
			p.drop(c, wrap("commit", err))
			continue
		}
		key, in := r.conflict(c.Ops, wrote)
		if key == "" && writes(c.Ops) {
			if more := r.growth(c.Ops); more > 0 && size+more > s.room {
				p.drop(c, &ipalloc.Error{Package: "kubestore", Op: "commit", Err: ipalloc.ErrLimit,
					Reason: fmt.Sprintf("the records of the store would take %d bytes, at most %d", size+more, s.room)})
				continue
			} else {
				size += max(more, 0)
			}
		}
		p.rest = append(p.rest, c)
		switch {
		case in:
			p.deferred = append(p.deferred, c)
		case key != "":
			p.conflict, p.keys = append(p.conflict, c), append(p.keys, key)
		case !writes(c.Ops):
			p.read = append(p.read, c)
		case s.queue.Enter(c):
			p.add(c, wrote)
		}
	}
	return p
}

// drop ends a call that is not made.
func (p *plan) drop(c *call, err error) { p.over, p.why = append(p.over, c), append(p.why, err) }

// conflict returns the first key whose record has not the expected revision, and whether it is one that the frame gives.
func (r *replica) conflict(ops []store.Op, wrote map[string]uint64) (key string, in bool) {
	var recs []store.Record
	for i := range ops {
		op := &ops[i]
		if op.Expect == store.AnyRevision {
			continue
		}
		rev, in := wrote[op.Key]
		if !in {
			recs, _ = r.mem.Get(context.Background(), recs[:0], op.Key) // fails for a context that has ended only
			rev = recs[0].Rev
		}
		if rev != op.Expect {
			return op.Key, in
		}
	}
	return "", false
}

// add puts a commit into the frame.
func (p *plan) add(c *call, wrote map[string]uint64) {
	p.made = append(p.made, c)
	rev := p.frame.rev + uint64(len(p.made))
	var ops []store.Op
	for _, op := range c.Ops {
		switch op.Kind {
		case store.Guard:
			continue
		case store.Put:
			wrote[op.Key] = rev
		default:
			wrote[op.Key] = 0
		}
		ops = append(ops, op)
	}
	p.frame.commits = append(p.frame.commits, ops)
}

// settle answers all calls of a plan but the deferred, when its frame is written or there was nothing to write.
func (s *Store) settle(p *plan) {
	for i, c := range p.made {
		c.Answer(p.frame.rev+uint64(i)+1, nil)
	}
	for _, c := range p.read {
		c.Answer(p.frame.rev, nil)
	}
	for i, c := range p.conflict {
		c.Answer(0, store.Conflict("kubestore", p.keys[i]))
	}
}

// write writes the frame of a plan. written is false if another process wrote that commit object; the replica then has it.
// The error says whether the frame may be written still.
func (s *Store) write(ctx context.Context, p *plan) (written bool, err error) {
	if err := s.makeRoom(ctx, p.frame.seq); err != nil {
		return false, failure("commit", err)
	}
	o := s.object(slotName(s.name, p.frame.seq, s.slots), roleLog)
	o.Metadata.ResourceVersion = p.old.version
	o.Spec.Seq, o.Spec.Data = p.frame.seq, p.frame.encode()
	maybe := false // whether an earlier request may have been carried out
	until := time.Now().Add(patience)
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		var answer *object
		high, begin := s.high.Load(), time.Now()
		err := s.assure(ctx)
		for err == nil && s.lacksRoom(p.frame.seq) { // assure has found an older snapshot
			if err = s.makeRoom(ctx, p.frame.seq); err == nil {
				err = s.assure(ctx)
			}
		}
		if err == nil {
			answer, err = s.client.update(ctx, o)
			maybe = maybe || err != nil && !traceless(err)
		}
		switch {
		case err == nil:
			return true, s.wrote(ctx, answer, high, time.Since(begin))
		case is(err, http.StatusConflict), gone(err, o.Metadata.Name):
			return s.find(ctx, p, maybe)
		case transient(err) && time.Now().Before(until) && sleep(ctx, wait) == nil:
			if there, err := s.client.get(ctx, o.Metadata.Name); maybe && err == nil && there.Spec.Seq >= p.frame.seq {
				return s.find(ctx, p, maybe)
			}
			continue
		}
		if maybe {
			return false, unknown(err)
		}
		return false, failure("commit", err)
	}
}

// wrote takes over a log object that was written. high is the highest resource version that was seen before: a lower one is
// of an earlier state of the cluster. If the answer took long, the cluster may have been set back meanwhile.
func (s *Store) wrote(ctx context.Context, o *object, high uint64, took time.Duration) error {
	var err error
	if now := s.seen(o); now != 0 && now <= high {
		err = s.fail(replaced(o.Metadata.Name, "the cluster went back from version %d to %d", high, now))
	} else {
		err = s.assure(ctx)
	}
	if err == nil {
		_, err = s.take(o)
	}
	if err != nil {
		return unknown(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.wrote(took)
	if s.rep.seq-s.snapped >= uint64(s.slots)/2 {
		s.compact()
	}
	return nil
}

// find says whether the frame of a plan was written, after the API server refused it because its slot has changed.
func (s *Store) find(ctx context.Context, p *plan, maybe bool) (written bool, err error) {
	if err := s.sync(ctx); err != nil {
		if maybe {
			return false, unknown(err)
		}
		return false, failure("commit", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at := s.rep.slot(p.frame.seq); {
	case at.seq == p.frame.seq:
		return at.id == p.frame.id, nil
	case at.seq < p.frame.seq || !maybe:
		return false, nil // the object has changed in other ways
	}
	return false, unknown(errors.New("the log was written around before the answer came"))
}

// hasRoom reports whether the commits that commit object seq overwrites are in a snapshot. The caller holds the lock.
func (s *Store) hasRoom(seq uint64) bool { return seq-uint64(s.slots) <= s.snapped }

// lacksRoom is the opposite of hasRoom. It takes the lock.
func (s *Store) lacksRoom(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hasRoom(seq)
}

// makeRoom returns when the commits that commit object seq overwrites are in a snapshot.
func (s *Store) makeRoom(ctx context.Context, seq uint64) error {
	for failed := error(nil); ; {
		s.mu.Lock()
		if room := s.hasRoom(seq); room || failed != nil {
			s.mu.Unlock()
			if room { // also if an older snapshot could not be removed
				failed = nil
			}
			return failed
		}
		c := s.compact()
		s.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		failed = c.err
	}
}
