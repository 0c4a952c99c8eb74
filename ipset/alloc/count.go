package alloc

import (
	"math"
	"math/big"
	"math/bits"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/addr"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// Count is a number of addresses: Hi * 2^64 + Lo. Counts are comparable by ==. Text and
// JSON write it as a string of decimal digits, because many JSON parsers round numbers
// above 2^53.
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

// Div returns c divided by n, rounded down. It panics if n is 0.
func (c Count) Div(n uint64) Count {
	hi, rest := bits.Div64(0, c.Hi, n)
	lo, _ := bits.Div64(rest, c.Lo, n)
	return Count{hi, lo}
}

// Cmp returns -1, 0 or 1 as c is less than, equal to or greater than d.
func (c Count) Cmp(d Count) int { return addr.U128(c).Cmp(addr.U128(d)) }

// IsZero reports whether c is 0.
func (c Count) IsZero() bool { return c == Count{} }

// Uint64 returns c, or the largest uint64 and false if c exceeds that.
func (c Count) Uint64() (n uint64, ok bool) {
	if c.Hi != 0 {
		return math.MaxUint64, false
	}
	return c.Lo, true
}

// Float64 returns c rounded to 53 significant bits.
func (c Count) Float64() float64 { return float64(c.Hi)*(1<<64) + float64(c.Lo) }

// Ratio returns c as a share of all, from 0 to 1 if c is a part of all. It returns 0 if
// all is 0.
func (c Count) Ratio(all Count) float64 {
	if all.IsZero() {
		return 0
	}
	return c.Float64() / all.Float64()
}

// String returns c in decimal digits.
func (c Count) String() string { return c.big().String() }

func (c Count) big() *big.Int {
	n := new(big.Int).SetUint64(c.Hi)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(c.Lo))
}

// MarshalText implements [encoding.TextMarshaler] with the text of String.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It fails with [ipalloc.ErrInvalid]
// for any text that String does not write.
func (c *Count) UnmarshalText(text []byte) error {
	n, ok := new(big.Int).SetString(string(text), 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 128 || n.String() != string(text) {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "count", Text: string(text), Err: ipalloc.ErrInvalid})
	}
	hi, lo := new(big.Int), new(big.Int)
	hi.Rsh(n, 64)
	lo.Sub(n, new(big.Int).Lsh(hi, 64))
	*c = Count{hi.Uint64(), lo.Uint64()}
	return nil
}
