package storm

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"
	"sync"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/protocol"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// server is the database: a store in memory that can be set back to a backup. A commit that changes something has an id, so a process
// that saw a commit which is gone can be refused, as the SQL stores and etcd do.
type server struct {
	mem     *store.Memory
	commits []commit // the one of revision n is at n-1
	next    uint64   // id
	backup  int      // how many commits it has; -1 is no backup
	witness *Witness
	made    func(of *conn, c *protocol.Commit) // called before a commit of a process counts in the witness
	planted string                             // a fault, "" for none
}

type commit struct {
	ops []store.Op
	id  uint64
}

// point is a commit that a process has seen.
type point struct {
	rev int
	id  uint64
}

func newServer() *server { return &server{mem: store.NewMemory(), backup: -1, witness: NewWitness()} }

func (s *server) now() point {
	if n := len(s.commits); n > 0 {
		return point{n, s.commits[n-1].id}
	}
	return point{}
}

// has reports whether a point is in the past of the database.
func (s *server) has(p point) bool {
	return p.rev == 0 || p.rev <= len(s.commits) && s.commits[p.rev-1].id == p.id
}

// commit makes a commit of a process, or of nobody.
func (s *server) commit(of *conn, ops []store.Op) (uint64, error) {
	rev, err := s.mem.Commit(context.Background(), ops)
	if err == nil && int(rev) > len(s.commits) {
		c := s.witness.commit(ops)
		if of != nil {
			s.made(of, c)
		}
		s.witness.apply(c)
		s.next++
		s.commits = append(s.commits, commit{ops, s.next})
	}
	return rev, err
}

// The faults that a test plants.
const (
	dropsGuard   = "a commit does not expect its blocks at a revision"
	losesCommit  = "an acknowledged commit is lost"
	releasesLate = "a release ignores the sequence number"
)

// plant changes the operations of a commit as the planted fault does.
func (s *server) plant(ops []store.Op) []store.Op {
	assigns := slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind == store.Put && op.Key[0] == 'a' })
	switch {
	case s.planted == dropsGuard:
		ops = slices.Clone(ops)
		for i := range ops {
			if ops[i].Kind == store.Put && ops[i].Key[0] == 'b' {
				ops[i].Expect = store.AnyRevision
			}
		}
	case s.planted == losesCommit && assigns:
		return nil
	}
	return ops
}

// setBack restores the database from the backup. Other commits get the revisions after it.
func (s *server) setBack() {
	kept := s.commits[:s.backup]
	s.mem, s.commits, s.witness = store.NewMemory(), nil, NewWitness()
	for _, c := range kept {
		if _, err := s.mem.Commit(context.Background(), c.ops); err != nil {
			panic(err)
		}
		s.witness.apply(s.witness.commit(c.ops))
	}
	s.commits, s.backup = slices.Clone(kept), -1
}

// Kinds of packets.
const (
	get  = "get"
	list = "list"
	put  = "commit"
)

var (
	errCut  = errors.New("connection cut")
	errDown = errors.New("the process is down")
)

// packet is one call of the store on its way to the database and back.
type packet struct {
	of     *conn
	client string
	kind   string
	text   string // the call; with of and client it orders the packets of one moment
	keys   []string
	rng    store.Range
	ops    []store.Op
	past   point   // what the process had seen
	again  []*call // that may have sent the packet, if it is a second copy

	made bool // by the database
	left bool // its caller has an answer, or is down
	done chan struct{}
	seen point
	recs []store.Record
	rev  uint64
	err  error
}

// network is the packets that are under way.
type network struct {
	mu   sync.Mutex
	wire []*packet
}

// conn is the store of one process.
type conn struct {
	net  *network
	name string
	seen point // the newest commit that it has seen
	lost bool  // it saw a commit that is gone
	down bool
	// direct is the database for calls beside the network: while the process starts, and of the observer.
	direct *server
}

type clientKey struct{}

// ask sends a packet and waits until the driver answers it, or until ctx ends.
func (c *conn) ask(ctx context.Context, p *packet) error {
	p.of, p.done = c, make(chan struct{})
	p.client, _ = ctx.Value(clientKey{}).(string)
	c.net.mu.Lock()
	err := ctx.Err()
	switch {
	case err != nil:
	case c.down:
		err = errDown
	case c.lost:
		err = ipalloc.ErrReplaced
	default:
		p.past = c.seen
		c.net.wire = append(c.net.wire, p)
	}
	c.net.mu.Unlock()
	if err != nil {
		return &ipalloc.Error{Package: "storm", Op: p.kind, Err: err}
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		p.left = true
		return failure(p, ctx.Err())
	}
}

