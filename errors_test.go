package ipalloc_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
)

// The text of an error says what was asked, of what, and what stands in the way, once.
func TestErrorText(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/16")
	for _, tt := range []struct {
		err  ipalloc.Error
		want string
	}{
		{ipalloc.Error{Package: "cidrset", Op: "allocate", Pool: pool, Err: ipalloc.ErrFull},
			"cidrset: allocate in 10.0.0.0/16: full"},
		{ipalloc.Error{Package: "cidrset", Op: "allocate", Bits: 22, Pool: pool, Err: ipalloc.ErrFull,
			Reason: "no free prefix of that length (largest is /23)"},
			"cidrset: allocate /22 in 10.0.0.0/16: no free prefix of that length (largest is /23)"},
		{ipalloc.Error{Package: "nodeipam", Op: "new", Field: "Slots[1].Bits", Bits: 129, Err: ipalloc.ErrInvalid},
			"nodeipam: new /129: Slots[1].Bits: invalid argument"},
		{ipalloc.Error{Package: "nodeipam", Op: "observe", Owner: "n 1", Text: "garbage", Err: ipalloc.ErrInvalid, Reason: "not a prefix"},
			`nodeipam: observe "garbage" for "n 1": not a prefix`},
		{ipalloc.Error{Package: "servicealloc", Op: "occupy", Addr: netip.MustParseAddr("10.0.0.7"), Owner: "a/b",
			Name: "default", Pool: pool, Holder: "c/d", Err: ipalloc.ErrOccupied},
			`servicealloc: occupy 10.0.0.7 for "a/b" in "default" 10.0.0.0/16: occupied, held by "c/d"`},
		{ipalloc.Error{Package: "cidrset", Op: "claim", Prefix: netip.MustParsePrefix("10.0.0.0/22"), Pool: pool,
			InTheWay: netip.MustParsePrefix("10.0.1.0/24"), Err: ipalloc.ErrOccupied},
			"cidrset: claim 10.0.0.0/22 in 10.0.0.0/16: occupied at 10.0.1.0/24"},
		{ipalloc.Error{Package: "servicealloc", Op: "occupy", Port: 30000, Err: ipalloc.ErrOccupied},
			"servicealloc: occupy port 30000: occupied"},
		{ipalloc.Error{Package: "cidrset", Op: "allocate", Pool: pool, Until: time.Unix(0, 0), Err: ipalloc.ErrCooling},
			"cidrset: allocate in 10.0.0.0/16: cooling until 1970-01-01T00:00:00Z"},
		{ipalloc.Error{Package: "x", Op: "y"}, "x: y: failed"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// An error that wraps an Error answers errors.Is and errors.As.
func TestErrorUnwrap(t *testing.T) {
	err := fmt.Errorf("node a: %w", &ipalloc.Error{Package: "p", Op: "o", Holder: "h", Err: fmt.Errorf("%w: why", ipalloc.ErrFull)})
	var e *ipalloc.Error
	if !errors.Is(err, ipalloc.ErrFull) || !errors.As(err, &e) || e.Holder != "h" {
		t.Errorf("%v: is full %v, as %v", err, errors.Is(err, ipalloc.ErrFull), e)
	}
}
