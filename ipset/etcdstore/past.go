package etcdstore

// How a store notices that its cluster was set back: to an older copy of the data, under the same cluster ID, with other
// commits since then. Revision numbers then mean other commits, and a record that is expected at one of them may match by
// accident.
//
// Every commit that puts writes a key of its own beside the records, a lane: <prefix>past/<id>. One process uses a lane, for
// one commit at a time, and only at the revision at which it last wrote it. The values of the records name the lane. So a
// lane that has at least the revision of a record proves that the record's commit, and all before it, are in the past
// of the cluster. Every transaction compares the lane of the newest record that this process has seen.
//
// A lane that was removed proves nothing, nor does its absence. If the servers do not remember that revision either, the process
// begins another view: the revisions that it gives to its callers have the number of the view above viewBits, and
// those of an earlier view are in conflict with every record. What the callers remember is thereby read again.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

const pastName = "past/"

// Open removes the lanes that were not written for longest when there are more than maxLanes: one for each process that ever
// committed. They take some 4 MB of a server's memory.
const maxLanes = 16384

// viewBits is how many bits of a revision are etcd's.
const viewBits = 48

// laneID is the random name of a lane.
type laneID [8]byte

// point is a commit: the lane that it wrote, and its revision. The zero point is before the first commit.
type point struct {
	lane laneID
	rev  uint64
}

// lane returns the key of a lane.
func (s *Store) lane(id laneID) string { return s.past + hex.EncodeToString(id[:]) }

// begin returns what a transaction compares: the newest commit of which a record was seen, and if it puts, a lane that no other commit uses.
func (s *Store) begin(puts bool) standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := standing{last: s.head, view: s.view.Load()}
	if n := len(s.lanes); puts && n > 0 {
		at.lane, s.lanes = s.lanes[n-1], s.lanes[:n-1]
	} else if puts {
		_, _ = rand.Read(at.lane.lane[:]) // never fails
	}
	return at
}

