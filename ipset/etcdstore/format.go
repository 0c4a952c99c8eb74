package etcdstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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
		return 0, fmt.Errorf("%w: format record %.80q", ErrForeign, s)
	}
	if v > version {
		return 0, fmt.Errorf("%w: version %d, this release knows %d", ErrVersion, v, version)
	}
	number, _ = strings.CutPrefix(strings.TrimSuffix(rest, "\n"), "cluster ")
	if cluster, err = strconv.ParseUint(number, 10, 64); err != nil || s != encodeFormat(cluster) {
		return 0, fmt.Errorf("%w: format record %.80q", ErrForeign, s)
	}
	return cluster, nil
}

// open reads the format record, and writes it if there is nothing under the prefix or the store is to be adopted.
func (s *Store) open(ctx context.Context, prefix string, o Options) error {
	var resp *pb.RangeResponse
	err := s.read(ctx, "open", func(ctx context.Context) (err error) {
		resp, err = s.kv.Range(ctx, &pb.RangeRequest{Key: []byte(s.format)})
		return err
	})
	if err != nil {
		return err
	}
	s.cluster = resp.Header.GetClusterId()
	if o.Cluster != 0 && o.Cluster != s.cluster {
		return &Error{Op: "open", Err: fmt.Errorf("%w: %d, not %d", ErrCluster, s.cluster, o.Cluster)}
	}
	switch {
	case len(resp.Kvs) > 0:
		return s.take(ctx, resp.Header, resp.Kvs[0], o)
	case o.NoCreate:
		return &Error{Op: "open", Err: fmt.Errorf("%w under %q", ErrNoStore, prefix)}
	}
	return s.create(ctx, prefix, o)
}

// create makes the store if there is nothing under the prefix.
func (s *Store) create(ctx context.Context, prefix string, o Options) error {
	all := []byte(clientv3.GetPrefixRangeEnd(prefix))
	resp, err := s.write(ctx, "open", &pb.TxnRequest{
		Compare: []*pb.Compare{{ // of every key that there is
			Key: []byte(prefix), RangeEnd: all, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_CreateRevision{},
		}},
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
	if have := resp.Responses[0].GetResponseRange().GetKvs(); len(have) > 0 { // somebody was faster
		return s.take(ctx, resp.Header, have[0], o)
	}
	first := resp.Responses[1].GetResponseRange().GetKvs()[0].Key
	return &Error{Op: "open", Err: fmt.Errorf("%w: %q is there, %q is not", ErrForeign, first, s.format)}
}

// take verifies the format record that was found.
func (s *Store) take(ctx context.Context, h *pb.ResponseHeader, kv *mvccpb.KeyValue, o Options) error {
	cluster, err := decodeFormat(string(kv.Value))
	if err != nil {
		return &Error{Op: "open", Err: err}
	}
	born, mark := uint64(kv.CreateRevision), uint64(kv.ModRevision)
	switch {
	case cluster == s.cluster:
		return s.opened(h, born, mark)
	case o.Adopt:
		return s.adopt(ctx, born, mark)
	}
	return &Error{Op: "open", Err: fmt.Errorf("%w: the store was made in %d, this is %d", ErrCluster, cluster, s.cluster)}
}

// opened takes over the revisions of the format record.
func (s *Store) opened(h *pb.ResponseHeader, born, mark uint64) error {
	s.born, s.mark = born, mark
	if err := s.seen(h, 0); err != nil {
		return &Error{Op: "open", Err: err}
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
		return &Error{Op: "open", Err: ErrReplaced, retry: true}
	}
	return s.opened(resp.Header, born, uint64(resp.Header.Revision))
}
