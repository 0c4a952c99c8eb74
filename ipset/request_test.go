package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
)

// TestRequestKeyIsBoundToItsArguments: the same key with any other argument is refused, and nothing is assigned.
func TestRequestKeyIsBoundToItsArguments(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/26", 28))
	first := want("h", 2, "p")
	first.Request, first.Pools, first.Namespace = "r", []string{"a"}, map[string]string{"k": "v"}
	got := w.assign(first)
	before, _ := w.store.MarshalBinary()
	for name, change := range map[string]func(*alloc.AssignArgs){
		"owner":      func(a *alloc.AssignArgs) { a.Owner = alloc.HostOwner("g") },
		"number":     func(a *alloc.AssignArgs) { a.Num4 = 3 },
		"family":     func(a *alloc.AssignArgs) { a.Num6 = 1 },
		"handle":     func(a *alloc.AssignArgs) { a.Handle = "q" },
		"attributes": func(a *alloc.AssignArgs) { a.Attributes, _ = alloc.NewAttributes(map[string]string{"a": "b"}) },
		"time":       func(a *alloc.AssignArgs) { a.TTL = time.Hour },
		"use":        func(a *alloc.AssignArgs) { a.Use = alloc.Tunnel },
		"namespace":  func(a *alloc.AssignArgs) { a.Namespace = map[string]string{"k": "w"} },
		"pools":      func(a *alloc.AssignArgs) { a.Pools = nil },
		"limit":      func(a *alloc.AssignArgs) { a.Blocks.Max = 4 },
		"all":        func(a *alloc.AssignArgs) { a.Partial = false },
	} {
		a := first
		change(&a)
		for _, e := range []*Engine{w.Engine, w.engine(w.store)} {
			if got, err := e.AutoAssign(bg, a); !errors.Is(err, ipalloc.ErrInvalid) {
				t.Errorf("another %s: %+v, %v", name, got, err)
			}
		}
	}
	if _, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: got.V4[0].Address, Owner: first.Owner, Handle: "q", Request: "r"}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Errorf("another verb: %v", err)
	}
	if after, _ := w.store.MarshalBinary(); string(after) != string(before) {
		t.Error("the store changed")
	}
	named := alloc.AssignIPArgs{Address: netip.MustParseAddr("10.0.0.40"), Owner: first.Owner, Handle: "n", Request: "n"}
	for _, want := range []error{nil, ipalloc.ErrInvalid} {
		if _, err := w.AssignIP(bg, named); !errors.Is(err, want) {
			t.Errorf("held since %v: %v, want %v", named.Since, err, want)
		}
		named.Since = time.Unix(1<<30, 0)
	}
	if again := w.assign(first); !slices.Equal(again.V4, got.V4) {
		t.Errorf("%+v, first %+v", again, got)
	}
	// The order of the pools is a preference, and may be another one by the time of a repetition.
	w.AddPool(bg, poolOf("b", "10.0.1.0/26", 28))
	first.Request, first.Handle, first.Pools = "r2", "p2", []string{"a", "b"}
	got = w.assign(first)
	if first.Pools = []string{"b", "a"}; !slices.Equal(w.assign(first).V4, got.V4) {
		t.Error("the order of the pools made another request")
	}
}

// TestNamedPoolsInOrder: among named pools of one priority, a new block comes from the first named one with a free place, whatever their
// names; a priority and the owner's own blocks come first, and the identity of a handle does not depend on the order.
func TestNamedPoolsInOrder(t *testing.T) {
	pools := []alloc.Pool{poolOf("a", "10.0.0.0/28", 28), poolOf("b", "10.0.1.0/28", 28), poolOf("c", "10.0.2.0/28", 28), poolOf("d", "10.0.3.0/28", 28)}
	pools[2].Priority = 1
	for _, tt := range []struct{ names, want string }{
		{"a b d", "10.0.0.0 10.0.1.0 10.0.3.0"},
		{"d a b", "10.0.3.0 10.0.0.0 10.0.1.0"},
		{"b d b a", "10.0.1.0 10.0.3.0 10.0.0.0"},
		{"d c a", "10.0.2.0 10.0.3.0 10.0.0.0"},
		{"", "10.0.2.0 10.0.0.0 10.0.1.0 10.0.3.0"},
	} {
		w := newWorld(t, alloc.Config{Strict: true}, pools...)
		names := strings.Fields(tt.names)
		for i, at := range strings.Fields(tt.want) {
			host := alloc.HostOwner(fmt.Sprint("h", i))
			got, err := w.Assign(bg, host, fmt.Sprint("pod", i), names...)
			if err != nil || got.Block.Addr() != ip(at) {
				t.Errorf("%q, host %d: %v, %v, want %s", tt.names, i, got.Address, err, at)
			}
			slices.Reverse(names)
			if again, err := w.Assign(bg, host, fmt.Sprint("pod", i), names...); err != nil || again != got {
				t.Errorf("%q, host %d: %v, %v, was %v", tt.names, i, again.Address, err, got.Address)
			}
			if next, err := w.Assign(bg, host, fmt.Sprint("next", i), names...); err != nil || next.Block != got.Block {
				t.Errorf("%q, host %d: %v, %v, and not in the owner's block %v", tt.names, i, next.Address, err, got.Block)
			}
			slices.Reverse(names)
		}
	}
}