// freeLane returns the lane of a transaction, whose revision is known, to the free ones.
func (s *Store) freeLane(p point) {
	if p.lane == (laneID{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = append(s.lanes, p)
}

// saw notes a commit of which a record was seen.
func (s *Store) saw(p point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.lane != (laneID{}) && p.rev > s.head.rev {
		s.head = p
	}
}

// decode returns the record of a key as a view shows it, and raises newest to the commit that wrote it.
func (s *Store) decode(kv *mvccpb.KeyValue, view uint64, newest *point) (store.Record, error) {
	p := point{rev: uint64(kv.ModRevision)}
	n := len(kv.Value) - len(p.lane)
	key := string(kv.Key[len(s.space):])
	if n < 0 {
		return store.Record{}, wrap("read", fmt.Errorf("%w: record %.80q has %d bytes", ipalloc.ErrCorrupt, key, len(kv.Value)))
	}
	copy(p.lane[:], kv.Value[n:])
	if p.rev > newest.rev {
		*newest = p
	}
	return store.Record{Key: key, Value: string(kv.Value[:n]), Rev: view | p.rev}, nil
}

// standing is what a transaction compares beside the expectations of a commit: the format record, the newest commit that was
// seen, and the lane that it writes, if any; and the view that its answer belongs to.
type standing struct {
	last point
	lane point // of no ID if the transaction writes none
	view uint64
}

// standing begins a transaction that compares the format record and the past. Its answers, if it fails, begin with those keys.
func (s *Store) standing(at standing) *pb.TxnRequest {
	req := &pb.TxnRequest{}
	expect(req, s.format, s.mark)
	if at.last.lane != (laneID{}) {
		key := s.lane(at.last.lane)
		req.Compare = append(req.Compare, &pb.Compare{
			Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_GREATER,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: int64(at.last.rev) - 1},
		})
		req.Failure = append(req.Failure, lookup(key))
	}
	if at.lane.lane != (laneID{}) {
		expect(req, s.lane(at.lane.lane), at.lane.rev)
	}
	return req
}

// expect adds the comparison of a key's revision to a transaction.
func expect(req *pb.TxnRequest, key string, rev uint64) {
	req.Compare = append(req.Compare, revisionIs(key, rev))
	req.Failure = append(req.Failure, lookup(key))
}

// errLane means that the lane of a commit was removed, and that the transaction can be sent with another one.
var errLane = errors.New("etcdstore: lane removed")

// stands returns the number of answers of a failed transaction that are not about expectations, or the error if one of these
// keys is why it failed. errLane: it is to be sent again.
func (s *Store) stands(ctx context.Context, op string, at standing, resp *pb.TxnResponse) (int, error) {
	if revisionOf(resp, 0) != s.mark {
		return 0, replaced(op, "its format record is of revision %d, not %d", revisionOf(resp, 0), s.mark)
	}
	n := 1
	if at.last.lane != (laneID{}) {
		if have := revisionOf(resp, n); have == 0 {
			if err := s.prove(ctx, op, at.last); err != nil {
				return 0, err
			}
			return 0, errLane
		} else if have < at.last.rev {
			return 0, s.setBack(op, at.last)
		}
		n++
	}
	if at.lane.lane != (laneID{}) {
		if have := revisionOf(resp, n); have > at.lane.rev || have == 0 && at.lane.rev > 0 {
			s.mu.Lock()
			s.lanes = nil // others may be gone, too
			s.mu.Unlock()
			return 0, errLane
		} else if have != at.lane.rev {
			return 0, s.setBack(op, at.lane)
		}
		n++
	}
	return n, nil
}

// setBack returns the error of a cluster whose past lacks a commit that this process saw.
func (s *Store) setBack(op string, p point) error {
	return replaced(op, "the cluster was set back: its past has not the commit %d that this process saw", p.rev)
}

// prove looks for a commit whose lane was removed in what the servers remember of that revision, and takes the lane that was
// written last in its place. If they do not remember it, the process begins another view.
func (s *Store) prove(ctx context.Context, op string, p point) error {
	reads := []*pb.RequestOp{
		s.lanesBy(pb.RangeRequest_DESCEND, 1),
		rangeOp(&pb.RangeRequest{Key: []byte(s.lane(p.lane)), Revision: int64(p.rev), KeysOnly: true}),
	}
	var resp *pb.TxnResponse
	ask := func(ctx context.Context) (err error) {
		resp, err = s.kv.Txn(ctx, &pb.TxnRequest{Success: reads})
		return err
	}
	err := s.read(ctx, op, ask)
	forgotten := errors.Is(err, ipalloc.ErrOutOfRange)
	if forgotten {
		reads = reads[:1]
		err = s.read(ctx, op, ask)
	}
	if err != nil {
		return err
	}
	now := point{rev: uint64(resp.Header.Revision)} // of no lane if there is none
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		if newest, ok := s.pointOf(kvs[0]); ok && newest.rev >= p.rev {
			now = newest
		}
	}
	if !forgotten && revisionOf(resp, 1) != p.rev {
		return s.setBack(op, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == p {
		if s.head = now; forgotten {
			s.view.Add(1 << viewBits)
		}
	}
	return nil
}

// pointOf returns the commit that last wrote a lane.
func (s *Store) pointOf(kv *mvccpb.KeyValue) (p point, ok bool) {
	p.rev = uint64(kv.ModRevision)
	b, err := hex.DecodeString(string(kv.Key[len(s.past):]))
	return p, copy(p.lane[:], b) == len(p.lane) && err == nil
}

// lanesBy reads lanes in the order in which they were last written.
func (s *Store) lanesBy(order pb.RangeRequest_SortOrder, limit int) *pb.RequestOp {
	return rangeOp(&pb.RangeRequest{
		Key: []byte(s.past), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.past)), Limit: int64(limit), KeysOnly: true,
		SortOrder: order, SortTarget: pb.RangeRequest_MOD,
	})
}

// sweep removes the lanes that were not written for longest. A process that comes back to a removed one proves its past by
// what the servers remember. If sweep fails, another Open does it.
func (s *Store) sweep(ctx context.Context) {
	resp, err := s.kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{s.lanesBy(pb.RangeRequest_ASCEND, s.maxOps)}})
	if err != nil {
		return
	}
	req := &pb.TxnRequest{}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		req.Compare = append(req.Compare, revisionIs(string(kv.Key), uint64(kv.ModRevision)))
		req.Success = append(req.Success, deleteOp(string(kv.Key)))
	}
	_, _, _ = s.writeOnce(ctx, "open", req)
}
