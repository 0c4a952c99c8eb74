package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A watch that loses its stream opens another, at once and then after waits that double.
const (
	firstWait = 20 * time.Millisecond
	lastWait  = 2 * time.Second
)

// askAgain is when a question for the progress of a stream is repeated: a server leaves it unanswered while
// one of the watchers catches up.
const askAgain = 50 * time.Millisecond

// creating is how many watchers are asked for before the first is confirmed: neither side may wait for the other to read.
const creating = 64

// errBroken says that the caller has broken the loop.
var errBroken = errors.New("etcdstore: loop broken")

// Watch implements [store.Store]. It opens its own stream, with one watcher per prefix; the server sends nothing else. It
// resumes by itself, without loss or repetition, when the stream breaks or a member loses its leader, for as long as ctx
// lasts. With one prefix, a commit is yielded when it arrives. With more, it is yielded one round trip later, when the
// server has confirmed that every watcher has all events up to its revision.
//
// A watch notices a broken connection to its member no sooner than the client does: set DialKeepAliveTime and
// DialKeepAliveTimeout.
//
// It ends with ipalloc.ErrOutOfRange, [ipalloc.ErrReplaced], the context's error, or another error that is not
// [store.Retryable].
func (s *Store) Watch(ctx context.Context, after uint64, prefixes ...string) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w := &watch{s: s, view: s.view.Load(), ranges: s.disjoint(prefixes), next: max(after&(1<<viewBits-1), s.born) + 1, yield: yield}
		if after > 0 {
			w.view = after >> viewBits << viewBits
		}
		w.single = len(w.ranges) == 1
		w.formatID = int64(len(w.ranges) + 1)
		w.ranges = append(w.ranges, &pb.WatchCreateRequest{Key: []byte(s.format), WatchId: w.formatID})
		for wait := firstWait; ; wait = min(2*wait, lastWait) {
			err := ctx.Err()
			if err == nil {
				err = w.run(ctx)
			}
			if errors.Is(err, errBroken) {
				return
			}
			if err, again := watchError(ctx, err); !again {
				yield(store.Event{}, err)
				return
			}
			if w.ready {
				wait = firstWait
			}
			if err := sleep(ctx, wait); err != nil {
				yield(store.Event{}, failure(ctx, "watch", err))
				return
			}
		}
	}
}

// watchError returns the error with which a watch ends, and whether it is to be resumed instead.
func watchError(ctx context.Context, err error) (_ error, again bool) {
	var final *ipalloc.Error
	if ctx.Err() == nil && errors.As(err, &final) {
		return err, store.Retryable(err)
	}
	c := causeOf(ctx, err)
	c.Retry = c.Retry || ctx.Err() == nil && errors.Is(err, io.EOF) // the server ended the stream
	return wrap("watch", c), c.Retry && ctx.Err() == nil
}

// disjoint returns the prefixes as key ranges, without those that another one contains.
func (s *Store) disjoint(prefixes []string) []*pb.WatchCreateRequest {
	sorted := slices.Sorted(slices.Values(prefixes))
	var ranges []*pb.WatchCreateRequest
	last := ""
	for i, p := range sorted {
		if i > 0 && strings.HasPrefix(p, last) {
			continue
		}
		last = p
		ranges = append(ranges, &pb.WatchCreateRequest{
			Key: []byte(s.space + p), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.space + p)), WatchId: int64(len(ranges) + 1), Fragment: true,
			// One watcher tells from time to time how far the server is, so that a quiet watch can resume after a compaction.
			ProgressNotify: len(ranges) == 0,
		})
	}
	return ranges
}

// watch is one watch over all its streams.
type watch struct {
	s        *Store
	view     uint64
	ranges   []*pb.WatchCreateRequest // the last one is the format record
	single   bool                     // one range beside it
	formatID int64
	next     uint64 // the lowest revision that has not been yielded
	yield    func(store.Event, error) bool

	ready   bool                    // all watchers of the present stream exist
	created int                     // how many
	pending map[uint64]*store.Event // what has arrived and may not be whole
}

// run opens a stream and yields from it until it breaks.
func (w *watch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	w.ready, w.created, w.pending = false, 0, make(map[uint64]*store.Event)
	st, err := w.s.watches.Watch(ctx, anySize)
	if err != nil {
		return err
	}
	q := &questions{stream: st}
	defer q.answered()
	for i := range min(creating, len(w.ranges)) {
		if err := w.create(q, i); err != nil {
			return err
		}
	}
	for {
		resp, err := st.Recv()
		if err != nil {
			return err
		}
		if err := w.take(ctx, q, resp); err != nil {
			return err
		}
	}
}

