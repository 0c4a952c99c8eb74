package prefixes

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store/storetest"
)

var sentinels = []error{
	ipalloc.ErrInvalid, ipalloc.ErrFull, ipalloc.ErrCooling, ipalloc.ErrOccupied, ipalloc.ErrNotHeld, ipalloc.ErrOutOfRange,
	ipalloc.ErrMisaligned, ipalloc.ErrReserved, ipalloc.ErrDuplicate, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse,
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

// TestImpossibleArguments: every method that returns an error has a row, and refuses each impossible argument before it reads or
// changes anything. A row without arguments to refuse is empty.
func TestImpossibleArguments(t *testing.T) {
	var none netip.Prefix
	pool, host := prefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.1/8")
	mapped, long := netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104), strings.Repeat("o", MaxOwner+1)
	badPrefixes := []netip.Prefix{none, host, mapped, netip.PrefixFrom(pool.Addr(), 33)}
	badOwners := []string{"", "a\x00b", long}
	var badRequests []Request
	for _, p := range badPrefixes {
		badRequests = append(badRequests, Request{Pool: p, Owner: "o", Bits: 24})
	}
	for _, o := range badOwners {
		badRequests = append(badRequests, Request{Pool: pool, Owner: o, Bits: 24})
	}
	for _, s := range []Sizes{{28, 26}, {24, 28}, {28, 33}, {-1, 28}} {
		badRequests = append(badRequests, Request{Pool: pool, Owner: "o", Bits: 24, Children: s})
	}
	badRequests = append(badRequests, Request{Pool: pool, Owner: "o", Bits: 24, Attributes: strings.Repeat("a", MaxAttributes+1)})
	badLengths := []int{-200, -1, 0, 8, 33, 200}
	ctx := t.Context()
	rows := map[string]func(a *Allocator, refuse func(error)){
		"AddPool": func(a *Allocator, refuse func(error)) {
			for _, p := range badPrefixes {
				refuse(a.AddPool(ctx, Pool{p, Sizes{24, 28}}))
			}
			for _, s := range []Sizes{{}, {8, 24}, {24, 9}, {24, 33}, {-1, 24}} {
				refuse(a.AddPool(ctx, Pool{pool, s}))
			}
			refuse(a.AddPool(ctx, Pool{prefix("::/0"), Sizes{1, 128}}))
		},
		"Occupy": func(a *Allocator, refuse func(error)) {
			at := func(p netip.Prefix, r Request) { _, err := a.Occupy(ctx, p, r); refuse(err) }
			for _, p := range badPrefixes {
				at(p, Request{Pool: pool, Owner: "o"})
			}
			for _, r := range badRequests {
				at(prefix("10.0.0.0/24"), r)
			}
			at(pool, Request{Pool: pool, Owner: "o"})
		},
		"Release": func(a *Allocator, refuse func(error)) {
			for _, p := range badPrefixes {
				refuse(a.Release(ctx, "o", p))
			}
			for _, o := range badOwners {
				refuse(a.Release(ctx, o, pool))
			}
		},
		"Transfer": func(a *Allocator, refuse func(error)) {
			transfer := func(p netip.Prefix, from, to string) { _, err := a.Transfer(ctx, p, from, to); refuse(err) }
			for _, p := range badPrefixes {
				transfer(p, "o", "p")
			}
			for _, o := range badOwners {
				transfer(pool, o, "p")
				transfer(pool, "o", o)
			}
		},
		"SetAttributes": func(a *Allocator, refuse func(error)) {
			set := func(o string, p netip.Prefix, s string) { _, err := a.SetAttributes(ctx, o, p, s); refuse(err) }
			for _, p := range badPrefixes {
				set("o", p, "")
			}
			for _, o := range badOwners {
				set(o, pool, "")
			}
			set("o", pool, strings.Repeat("a", MaxAttributes+1))
		},
		"Fits": func(a *Allocator, refuse func(error)) {
			for _, p := range badPrefixes {
				_, err := a.Fits(ctx, p, 24)
				refuse(err)
			}
			for _, n := range badLengths {
				_, err := a.Fits(ctx, pool, n)
				refuse(err)
			}
		},
		"All": func(a *Allocator, refuse func(error)) {
			for _, p := range badPrefixes[1:] { // the zero Prefix is everything
				refuse(drain(a.All(ctx, p)))
			}
		},
		"ReleaseByOwner": func(a *Allocator, refuse func(error)) {
			for _, o := range badOwners {
				_, err := a.ReleaseByOwner(ctx, o)
				refuse(err)
			}
		},
		"Owned": func(a *Allocator, refuse func(error)) {
			for _, o := range badOwners {
				_, err := a.Owned(ctx, o)
				refuse(err)
			}
		},
		"Pools": nil, "Check": nil, "Repair": nil, "Changes": nil,
	}
	for name, call := range map[string]func(*Allocator, Request) (Holding, error){
		"Allocate": func(a *Allocator, r Request) (Holding, error) { return a.Allocate(ctx, r) },
		"Assign":   func(a *Allocator, r Request) (Holding, error) { return a.Assign(ctx, r) },
	} {
		rows[name] = func(a *Allocator, refuse func(error)) {
			for _, r := range badRequests {
				_, err := call(a, r)
				refuse(err)
			}
			for _, n := range badLengths {
				_, err := call(a, Request{Pool: pool, Owner: "o", Bits: n})
				refuse(err)
			}
		}
	}
	for name, call := range map[string]func(*Allocator, netip.Prefix) error{
		"RemovePool":  func(a *Allocator, p netip.Prefix) error { return a.RemovePool(ctx, p) },
		"Get":         func(a *Allocator, p netip.Prefix) error { _, err := a.Get(ctx, p); return err },
		"Path":        func(a *Allocator, p netip.Prefix) error { _, err := a.Path(ctx, p); return err },
		"Utilization": func(a *Allocator, p netip.Prefix) error { _, err := a.Utilization(ctx, p); return err },
		"Levels":      func(a *Allocator, p netip.Prefix) error { _, err := a.Levels(ctx, p); return err },
	} {
		rows[name] = func(a *Allocator, refuse func(error)) {
			for _, p := range badPrefixes {
				refuse(call(a, p))
			}
		}
	}
	for i, of := 0, reflect.TypeFor[*Allocator](); i < of.NumMethod(); i++ {
		if _, ok := rows[of.Method(i).Name]; !ok {
			t.Errorf("%s has no row", of.Method(i).Name)
		}
	}
	s, _ := furnished(t)
	for name, row := range rows {
		if row != nil {
			row(allocator(t, s), func(err error) { t.Helper(); keeps(t, name, err, ipalloc.ErrInvalid) })
		}
	}
	for _, o := range []Options{{Attempts: -1}} {
		_, err := New(s, o)
		keeps(t, "New", err, ipalloc.ErrInvalid)
	}
	_, err := New(nil, Options{})
	keeps(t, "New", err, ipalloc.ErrInvalid)
}

// TestErrorsOfTheStore: what a store answers is an error of the call, whatever the call and whichever of its calls of the store.
func TestErrorsOfTheStore(t *testing.T) {
	for name, call := range calls {
		for k, met := 1, true; met && !strings.Contains(name, " "); k++ {
			s, _ := furnished(t)
			f := storetest.NewFaulty(s)
			met = false
			f.Script(func(_ context.Context, c storetest.Call) storetest.Outcome {
				if met = met || c.N == k; c.N == k {
					return storetest.Fail(ipalloc.ErrClosed)
				}
				return storetest.Outcome{}
			})
			if err := call.do(t.Context(), allocator(t, f)); met {
				keeps(t, name, err, ipalloc.ErrClosed)
			}
			f.Script(nil)
		}
	}
}
