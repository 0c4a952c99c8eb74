package kubestore

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// call is a Commit that waits for its outcome.
type call struct {
	ctx    context.Context
	ops    []store.Op
	bytes  int
	writes bool
	sent   bool // it may be in a request; guarded by Store.mu
	rev    uint64
	err    error
	done   chan struct{}
}

// Commit implements [store.Store]: one write of one object, which makes other calls that wait meanwhile, too. A commit in
// conflict, and one without puts and deletes, costs one read.
//
// A request whose answer is lost is sent again, which settles its outcome: the API server takes it once at most. The outcome
// stays unknown if that does not succeed within 15 seconds, or if ctx ends meanwhile.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, wrap("commit", err)
	}
	if err := store.CheckOps("kubestore", ops, s.Limits()); err != nil {
		return 0, err
	}
	c := &call{ctx: ctx, ops: slices.Clone(ops), done: make(chan struct{})}
	for i := range ops {
		c.bytes += len(ops[i].Key) + len(ops[i].Value)
		c.writes = c.writes || ops[i].Kind != store.Guard
	}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	if !s.leading {
		s.leading = true
		go s.lead()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.rev, c.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.done:
		return c.rev, c.err
	default:
	}
	if c.sent && c.writes {
		return 0, unknown(ctx.Err())
	}
	return 0, wrap("commit", ctx.Err()) // it will not be sent, because its context has ended
}

// lead makes the commits that wait until none does.
func (s *Store) lead() {
	for {
		s.mu.Lock()
		batch := s.batch()
		s.leading = len(batch) > 0
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		s.makeAll(ctx, batch)
		cancel()
	}
}

// batch takes calls off the queue, as many as fit one object. The caller holds the lock.
func (s *Store) batch() []*call {
	bytes, ops, n := 0, 0, 0
	for _, c := range s.queue {
		bytes, ops = bytes+c.bytes, ops+len(c.ops)
		if n > 0 && (bytes > maxBytes || ops > maxOps) {
			break
		}
		n++
	}
	batch := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return batch
}

// answer gives a call its outcome.
func (s *Store) answer(c *call, rev uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.rev, c.err = rev, err
	close(c.done)
}

// makeAll makes the commits of a batch, in as many writes as their conflicts with each other and with other processes take.
func (s *Store) makeAll(ctx context.Context, batch []*call) {
	current := false // whether the replica was, since the calls began, up to date
	for wait := firstWait; len(batch) > 0; {
		if err := s.usable(ctx); err != nil {
			s.answerAll(batch, failure("commit", err))
			return
		}
		p := s.plan(batch)
		for _, c := range p.over {
			s.answer(c, 0, wrap("commit", c.ctx.Err()))
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
				current = true // write has caught up with whoever was faster
				_ = sleep(ctx, wait)
				wait = min(2*wait, lastWait/4)
				continue
			}
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

func (s *Store) answerAll(batch []*call, err error) {
	for _, c := range batch {
		s.answer(c, 0, err)
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
	over     []*call // their contexts have ended
}

// plan sorts the calls of a batch by what becomes of them on the replica as it is.
func (s *Store) plan(batch []*call) *plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rep
	p := &plan{frame: &frame{seq: r.seq + 1, id: newID(), prev: r.last, rev: r.rev}, old: *r.slot(r.seq + 1)}
	wrote := make(map[string]uint64) // the revisions that the frame gives
	var recs []store.Record
	for _, c := range batch {
		if c.sent = false; c.ctx.Err() != nil {
			p.over = append(p.over, c)
			continue
		}
		p.rest = append(p.rest, c)
		key, in := "", ""
		for i := range c.ops {
			op := &c.ops[i]
			if op.Expect == store.AnyRevision {
				continue
			}
			rev, ok := wrote[op.Key]
			if !ok {
				recs, _ = r.mem.Get(context.Background(), recs[:0], op.Key) // fails for a context that has ended only
				rev = recs[0].Rev
			}
			if rev == op.Expect {
				continue
			}
			if key = op.Key; ok {
				in = key
			}
			break
		}
		switch {
		case in != "":
			p.deferred = append(p.deferred, c)
		case key != "":
			p.conflict, p.keys = append(p.conflict, c), append(p.keys, key)
		case !c.writes:
			p.read = append(p.read, c)
		default:
			p.add(c, wrote)
		}
	}
	return p
}

// add puts a commit into the frame.
func (p *plan) add(c *call, wrote map[string]uint64) {
	c.sent = true
	p.made = append(p.made, c)
	rev := p.frame.rev + uint64(len(p.made))
	var ops []store.Op
	for _, op := range c.ops {
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
		s.answer(c, p.frame.rev+uint64(i)+1, nil)
	}
	for _, c := range p.read {
		s.answer(c, p.frame.rev, nil)
	}
	for i, c := range p.conflict {
		s.answer(c, 0, store.Conflict("kubestore", p.keys[i]))
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
		high := s.high.Load()
		answer, err := s.client.update(ctx, o)
		maybe = maybe || err != nil && !traceless(err)
		switch {
		case err == nil:
			return true, s.wrote(answer, high)
		case is(err, http.StatusConflict), is(err, http.StatusNotFound):
			return s.find(ctx, p, maybe)
		case transient(err) && time.Now().Before(until) && sleep(ctx, wait) == nil:
			if maybe && s.look(ctx, o.Metadata.Name) >= p.frame.seq {
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
// of an earlier state of the cluster, as after its etcd was restored under a running process.
func (s *Store) wrote(o *object, high uint64) error {
	var err error
	if now := s.seen(o); now != 0 && now <= high {
		err = s.fail(replaced(o.Metadata.Name, "the cluster went back from version %d to %d", high, now))
	} else {
		_, err = s.take(o)
	}
	if err != nil {
		return unknown(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rep.seq-s.snapped >= uint64(s.slots)/2 && !s.snapping {
		s.snapping = true
		go s.compact()
	}
	return nil
}

// look reads a log object once and returns which commit object it holds; 0 if that fails.
func (s *Store) look(ctx context.Context, name string) uint64 {
	o, err := s.client.get(ctx, name)
	if err != nil {
		return 0
	}
	return o.Spec.Seq
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

// makeRoom returns when the commits that commit object seq overwrites are in a snapshot.
func (s *Store) makeRoom(ctx context.Context, seq uint64) error {
	for {
		s.mu.Lock()
		enough := seq-uint64(s.slots) <= s.snapped
		s.mu.Unlock()
		if enough {
			return nil
		}
		if err := s.snapshot(ctx); err != nil {
			return err
		}
	}
}