// create asks for a watcher.
func (w *watch) create(q *questions, i int) error {
	r := w.ranges[i]
	r.StartRevision = int64(w.next)
	return q.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

// take works on one answer of the server.
func (w *watch) take(ctx context.Context, q *questions, resp *pb.WatchResponse) error {
	if id := resp.Header.GetClusterId(); id != w.s.cluster {
		return mismatch("watch", "cluster %d answers, the store is in %d", id, w.s.cluster)
	}
	if w.s.view.Load() != w.view { // what came before w.next cannot be compared with the past of the cluster
		return rpctypes.ErrGRPCCompacted
	}
	switch {
	case resp.CompactRevision != 0:
		return rpctypes.ErrGRPCCompacted
	case resp.Canceled:
		return cancelled(resp.CancelReason)
	case resp.Created:
		if w.created++; w.created == 1 { // a watcher in another past would yield what does not follow
			if _, _, err := w.s.ask(ctx, "watch"); err != nil {
				return err
			}
			if w.s.view.Load() != w.view {
				return rpctypes.ErrGRPCCompacted
			}
		}
		if next := w.created + creating - 1; next < len(w.ranges) {
			return w.create(q, next)
		}
		if w.ready = w.created == len(w.ranges); w.ready && len(w.pending) > 0 {
			return q.ask()
		}
		return nil
	case len(resp.Events) > 0 && resp.WatchId == w.formatID:
		return w.replaced(resp)
	case len(resp.Events) > 0:
		if err := w.add(resp); err != nil || resp.Fragment {
			return err
		}
		if w.single {
			return w.flush(w.highest())
		}
	case resp.WatchId == clientv3.InvalidWatchID || w.single: // progress of all watchers
		q.answered()
		if err := w.flush(uint64(resp.Header.Revision)); err != nil {
			return err
		}
		if w.next = max(w.next, uint64(resp.Header.Revision)+1); len(w.pending) == 0 {
			return nil
		}
	}
	if !w.ready {
		return nil
	}
	return q.ask()
}

// replaced ends the watch if the format record is not the one that Open found.
func (w *watch) replaced(resp *pb.WatchResponse) error {
	for _, ev := range resp.Events {
		if rev := uint64(ev.Kv.ModRevision); rev > w.s.mark {
			return replaced("watch", "its format record was changed at revision %d", rev)
		}
	}
	return nil
}

// cancelled is the error of a watcher that the server has ended.
func cancelled(reason string) error {
	if _, desc, ok := strings.Cut(reason, "desc = "); ok {
		reason = desc
	}
	if err := rpctypes.Error(status.Error(codes.Unknown, reason)); reason != "" {
		return err
	}
	return rpctypes.ErrGRPCWatchCanceled
}

// add keeps the events of one watcher.
func (w *watch) add(resp *pb.WatchResponse) error {
	for _, ev := range resp.Events {
		rev := uint64(ev.Kv.ModRevision)
		if rev < w.next {
			return wrap("watch", &store.Cause{Err: fmt.Errorf("a server sent revision %d after it had confirmed all before %d: older than 3.4.25 or 3.5.8?", rev, w.next)})
		}
		e := w.pending[rev]
		if e == nil {
			e = &store.Event{Rev: w.view | rev}
			w.pending[rev] = e
		}
		r := store.Record{Key: string(ev.Kv.Key[len(w.s.space):])}
		if ev.Type == clientv3.EventTypePut {
			var newest point
			var err error
			if r, err = w.s.decode(ev.Kv, w.view, &newest); err != nil {
				return err
			}
			w.s.saw(newest)
		}
		e.Changes = append(e.Changes, r)
	}
	return nil
}

// highest returns the highest revision that has arrived.
func (w *watch) highest() uint64 {
	high := uint64(0)
	for rev := range w.pending {
		high = max(high, rev)
	}
	return high
}

// flush yields everything up to a revision, in order.
func (w *watch) flush(upTo uint64) error {
	var revs []uint64
	for rev := range w.pending {
		if rev <= upTo {
			revs = append(revs, rev)
		}
	}
	slices.Sort(revs)
	for _, rev := range revs {
		ev := w.pending[rev]
		delete(w.pending, rev)
		slices.SortFunc(ev.Changes, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
		w.next = rev + 1
		if !w.yield(*ev, nil) {
			return errBroken
		}
	}
	return nil
}

// questions is the sending half of a stream.
type questions struct {
	mu     sync.Mutex
	stream pb.Watch_WatchClient
	timer  *time.Timer // runs while a question for the progress is unanswered
}

func (q *questions) send(r *pb.WatchRequest) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stream.Send(r); !errors.Is(err, io.EOF) {
		return err
	}
	return nil // the receiving half has another error
}

// ask asks how far all watchers are, unless that is already asked, and goes on asking until there is an answer.
func (q *questions) ask() error {
	q.mu.Lock()
	asked := q.timer != nil
	if !asked {
		q.timer = time.AfterFunc(askAgain, q.again)
	}
	q.mu.Unlock()
	if asked {
		return nil
	}
	return q.send(progressRequest)
}

var progressRequest = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}

// again repeats the question. A failure to send shows in the receiving half.
func (q *questions) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Reset(askAgain)
		_ = q.stream.Send(progressRequest)
	}
}

// answered ends the question.
func (q *questions) answered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}
