package alloc

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/ipalloc/ipalloc"
)

var counts = []Count{{}, {Lo: 1}, {Lo: 2}, {Lo: 63}, {Lo: 1<<53 + 1}, {Lo: math.MaxUint64}, {Hi: 1}, {Hi: 1, Lo: 1}, {Hi: 1 << 16}, {Hi: math.MaxUint64}, maxCount}

// A Count calculates as an integer of unlimited size would, and stays at its ends in place of wrapping around.
func TestCountAgreesWithBig(t *testing.T) {
	most := maxCount.big()
	for _, c := range counts {
		for _, d := range counts {
			sum := new(big.Int).Add(c.big(), d.big())
			if sum.Cmp(most) > 0 {
				sum = most
			}
			diff := new(big.Int).Sub(c.big(), d.big())
			if diff.Sign() < 0 {
				diff = new(big.Int)
			}
			if got := c.Add(d).String(); got != sum.String() {
				t.Errorf("%s + %s = %s", c, d, got)
			}
			if got := c.Sub(d).String(); got != diff.String() {
				t.Errorf("%s - %s = %s", c, d, got)
			}
			if got := c.Cmp(d); got != c.big().Cmp(d.big()) {
				t.Errorf("%s against %s: %d", c, d, got)
			}
			ratio := 0.0
			if !d.IsZero() {
				ratio, _ = new(big.Rat).SetFrac(c.big(), d.big()).Float64()
			}
			if got := c.Ratio(d); math.Abs(got-ratio) > 1e-15*ratio {
				t.Errorf("%s of %s is %v, want %v", c, d, got, ratio)
			}
		}
		for _, n := range []uint64{1, 2, 3, 64, math.MaxUint64} {
			if got, want := c.Div(n).String(), new(big.Int).Div(c.big(), new(big.Int).SetUint64(n)); got != want.String() {
				t.Errorf("%s / %d = %s, want %s", c, n, got, want)
			}
		}
		if n, ok := c.Uint64(); ok != (c.Hi == 0) || ok && n != c.Lo || !ok && n != math.MaxUint64 {
			t.Errorf("%s as a uint64: %d, %v", c, n, ok)
		}
	}
}

// A Count is text of decimal digits, also in JSON, and nothing else is read as one.
func TestCountText(t *testing.T) {
	for _, c := range counts {
		b, err := json.Marshal(c)
		if err != nil || string(b) != `"`+c.big().String()+`"` {
			t.Errorf("%v: %s, %v", c, b, err)
		}
		var back Count
		if err := json.Unmarshal(b, &back); err != nil || back != c {
			t.Errorf("%s: %v, %v", b, back, err)
		}
	}
	for _, s := range []string{"", "-1", "+1", "01", "1.0", "0x1", "1e3", " 1", "340282366920938463463374607431768211456"} {
		c := Count{Lo: 7}
		if err := c.UnmarshalText([]byte(s)); !errors.Is(err, ipalloc.ErrInvalid) || c != (Count{Lo: 7}) {
			t.Errorf("%q: %v, %v", s, c, err)
		}
	}
}
