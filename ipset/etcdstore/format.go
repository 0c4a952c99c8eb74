package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// version is the format that this package writes and reads.
const version = 1

// The format record says what is under the prefix, in which format, and in which cluster it was made:
//
//	ipset store
//	version 1
//	cluster 14841639068965178418
const formatHead = "ipset store\nversion "

// encodeFormat returns the format record of a store in a cluster.
func encodeFormat(cluster uint64) string {
	return fmt.Sprintf("%s%d\ncluster %d\n", formatHead, version, cluster)
}

// decodeFormat returns the cluster of a format record. What follows the version is read in the known version only.
func decodeFormat(s string) (cluster uint64, err error) {
	rest, ok := strings.CutPrefix(s, formatHead)
	number, rest, ok2 := strings.Cut(rest, "\n")
	v, err := strconv.ParseUint(number, 10, 32)
	if !ok || !ok2 || err != nil || v == 0 {
		return 0, mismatch("open", "not a store: format record %.80q", s)
	}
	if v != version {
		return 0, &ipalloc.Error{Package: "etcdstore", Op: "open", Err: ipalloc.ErrVersion,
			Reason: fmt.Sprintf("the store has version %d of the format, this release reads %d alone", v, version)}
	}
	number, _ = strings.CutPrefix(strings.TrimSuffix(rest, "\n"), "cluster ")
	if cluster, err = strconv.ParseUint(number, 10, 64); err != nil || s != encodeFormat(cluster) {
		return 0, mismatch("open", "not a store: format record %.80q", s)
	}
	return cluster, nil
}

// enclosing returns the keys under which there is a format record if the prefix lies inside another store's records.
func enclosing(prefix string) []string {
	var keys []string
	for i := 2; i < len(prefix); i++ {
		if prefix[i-1] == '/' && strings.HasPrefix(prefix[i:], spaceName) {
			keys = append(keys, prefix[:i]+formatName)
		}
	}
	return keys
}

// open reads the format record, and writes it if there is nothing under the prefix or the store is to be adopted.
func (s *Store) open(ctx context.Context, prefix string, o Options) error {
	var header *pb.ResponseHeader
	var own []*mvccpb.KeyValue
	outer := enclosing(prefix)
	lanes := int64(0)
	for part := range slices.Chunk(append([]string{s.format}, outer...), s.maxOps-1) {
		ops := []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: []byte(s.past), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.past)), CountOnly: true})}
		for _, key := range part {
			ops = append(ops, rangeOp(&pb.RangeRequest{Key: []byte(key)}))
		}
		var resp *pb.TxnResponse
		err := s.read(ctx, "open", func(ctx context.Context) (err error) {
			resp, err = s.kv.Txn(ctx, &pb.TxnRequest{Success: ops})
			return err
		})
		if err != nil {
			return err
		}
		header, lanes = resp.Header, resp.Responses[0].GetResponseRange().GetCount()
		for i, key := range part {
			switch kvs := resp.Responses[i+1].GetResponseRange().GetKvs(); {
			case key == s.format:
				own = kvs
			case len(kvs) > 0:
				return mismatch("open", "the prefix lies inside the records of the store under %q", strings.TrimSuffix(key, formatName))
			}
		}
	}
	s.cluster = header.GetClusterId()
	if o.Cluster != 0 && o.Cluster != s.cluster {
		return mismatch("open", "this is cluster %d, not %d", s.cluster, o.Cluster)
	}
	switch {
	case len(own) > 0:
		err := s.take(ctx, header, own[0], o)
		if err == nil && lanes > maxLanes {
			s.sweep(ctx)
		}
		return err
	case o.NoCreate:
		return &ipalloc.Error{Package: "etcdstore", Op: "open", Text: prefix, Reason: "no store under this prefix", Err: ipalloc.ErrNotFound}
	}
	return s.create(ctx, prefix, outer, o)
}

// create makes the store if there is nothing under the prefix and no store around it.
func (s *Store) create(ctx context.Context, prefix string, outer []string, o Options) error {
	all := []byte(clientv3.GetPrefixRangeEnd(prefix))
	compare := []*pb.Compare{{ // of every key that there is
		Key: []byte(prefix), RangeEnd: all, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{},
	}}
	for _, key := range outer[:min(len(outer), s.maxOps-1)] {
		compare = append(compare, revisionIs(key, 0))
	}
	resp, err := s.write(ctx, "open", &pb.TxnRequest{
		Compare: compare,
		Success: []*pb.RequestOp{putOp(s.format, encodeFormat(s.cluster))},
		Failure: []*pb.RequestOp{
			rangeOp(&pb.RangeRequest{Key: []byte(s.format)}),
			rangeOp(&pb.RangeRequest{Key: []byte(prefix), RangeEnd: all, Limit: 1, KeysOnly: true}),
		},
	})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		return s.opened(resp.Header, uint64(resp.Header.Revision), uint64(resp.Header.Revision))
	}
	if have := resp.Responses[0].GetResponseRange().GetKvs(); len(have) > 0 { // another client was faster
		return s.take(ctx, resp.Header, have[0], o)
	}
	if other := resp.Responses[1].GetResponseRange().GetKvs(); len(other) > 0 {
		return mismatch("open", "the prefix holds no store, but other keys: %q is there, %q is not", other[0].Key, s.format)
	}
	return mismatch("open", "a store was made meanwhile whose records would contain this one")
}

// take verifies the format record that was found.
func (s *Store) take(ctx context.Context, h *pb.ResponseHeader, kv *mvccpb.KeyValue, o Options) error {
	cluster, err := decodeFormat(string(kv.Value))
	if err != nil {
		return err
	}
	born, mark := uint64(kv.CreateRevision), uint64(kv.ModRevision)
	switch {
	case cluster == s.cluster:
		return s.opened(h, born, mark)
	case o.Adopt:
		return s.adopt(ctx, born, mark)
	}
	return mismatch("open", "the store was made in cluster %d, this is %d; see Options.Adopt", cluster, s.cluster)
}

// opened takes over the revisions of the format record.
func (s *Store) opened(h *pb.ResponseHeader, born, mark uint64) error {
	s.born, s.mark = born, mark
	if err := s.seen(h, 0); err != nil {
		return wrap("open", err)
	}
	return nil
}

// adopt writes the format record for this cluster.
func (s *Store) adopt(ctx context.Context, born, mark uint64) error {
	resp, err := s.write(ctx, "open", &pb.TxnRequest{
		Compare: []*pb.Compare{revisionIs(s.format, mark)},
		Success: []*pb.RequestOp{putOp(s.format, encodeFormat(s.cluster))},
	})
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return wrap("open", &store.Cause{Err: ipalloc.ErrReplaced, Retry: true})
	}
	return s.opened(resp.Header, born, uint64(resp.Header.Revision))
}
