package etcdstore

import (
	"context"
	"math/big"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ipalloc/ipalloc/ipset/store"
)

// numberBytes is how much of a key, after what it has in common with another, is taken for a number.
const numberBytes = 16

// last returns the last records of a range, at most limit, in descending order.
//
// etcd reads in descending order by reading everything and sorting it. So the range is narrowed first: the records in ranges
// below the end, each twice as wide as the one before, are counted, which the servers do in their index.
func (s *Store) last(ctx context.Context, from, to string, limit int) ([]store.Record, uint64, error) {
	cuts := cutsBelow(from, to, s.maxOps)
	ops := make([]*pb.RequestOp, len(cuts))
	end := to
	for i, cut := range cuts {
		ops[i] = rangeOp(&pb.RangeRequest{Key: []byte(cut), RangeEnd: []byte(end), CountOnly: true})
		end = cut
	}
	resp, _, err := s.ask(ctx, "list", ops...)
	if err != nil {
		return nil, 0, err
	}
	n := int64(0)
	for i, cut := range cuts {
		if n += resp.Responses[i].GetResponseRange().GetCount(); n >= int64(limit) {
			from = cut
			break
		}
	}
	return s.page(ctx, &pb.RangeRequest{
		Key: []byte(from), RangeEnd: []byte(to), Limit: int64(limit), Revision: resp.Header.Revision,
		SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_KEY,
	})
}

// cutsBelow returns at most n keys in descending order that divide what lies between from and to; the last is from.
func cutsBelow(from, to string, n int) []string {
	common := 0
	for common < len(from) && common < len(to) && from[common] == to[common] {
		common++
	}
	var window [numberBytes]byte
	copy(window[:], to[common:])
	top := new(big.Int).SetBytes(window[:])
	var cuts []string
	for i := uint(0); i < 8*numberBytes && len(cuts) < n-1; i++ {
		x := new(big.Int).Sub(top, new(big.Int).Lsh(big.NewInt(1), i))
		if x.Sign() < 0 {
			break
		}
		cut := to[:common] + string(x.FillBytes(window[:]))
		if cut <= from {
			break
		}
		cuts = append(cuts, cut)
	}
	return append(cuts, from)
}