// failure is the error of a packet of which the caller does not know what became.
func failure(p *packet, err error) error {
	if p.kind == put && slices.ContainsFunc(p.ops, func(op store.Op) bool { return op.Kind != store.Guard }) {
		err = fmt.Errorf("%w: %w", ipalloc.ErrUnknownOutcome, err)
	}
	return &ipalloc.Error{Package: "storm", Op: p.kind, Err: err}
}

// Get implements [store.Store].
func (c *conn) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if c.direct != nil {
		return c.direct.mem.Get(ctx, dst, keys...)
	}
	p := &packet{kind: get, keys: slices.Clone(keys), text: fmt.Sprintf("%q", keys)}
	if err := c.ask(ctx, p); err != nil {
		return dst, err
	}
	return append(dst, p.recs...), nil
}

// List implements [store.Store].
func (c *conn) List(ctx context.Context, r store.Range) ([]store.Record, uint64, error) {
	if c.direct != nil {
		return c.direct.mem.List(ctx, r)
	}
	p := &packet{kind: list, rng: r, text: fmt.Sprintf("%q to %q", r.From, r.To)}
	err := c.ask(ctx, p)
	return p.recs, p.rev, err
}

// Commit implements [store.Store].
func (c *conn) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	p := &packet{kind: put, ops: slices.Clone(ops)}
	if err := store.CheckOps("storm", ops, store.Limits{}); err != nil {
		return 0, err
	}
	for _, op := range ops {
		p.text += fmt.Sprintf("%s%q", [...]string{" if ", " put ", " delete "}[op.Kind], op.Key)
		if op.Expect != store.AnyRevision {
			p.text += fmt.Sprint("@", op.Expect)
		}
		if op.Kind == store.Put {
			p.text += fmt.Sprintf("=%08x", crc32.ChecksumIEEE([]byte(op.Value)))
		}
	}
	if c.direct != nil {
		return c.direct.commit(nil, p.ops)
	}
	err := c.ask(ctx, p)
	return p.rev, err
}

// Watch implements [store.Store]. No call of the storm watches.
func (c *conn) Watch(context.Context, uint64, ...string) iter.Seq2[store.Event, error] {
	panic("storm: watch")
}

// Limits implements [store.Store].
func (c *conn) Limits() store.Limits { return store.Limits{} }

// arrive has the database carry out a packet, and returns what it does for the history.
func (s *server) arrive(p *packet) string {
	p.made = true
	if !s.has(p.past) {
		p.err = &ipalloc.Error{Package: "storm", Op: p.kind, Err: ipalloc.ErrReplaced}
		return "replaced"
	}
	ctx := context.Background()
	switch p.kind {
	case get:
		p.recs, p.err = s.mem.Get(ctx, nil, p.keys...)
	case list:
		p.recs, p.rev, p.err = s.mem.List(ctx, p.rng)
	case put:
		p.rev, p.err = s.commit(p.of, s.plant(p.ops))
	}
	p.seen = s.now()
	if key, ok := store.ConflictKey(p.err); ok {
		return fmt.Sprintf("conflict on %q", key)
	}
	if p.kind == put {
		return fmt.Sprint("revision ", p.rev)
	}
	return fmt.Sprint(len(p.recs), " records")
}

// answer gives the caller the answer of the database, or err in its place.
func (p *packet) answer(err error) {
	switch {
	case err != nil:
		p.err = failure(p, err)
	case errors.Is(p.err, ipalloc.ErrReplaced):
		p.of.lost = true
	case p.seen.rev > p.of.seen.rev:
		p.of.seen = p.seen
	}
	p.left = true
	close(p.done)
}

// packets returns the packets under way, in an order that only their contents determine, and those of which the caller waits apart
// from those of which it does not.
func (n *network) packets() (waited, late []*packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.SortStableFunc(n.wire, func(a, b *packet) int {
		return slices.Compare([]string{a.of.name, a.client, a.kind, a.text}, []string{b.of.name, b.client, b.kind, b.text})
	})
	n.wire = slices.DeleteFunc(n.wire, func(p *packet) bool { return p.left && (p.made || p.kind != put) })
	for _, p := range n.wire {
		if p.left {
			late = append(late, p)
		} else {
			waited = append(waited, p)
		}
	}
	return waited, late
}
