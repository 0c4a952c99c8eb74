package kubestore

// How processes that contend for the log take turns. Each commit object is won by one process, and who won it could write the
// next one sooner than any other has heard of that. So a process lets those go first whose last commit is older than its own,
// for as long as they are known to write.
//
// A process that nobody knows of yet, because it has won nothing, is heard by a touch: it writes a later slot as it is. Whoever
// comes to that slot finds another resource version than expected, and pauses.

import (
	"context"
	"time"
)

const (
	rivalFor   = time.Second            // for how long a process counts as one that writes, at least
	leastPace  = time.Millisecond       // the time of a write, as a process measures it, is taken
	mostPace   = 250 * time.Millisecond // for no less and no more than these
	waitFor    = 8                      // how many times that, for each process before it, one waits while nobody writes
	touchAfter = 2                      // how many lost attempts make a process touch a slot,
	touchAhead = 8                      // and how far beyond the newest it is
	yieldFor   = 100 * time.Millisecond // the pause for who has touched a slot
)

// pace knows who writes. Guarded by Store.mu.
type pace struct {
	self   author
	mine   uint64 // the last commit object of this process
	others map[author]rival
	took   time.Duration // a write, on average
}

// rival is another process: its last commit object, and when that was seen.
type rival struct {
	seq uint64
	at  time.Time
}

// note notes whose a commit object is.
func (p *pace) note(f *frame, now time.Time) {
	if a := f.id.author(); a == p.self {
		p.mine = f.seq
	} else {
		p.others[a] = rival{f.seq, now}
	}
}

// wrote notes how long a write took.
func (p *pace) wrote(took time.Duration) {
	if p.took == 0 {
		p.took = took
	}
	p.took = (7*p.took + took) / 8
}

// step returns for how long one waits for one process.
func (p *pace) step() time.Duration { return min(max(p.took, leastPace), mostPace) }

// before returns how many processes that write have waited for longer, at commit object seq. A process that has been silent
// while each of the others wrote twice, or could have waited for all of them, does not write any more.
func (p *pace) before(seq uint64, now time.Time) (n int) {
	all := len(p.others) + 1
	for a, r := range p.others {
		switch silent := now.Sub(r.at); {
		case silent > rivalFor && (seq > r.seq+2*uint64(all) || silent > time.Duration(all*waitFor)*p.step()):
			delete(p.others, a)
		case r.seq < p.mine:
			n++
		}
	}
	return n
}

// turn waits until no process that writes has waited for longer, or nobody writes. waited reports whether the replica was
// brought up to date meanwhile.
func (s *Store) turn(ctx context.Context) (waited bool, err error) {
	var last uint64
	var since time.Time // when commit object last was seen
	for {
		s.mu.Lock()
		now, seq := time.Now(), s.rep.seq
		n, step := s.pace.before(seq, now), s.pace.step()
		s.mu.Unlock()
		if seq != last {
			last, since = seq, now
		}
		if n == 0 || now.Sub(since) > time.Duration(n*waitFor)*step {
			return waited, nil
		}
		_ = sleep(ctx, time.Duration(n)*step) // ends with ctx, and so does sync
		if err := s.sync(ctx); err != nil {
			return true, err
		}
		waited = true
	}
}

// touch writes a later slot as it is.
func (s *Store) touch(ctx context.Context) {
	s.mu.Lock()
	seq := s.rep.seq + min(touchAhead, uint64(s.slots)/2)
	s.mu.Unlock()
	o, err := s.client.get(ctx, slotName(s.name, seq, s.slots))
	if err != nil || o.Metadata.Labels == nil {
		return // it was a wish
	}
	o.Metadata.Labels[touchLabel] = newID().String()
	if o, err = s.client.update(ctx, o); err == nil {
		_, _ = s.take(o)
	}
}
