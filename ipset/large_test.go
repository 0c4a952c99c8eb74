package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestLargeAttributesConcernTheirAddressAlone gives addresses attributes near and above what the store takes in a value or in a
// commit. A call that does not fit fails and leaves no trace; the calls beside it, of the same host and block and of others, in
// turn and at once, succeed, and so does what frees the large ones.
func TestLargeAttributesConcernTheirAddressAlone(t *testing.T) {
	attributes := func(size int) alloc.Attributes {
		a, err := alloc.NewAttributes(map[string]string{"k": strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, limits := range []store.Limits{{Ops: 127, Value: 64 << 10, Bytes: 100 << 10}, {Ops: 127, Value: 62 << 10}, {Bytes: 61 << 10}} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
		e := w.engine(faults.NewLimited(w.store, limits))
		var large []netip.Addr
		for i := range 12 { // eight of one host's first block would not fit into one record
			a := want("h", 1, fmt.Sprint("large", i))
			a.Attributes = attributes(60_000)
			got, err := e.AutoAssign(bg, a)
			if err != nil || len(got.V4) != 1 {
				t.Fatalf("%+v: address %d: %v, %v", limits, i, got, err)
			}
			large = append(large, got.V4[0].Address)
			if got, err := e.AutoAssign(bg, want("h", 1, fmt.Sprint("small", i))); err != nil || len(got.V4) != 1 {
				t.Fatalf("%+v: beside %d large ones: %v, %v", limits, i+1, got, err)
			}
			a = want("h", 1, "beyond")
			a.Attributes = attributes(65_000)
			if limits.Value != 64<<10 { // it fits there
				if got, err := e.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrLimit) {
					t.Fatalf("%+v: beyond the limit: %v, %v", limits, got, err)
				}
			}
		}
		errs := make(chan error)
		for i := range 20 {
			go func() {
				a := want(fmt.Sprint([]string{"h", "g"}[i%2]), 1, fmt.Sprint("crowd", i))
				if i%3 == 0 {
					a.Attributes = attributes(60_000)
				}
				_, err := e.AutoAssign(bg, a)
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; err != nil {
				t.Errorf("%+v: at once: %v", limits, err)
			}
		}
		if als, err := e.IPsByHandle(bg, "beyond"); err != nil || len(als) != 0 {
			t.Errorf("%+v: a call that does not fit left %v, %v", limits, als, err)
		}
		for i, at := range large {
			if al, err := e.Lookup(bg, at); err != nil || al.Attributes != attributes(60_000) {
				t.Errorf("%+v: %s: %v", limits, at, err)
			}
			if als, err := e.ReleaseByHandle(bg, fmt.Sprint("large", i)); err != nil || len(als) != 1 {
				t.Errorf("%+v: release: %v, %v", limits, als, err)
			}
		}
	}
}
