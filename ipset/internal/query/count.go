package query

import (
	"math"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// A pool of IPv6 has more addresses than 64 bits count, and a sum that wraps would show an empty pool as full.

// Count is the type of that name of the engine, as far as counting needs it.
type Count struct{ Hi, Lo uint64 }

// maxCount is the largest Count.
var maxCount = Count{math.MaxUint64, math.MaxUint64}

// Add returns c+d, or the largest Count if the sum exceeds it.
func (c Count) Add(d Count) Count {
	if sum := Count(addr.U128(c).Add(addr.U128(d))); sum.Cmp(c) >= 0 {
		return sum
	}
	return maxCount
}

// Sub returns c-d, or 0 if d is larger.
func (c Count) Sub(d Count) Count {
	if c.Cmp(d) < 0 {
		return Count{}
	}
	return Count(addr.U128(c).Sub(addr.U128(d)))
}

// Cmp returns -1, 0 or 1 as c is less than, equal to or greater than d.
func (c Count) Cmp(d Count) int { return addr.U128(c).Cmp(addr.U128(d)) }