// TestRequestKeyTwiceInOneBatch: calls with one key that come together get one answer.
func TestRequestKeyTwiceInOneBatch(t *testing.T) {
	w, g, e := newGated(t)
	go e.AutoAssign(bg, want("h", 1, "first"))
	<-g.arrived
	type answer struct {
		got alloc.Assigned
		err error
	}
	answers := make(chan answer, 5)
	for i := range 5 {
		go func() {
			a := want("h", 2, "pod")
			a.Request = "r"
			got, err := e.AutoAssign(bg, a)
			answers <- answer{got, err}
		}()
		waitFor(e, i+1)
	}
	close(g.open)
	first := <-answers
	for range 4 {
		if a := <-answers; a.err != nil || !slices.Equal(a.got.V4, first.got.V4) {
			t.Errorf("%+v, another %+v", a, first)
		}
	}
	if als, _ := w.IPsByHandle(bg, "pod"); len(als) != 2 {
		t.Errorf("holds %v", als)
	}
	w.check()
}

// TestAnswerBytes: every cut of an answer is refused, and so is a length that the bytes do not have.
func TestAnswerBytes(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/29", 29), poolOf("b", "fd00::/125", 125))
	a := want("h", 2, "p")
	a.Num6, a.Request = 1, "r"
	w.assign(a)
	recs, err := w.store.Get(bg, nil, record.KindRequest+"r")
	if err != nil || recs[0].Rev == 0 {
		t.Fatal(recs, err)
	}
	whole := recs[0].Value
	if m, err := record.DecodeMemo("", whole, true); err != nil || string(m.Append(nil)) != whole {
		t.Fatal(err)
	}
	for i := range whole {
		if _, err := record.DecodeMemo("", whole[:i], true); err == nil {
			t.Errorf("%d of %d bytes are an answer", i, len(whole))
		}
	}
	for i, s := range []string{whole + "\x00", "\x02" + whole[1:]} {
		if _, err := record.DecodeMemo("", s, true); err == nil {
			t.Error(fmt.Sprint("hostile bytes ", i))
		}
	}
}

// Arguments that differ only in where an item of a list or map ends are other arguments.
func TestRequestTellsListsApart(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28), poolOf("b", "10.0.1.0/24", 28), poolOf("a b", "10.0.2.0/24", 28))
	attrs := func(m map[string]string) alloc.Attributes { a, _ := alloc.NewAttributes(m); return a }
	for i, two := range [][2]func(a *alloc.AssignArgs){
		{func(a *alloc.AssignArgs) { a.Pools = []string{"a b"} }, func(a *alloc.AssignArgs) { a.Pools = []string{"a", "b"} }},
		{func(a *alloc.AssignArgs) { a.Namespace = map[string]string{"a": "b c:d"} }, func(a *alloc.AssignArgs) { a.Namespace = map[string]string{"a": "b", "c": "d"} }},
		{func(a *alloc.AssignArgs) { a.Attributes = attrs(map[string]string{"k": "v w", "x": "y"}) }, func(a *alloc.AssignArgs) { a.Attributes = attrs(map[string]string{"k": "v", "w x": "y"}) }},
	} {
		a := want("h", 1, fmt.Sprint("p", i))
		a.Request = fmt.Sprint(i)
		first, second := a, a
		two[0](&first)
		two[1](&second)
		w.assign(first)
		if _, err := w.AutoAssign(bg, second); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
		w.assign(first)
	}
}

// A request that is repeated after its address moved to another host, with the handle, gets neither that address nor a second one.
// If the handle has come back, the repetition returns the address.
func TestRequestOfAHandleThatMoved(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("p", "10.0.0.0/24", 28))
	a, b := alloc.HostOwner("a"), alloc.HostOwner("b")
	for name, call := range map[string]func() ([]alloc.Allocation, error){
		"auto": func() ([]alloc.Allocation, error) {
			got, err := w.AutoAssign(bg, alloc.AssignArgs{Owner: a, Num4: 1, Handle: "auto", Request: "r-auto"})
			return got.V4, err
		},
		"named": func() ([]alloc.Allocation, error) {
			al, err := w.AssignIP(bg, alloc.AssignIPArgs{Address: ip("10.0.0.77"), Owner: a, Handle: "named", Request: "r-named"})
			return []alloc.Allocation{al}, err
		},
	} {
		first, err := call()
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := w.Assign(bg, b, name); err != nil {
			t.Fatal(name, err)
		}
		var e *ipalloc.Error
		if _, err := call(); !errors.Is(err, ipalloc.ErrMismatch) || !errors.As(err, &e) || e.Addr != first[0].Address || e.Holder != b.String() {
			t.Errorf("%s, repeated at the first host: %v", name, err)
		}
		if all, err := w.IPsByHandle(bg, name); err != nil || len(all) != 1 || all[0].Host != b {
			t.Errorf("%s: the handle holds %v, %v", name, all, err)
		}
		if _, err := w.Assign(bg, a, name); err != nil {
			t.Fatal(name, err)
		}
		if again, err := call(); err != nil || len(again) != 1 || again[0].Address != first[0].Address {
			t.Errorf("%s, back at the first host: %v, %v", name, again, err)
		}
		w.check()
	}
}
