package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Commit implements [store.Store]: one transaction and one round trip, even on a conflict. The revision is etcd's.
//
// Every commit verifies the format record and the past of the cluster. It fails with [ipalloc.ErrReplaced] if the store was
// removed, adopted, converted or set back.
func (s *Store) Commit(ctx context.Context, ops []store.Op) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, failure(ctx, "commit", err)
	}
	if err := store.CheckOps("etcdstore", ops, s.limits); err != nil {
		return 0, err
	}
	writes := slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind != store.Guard })
	puts := slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind == store.Put }) // else it needs no room in a full database
	for attempt := 1; ; attempt++ {
		at := s.begin(puts)
		for _, op := range ops {
			if op.Expect != 0 && op.Expect != store.AnyRevision && op.Expect>>viewBits != at.view>>viewBits {
				s.freeLane(at.lane)
				return 0, store.Conflict("etcdstore", op.Key)
			}
		}
		rev, err := s.commit(ctx, ops, at, writes)
		if err != errLane || attempt == laneAttempts {
			return at.view | rev, err
		}
	}
}

// laneAttempts is how often a transaction is sent with another lane.
const laneAttempts = 4

// commit makes one attempt. Its error is errLane if that is worth another one.
func (s *Store) commit(ctx context.Context, ops []store.Op, at standing, writes bool) (uint64, error) {
	req := s.request(ops, at)
	since := s.high.Load()
	var resp *pb.TxnResponse
	var err error
	if writes {
		resp, err = s.write(ctx, "commit", req)
	} else {
		err = s.read(ctx, "commit", func(ctx context.Context) (err error) {
			resp, err = s.kv.Txn(ctx, req)
			return err
		})
	}
	if err == nil {
		if e := s.seen(resp.Header, since); e != nil && resp.Succeeded { // in another cluster, or an earlier state of this one
			err = wrap("commit", &store.Cause{Kind: ipalloc.ErrUnknownOutcome, Err: e})
		} else if e != nil {
			err = wrap("commit", e)
		}
	}
	if err != nil {
		if !errors.Is(err, ipalloc.ErrUnknownOutcome) {
			s.freeLane(at.lane)
		}
		return 0, err
	}
	if !resp.Succeeded {
		n, err := s.stands(ctx, "commit", at, resp)
		if err != nil {
			return 0, err
		}
		s.freeLane(at.lane)
		return 0, s.conflict(ops, resp, n)
	}
	at.lane.rev = uint64(resp.Header.Revision)
	s.saw(at.lane)
	s.freeLane(at.lane)
	return at.lane.rev, nil
}

// request returns the transaction of a commit. If an expectation fails, it answers with the revisions of all records
// that one was about, in the order of ops; those of standing come before them.
func (s *Store) request(ops []store.Op, at standing) *pb.TxnRequest {
	req := s.standing(at)
	for i := range ops {
		op := &ops[i]
		key := s.space + op.Key
		if op.Expect != store.AnyRevision {
			expect(req, key, op.Expect&(1<<viewBits-1))
		}
		switch op.Kind {
		case store.Put:
			req.Success = append(req.Success, putOp(key, op.Value+string(at.lane.lane[:])))
		case store.Delete:
			req.Success = append(req.Success, deleteOp(key))
		}
	}
	if at.lane.lane != (laneID{}) {
		req.Success = append(req.Success, putOp(s.lane(at.lane.lane), ""))
	}
	return req
}

// conflict names the record that a failed transaction was about. Its answers from i on are about the expectations.
func (s *Store) conflict(ops []store.Op, resp *pb.TxnResponse, i int) error {
	for _, op := range ops {
		if op.Expect == store.AnyRevision {
			continue
		}
		if revisionOf(resp, i) != op.Expect&(1<<viewBits-1) {
			return store.Conflict("etcdstore", op.Key)
		}
		i++
	}
	return wrap("commit", &store.Cause{Err: errors.New("an expectation failed, and all records are as expected")})
}

// A commit that a member refuses because it knows of no leader is sent to another one: this often, with pauses of readWait.
// One that finds no member to go to waits for one as a read does.
const writeAttempts = 3

// write makes a transaction that writes. Its error wraps ipalloc.ErrUnknownOutcome unless it certainly left no trace.
func (s *Store) write(ctx context.Context, op string, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	if size := proto.Size(req); size > s.maxBytes {
		return nil, wrap(op, &store.Cause{Kind: ipalloc.ErrLimit, Err: fmt.Errorf("request of %d bytes, at most %d", size, s.maxBytes)})
	}
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		resp, sent, err := s.writeOnce(ctx, op, req)
		again := errors.Is(err, rpctypes.ErrNoLeader) && attempt < writeAttempts
		if !sent && err != nil {
			again = waits(ctx, err, attempt, begin)
		}
		if !again || sleep(ctx, readWait) != nil {
			return resp, err
		}
	}
}

// writeOnce sends a transaction that writes, once, and reports whether it was given to a connection.
//
// The client would repeat a transaction that was cancelled on the way, although it may have been made: ending the
// context of the call as soon as that is known keeps it from doing so.
func (s *Store) writeOnce(ctx context.Context, op string, req *pb.TxnRequest) (resp *pb.TxnResponse, sent bool, err error) {
	once, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	var to peer.Peer // set only if a connection was given the request
	resp, err = s.kv.Txn(once, req, grpc.Peer(&to), grpc.OnFinish(func(err error) {
		if c := status.Code(err); c == codes.Canceled || c == codes.DeadlineExceeded {
			cancel()
		}
	}))
	switch {
	case err == nil:
		return resp, true, nil
	case to.Addr == nil:
		return nil, false, failure(ctx, op, err)
	case traceless(err):
		return nil, true, failure(context.WithoutCancel(ctx), op, err)
	}
	return nil, true, unknown(ctx, op, err)
}

// revisionIs compares the revision of a key; 0 is that of a key that does not exist.
func revisionIs(key string, rev uint64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: int64(rev)},
	}
}

func putOp(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func deleteOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

// lookup asks for the revision of a key.
func lookup(key string) *pb.RequestOp {
	return rangeOp(&pb.RangeRequest{Key: []byte(key), KeysOnly: true})
}

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}
