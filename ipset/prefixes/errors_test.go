package prefixes

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
)

var sentinels = []error{
	ipalloc.ErrInvalid, ipalloc.ErrFull, ipalloc.ErrCooling, ipalloc.ErrOccupied, ipalloc.ErrNotHeld, ipalloc.ErrOutOfRange,
	ipalloc.ErrReserved, ipalloc.ErrVersion, ipalloc.ErrReplaced, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse,
	ipalloc.ErrMismatch, ipalloc.ErrLimit, ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrCorrupt, ipalloc.ErrClosed,
}

// keeps reports an error that is not of this package and the call, of one line, and of the one sentinel.
func keeps(t *testing.T, call string, err, want error) {
	t.Helper()
	e, ok := err.(*ipalloc.Error)
	if !ok || e.Package != pkg || strings.ReplaceAll(e.Op, " ", "") != strings.ToLower(call) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %#v", call, err)
		return
	}
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == want) {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
	if (e.Field == "") == (want == ipalloc.ErrInvalid) {
		t.Errorf("%s: %v has the field %q", call, err, e.Field)
	}
}

// Arguments that no state of the store could grant.
var (
	aPool       = prefix("10.0.0.0/8")
	badPrefixes = []netip.Prefix{
		{}, netip.MustParsePrefix("10.0.0.1/8"), netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104), netip.PrefixFrom(aPool.Addr(), 33),
	}
	badOwners  = []string{"", "a\x00b", strings.Repeat("o", MaxOwner+1)}
	badLengths = []int{-200, -1, 0, 7, 33, 200}
	tooLong    = strings.Repeat("a", MaxAttributes+1)
)

func badRequests() []Request {
	bad := []Request{{Pool: aPool, Owner: "o", Bits: 24, Attributes: tooLong}}
	for _, p := range badPrefixes {
		bad = append(bad, Request{Pool: p, Owner: "o", Bits: 24})
	}
	for _, o := range badOwners {
		bad = append(bad, Request{Pool: aPool, Owner: o, Bits: 24})
	}
	bad = append(bad, Request{Pool: aPool, Owner: "o", Bits: 8, Children: Sizes{16, 24}}, Request{Pool: aPool, Owner: "o", Bits: 24, TTL: -1})
	bad = append(bad, Request{Pool: aPool, Owner: "o", Bits: 16, TTL: 1, Children: Sizes{20, 24}})
	for _, s := range []Sizes{{28, 26}, {24, 28}, {28, 33}, {-1, 28}} {
		bad = append(bad, Request{Pool: aPool, Owner: "o", Bits: 24, Children: s})
	}
	return bad
}

// row makes every call of one method that has to be refused.
type row func(ctx context.Context, a *Allocator, refuse func(error))

func second(_ any, err error) error { return err }

func ofPrefix(call func(context.Context, *Allocator, netip.Prefix) error) row {
	return func(ctx context.Context, a *Allocator, refuse func(error)) {
		for _, p := range badPrefixes {
			refuse(call(ctx, a, p))
		}
	}
}

func ofRequest(call func(context.Context, *Allocator, Request) (Holding, error)) row {
	return func(ctx context.Context, a *Allocator, refuse func(error)) {
		for _, r := range badRequests() {
			refuse(second(call(ctx, a, r)))
		}
		for _, n := range badLengths {
			refuse(second(call(ctx, a, Request{Pool: aPool, Owner: "o", Bits: n})))
		}
	}
}

func ofHolding(call func(ctx context.Context, a *Allocator, owner string, at netip.Prefix) error) row {
	return func(ctx context.Context, a *Allocator, refuse func(error)) {
		for _, p := range badPrefixes {
			refuse(call(ctx, a, "o", p))
		}
		for _, o := range badOwners {
			refuse(call(ctx, a, o, aPool))
		}
	}
}

func refusedAddPool(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes {
		refuse(a.AddPool(ctx, Pool{p, Sizes{24, 28}}))
	}
	for _, s := range badSizes {
		refuse(a.AddPool(ctx, Pool{aPool, s}))
	}
}

var badSizes = []Sizes{{}, {7, 24}, {24, 9}, {24, 33}, {-1, 24}}

func refusedSetSizes(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes {
		refuse(a.SetSizes(ctx, p, Sizes{24, 28}))
	}
	for _, s := range badSizes {
		refuse(a.SetSizes(ctx, aPool, s))
	}
}

func refusedOccupy(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes {
		refuse(second(a.Occupy(ctx, p, Request{Pool: aPool, Owner: "o"})))
	}
	for _, r := range badRequests() {
		refuse(second(a.Occupy(ctx, prefix("10.0.0.0/24"), r)))
	}
}

func refusedFits(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes {
		refuse(second(a.Fits(ctx, p, 24)))
	}
	for _, n := range badLengths {
		refuse(second(a.Fits(ctx, aPool, n)))
	}
}

func refusedAll(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes[1:] { // the zero Prefix is everything
		refuse(drain(a.All(ctx, p)))
	}
}

func refusedState(ctx context.Context, a *Allocator, refuse func(error)) {
	for _, p := range badPrefixes[1:] { // the zero Prefix is everything
		_, _, err := a.State(ctx, p)
		refuse(err)
	}
}

