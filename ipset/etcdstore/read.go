package etcdstore

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/internal/combine"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// A read that finds no member, or one that cannot answer now, is repeated about as the client repeats its own, and so is a commit
// that finds none. A member that was cut off a moment ago takes seven seconds to say so: such an answer is not waited for more
// often than there are others to ask.
const (
	readAttempts = 50
	readWait     = 50 * time.Millisecond
	slowAttempts = 3
	slowAfter    = 10 * time.Second
)

// Pages of a long list hold about pageBytes, as far as the records before tell; the first has firstPage records.
const (
	firstPage = 256
	maxPage   = 4096
	pageBytes = 4 << 20
)

// listAttempts is how often a list begins again because what it was reading was compacted.
const listAttempts = 10

// anySize lifts gRPC's limit of an answer, which is 4 MiB, below what a page or a watch may need.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// read makes a call that changes nothing, again if no member could answer it. Members that know of no leader are asked to say
// so at once, where they would wait for one.
func (s *Store) read(ctx context.Context, op string, call func(context.Context) error) error {
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		err := call(clientv3.WithRequireLeader(ctx))
		if err == nil {
			return nil
		}
		if !waits(ctx, err, attempt, begin) {
			return failure(ctx, op, err)
		}
		if err := sleep(ctx, readWait); err != nil {
			return failure(ctx, op, err)
		}
	}
}

// waits reports whether a call that no member answered, and that left no trace, is to be made again after this attempt.
func waits(ctx context.Context, err error, attempt int, begin time.Time) bool {
	last := attempt >= readAttempts || attempt >= slowAttempts && time.Since(begin) > slowAfter
	return !last && ctx.Err() == nil && code(err) == codes.Unavailable
}

// sleep waits for d or a little more, so that those that failed together do not come back together.
func sleep(ctx context.Context, d time.Duration) error { return combine.Sleep(ctx, d+rand.N(d/4+1)) }

// ask makes a transaction of reads, and verifies that it was answered by the store that Open found: its cluster, no earlier
// state of it, the same past and the same format record. Else the error is [ipalloc.ErrReplaced] or ipalloc.ErrMismatch: a store that
// was wiped does not read as one without records. view is what the answer belongs to.
func (s *Store) ask(ctx context.Context, op string, reads ...*pb.RequestOp) (_ *pb.TxnResponse, view uint64, _ error) {
	for attempt := 1; ; attempt++ {
		var at standing
		var since uint64
		var resp *pb.TxnResponse
		err := s.read(ctx, op, func(ctx context.Context) (err error) {
			at, since = s.begin(false), s.high.Load()
			req := s.standing(at)
			req.Success = reads
			resp, err = s.kv.Txn(ctx, req, anySize)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if err := s.seen(resp.Header, since); err != nil {
			return nil, 0, wrap(op, err)
		}
		if resp.Succeeded {
			return resp, at.view, nil
		}
		if _, err := s.stands(ctx, op, at, resp); err != errLane || attempt == laneAttempts {
			return nil, 0, err
		}
	}
}

// revisionOf returns the revision of the record that the i-th answer of a transaction is about; 0: it does not exist.
func revisionOf(resp *pb.TxnResponse, i int) uint64 {
	if i < len(resp.Responses) {
		if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			return uint64(kvs[0].ModRevision)
		}
	}
	return 0
}

// restarts calls f again for as long as a compaction overtakes it.
func restarts(f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if !errors.Is(err, ipalloc.ErrOutOfRange) {
			return err
		}
		var e *ipalloc.Error
		var c *store.Cause
		if attempt == listAttempts && errors.As(err, &e) && errors.As(err, &c) {
			return wrap(e.Op, &store.Cause{Err: c.Err, Retry: true}) // ipalloc.ErrOutOfRange is for watches
		}
	}
}

// Get implements [store.Store]: one round trip for as many records as a transaction may name, 128 unless the servers are
// configured otherwise. More records take several round trips, at the revision of the first.
func (s *Store) Get(ctx context.Context, dst []store.Record, keys ...string) ([]store.Record, error) {
	if err := ctx.Err(); err != nil {
		return dst, failure(ctx, "get", err)
	}
	n := len(dst)
	err := restarts(func() (err error) {
		dst, err = s.get(ctx, dst[:n], keys)
		return err
	})
	if err != nil {
		return dst[:n], err
	}
	return dst, nil
}

func (s *Store) get(ctx context.Context, dst []store.Record, keys []string) ([]store.Record, error) {
	rev := int64(0)
	for part := range slices.Chunk(keys, s.maxOps) {
		ops := make([]*pb.RequestOp, len(part))
		for i, k := range part {
			ops[i] = rangeOp(&pb.RangeRequest{Key: []byte(s.space + k), Revision: rev})
		}
		resp, view, err := s.ask(ctx, "get", ops...)
		if err != nil {
			return dst, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		var newest point
		for i, k := range part {
			rec := store.Record{Key: k}
			if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
				if rec, err = s.decode(kvs[0], view, &newest); err != nil {
					return dst, err
				}
			}
			dst = append(dst, rec)
		}
		s.saw(newest)
	}
	return dst, nil
}

// List implements [store.Store]: pages of one revision. If a compaction removes that revision in the middle, the list
// begins again. A reverse list with a limit costs a round trip more. The servers walk the index of the whole range, at any limit.
func (s *Store) List(ctx context.Context, r store.Range) (recs []store.Record, rev uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, failure(ctx, "list", err)
	}
	from, to := s.space+r.From, s.end
	if r.To != "" {
		to = s.space + r.To
	}
	err = restarts(func() (err error) {
		switch {
		case from >= to:
			recs, rev, err = s.page(ctx, &pb.RangeRequest{Key: []byte(s.format), CountOnly: true})
		case r.Reverse && r.Limit > 0:
			recs, rev, err = s.last(ctx, from, to, r.Limit)
		default:
			recs, rev, err = s.pages(ctx, from, to, r.Limit)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if r.Reverse && r.Limit <= 0 {
		slices.Reverse(recs)
	}
	return recs, rev, nil
}

// page reads one page, and the revision that it shows.
func (s *Store) page(ctx context.Context, r *pb.RangeRequest) ([]store.Record, uint64, error) {
	resp, view, err := s.ask(ctx, "list", rangeOp(r))
	if err != nil {
		return nil, 0, err
	}
	var recs []store.Record
	var newest point
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		rec, err := s.decode(kv, view, &newest)
		if err != nil {
			return nil, 0, err
		}
		recs = append(recs, rec)
	}
	s.saw(newest)
	rev := r.Revision
	if rev == 0 {
		rev = resp.Header.Revision
	}
	return recs, view | uint64(rev), nil
}

// pages reads a range in ascending order; a limit of 0 is none.
func (s *Store) pages(ctx context.Context, from, to string, limit int) (all []store.Record, rev uint64, err error) {
	size := 0
	for page := firstPage; ; {
		if limit > 0 {
			page = min(page, limit-len(all))
		}
		recs, at, err := s.page(ctx, &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(to), Limit: int64(page), Revision: int64(rev & (1<<viewBits - 1))})
		if err != nil {
			return nil, 0, err
		}
		rev = at
		all = append(all, recs...)
		if len(recs) < page || len(all) == limit {
			return all, rev, nil
		}
		for i := range recs {
			size += len(recs[i].Key) + len(recs[i].Value)
		}
		from = s.space + recs[len(recs)-1].Key + "\x00"
		page = max(1, min(maxPage, pageBytes/(size/len(all)+1)))
	}
}