func refusedOwners(call func(context.Context, *Allocator, string) ([]Holding, error)) row {
	return func(ctx context.Context, a *Allocator, refuse func(error)) {
		for _, o := range badOwners {
			refuse(second(call(ctx, a, o)))
		}
	}
}

// rows are the methods of an Allocator; nil is one without an argument to refuse.
var rows = map[string]row{
	"AddPool": refusedAddPool, "SetSizes": refusedSetSizes, "Occupy": refusedOccupy, "Fits": refusedFits, "All": refusedAll, "State": refusedState,
	"Pools": nil, "Check": nil, "Repair": nil, "Changes": nil, "Sweep": nil,
	"Allocate":       ofRequest(func(ctx context.Context, a *Allocator, r Request) (Holding, error) { return a.Allocate(ctx, r) }),
	"Assign":         ofRequest(func(ctx context.Context, a *Allocator, r Request) (Holding, error) { return a.Assign(ctx, r) }),
	"Owned":          refusedOwners(func(ctx context.Context, a *Allocator, o string) ([]Holding, error) { return a.Owned(ctx, o) }),
	"ReleaseByOwner": refusedOwners(func(ctx context.Context, a *Allocator, o string) ([]Holding, error) { return a.ReleaseByOwner(ctx, o) }),
	"RemovePool":     ofPrefix(func(ctx context.Context, a *Allocator, p netip.Prefix) error { return a.RemovePool(ctx, p) }),
	"Get":            ofPrefix(func(ctx context.Context, a *Allocator, p netip.Prefix) error { return second(a.Get(ctx, p)) }),
	"Path":           ofPrefix(func(ctx context.Context, a *Allocator, p netip.Prefix) error { return second(a.Path(ctx, p)) }),
	"Utilization":    ofPrefix(func(ctx context.Context, a *Allocator, p netip.Prefix) error { return second(a.Utilization(ctx, p)) }),
	"Levels":         ofPrefix(func(ctx context.Context, a *Allocator, p netip.Prefix) error { return second(a.Levels(ctx, p)) }),
	"Release":        ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error { return a.Release(ctx, p, o) }),
	"ReleaseTree": ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error {
		return second(a.ReleaseTree(ctx, p, o))
	}),
	"SetChildren": func(ctx context.Context, a *Allocator, refuse func(error)) {
		ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error {
			return second(a.SetChildren(ctx, p, o, Sizes{}))
		})(ctx, a, refuse)
		for _, s := range badSizes[1:] { // the zero Sizes is no pool
			refuse(second(a.SetChildren(ctx, aPool, "o", s)))
		}
	},
	"Transfer": func(ctx context.Context, a *Allocator, refuse func(error)) {
		ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error {
			return second(a.Transfer(ctx, p, o, "p"))
		})(ctx, a, refuse)
		for _, to := range badOwners {
			refuse(second(a.Transfer(ctx, aPool, "o", to)))
		}
	},
	"Renew": func(ctx context.Context, a *Allocator, refuse func(error)) {
		ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error {
			return second(a.Renew(ctx, p, o, RenewArgs{TTL: 1}))
		})(ctx, a, refuse)
		refuse(second(a.Renew(ctx, aPool, "o", RenewArgs{TTL: -1})))
	},
	"SetAttributes": func(ctx context.Context, a *Allocator, refuse func(error)) {
		ofHolding(func(ctx context.Context, a *Allocator, o string, p netip.Prefix) error {
			return second(a.SetAttributes(ctx, p, o, ""))
		})(ctx, a, refuse)
		refuse(second(a.SetAttributes(ctx, aPool, "o", tooLong)))
	},
}

// TestImpossibleArguments: every exported method has a row, and refuses each impossible argument.
func TestImpossibleArguments(t *testing.T) {
	for i, of := 0, reflect.TypeFor[*Allocator](); i < of.NumMethod(); i++ {
		if _, ok := rows[of.Method(i).Name]; !ok {
			t.Errorf("%s has no row", of.Method(i).Name)
		}
	}
	s, _ := furnished(t)
	for name, row := range rows {
		if row != nil {
			row(t.Context(), allocator(t, s), func(err error) { t.Helper(); keeps(t, name, err, ipalloc.ErrInvalid) })
		}
	}
	keeps(t, "New", second(New(s, Options{Attempts: -1})), ipalloc.ErrInvalid)
	keeps(t, "New", second(New(s, Options{Skew: -1})), ipalloc.ErrInvalid)
	keeps(t, "New", second(New(nil, Options{})), ipalloc.ErrInvalid)
}

// TestErrorsOfTheStore: what a store answers is an error of the call, whatever the call and whichever of its calls of the store.
func TestErrorsOfTheStore(t *testing.T) {
	for name, call := range calls {
		for k, met := 1, true; met && !strings.Contains(name, " "); k++ {
			s, _ := furnished(t)
			f := faults.NewFaulty(s)
			met = false
			f.Script(func(_ context.Context, c faults.Call) faults.Outcome {
				if met = met || c.N == k; c.N == k {
					return faults.Fail(ipalloc.ErrClosed)
				}
				return faults.Outcome{}
			})
			if err := call.do(t.Context(), allocator(t, f)); met {
				keeps(t, name, err, ipalloc.ErrClosed)
			}
			f.Script(nil)
		}
	}
}
