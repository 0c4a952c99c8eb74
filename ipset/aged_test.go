package ipset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestRequestsAreForgottenByAge: answers go when they are old, at the cost of those that go.
func TestRequestsAreForgottenByAge(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 26))
	ask := func(i int) alloc.Assigned {
		a := want("h", 1, fmt.Sprint("p", i))
		a.Request = fmt.Sprint("request ", i)
		return w.assign(a)
	}
	const n = 300
	for i := range n {
		ask(i)
		w.clock.add(time.Minute)
	}
	w.check()
	for _, tt := range []struct {
		args  alloc.SweepArgs
		after time.Duration
		n     int
	}{
		{alloc.SweepArgs{RequestsAfter: -1}, 1000 * time.Hour, 0},
		{alloc.SweepArgs{RequestsAfter: 1000*time.Hour + 101*time.Minute}, 0, 200},
		{alloc.SweepArgs{}, 0, 100}, // a day by default
		{alloc.SweepArgs{}, 0, 0},
	} {
		w.clock.add(tt.after)
		s := limited(w.store, 64)
		got, err := w.engine(s).Operator().Sweep(bg, tt.args)
		if err != nil || got.Requests != tt.n {
			t.Errorf("%+v: %+v, %v, want %d", tt.args, got, err, tt.n)
		}
		if touched(s) > 4*tt.n+10 { // entry and record, each read and removed
			t.Errorf("%+v: %d records touched to forget %d", tt.args, touched(s), tt.n)
		}
		w.check()
	}
	if n := w.records(record.KindRequest) + w.records(record.KindAged); n != 0 {
		t.Errorf("%d records are left", n)
	}
	if al := ask(0); len(al.V4) != 1 || al.V4[0].Handle != "p0" {
		t.Errorf("a forgotten key: %+v", al)
	}
}

// TestRequestsAreForgottenTogether: a commit on a store without limits forgets many, and one on a small store as many as fit.
func TestRequestsAreForgottenTogether(t *testing.T) {
	const n = 100
	for ops, most := range map[int]int{0: 3, 64: 8} {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 26))
		for i := range n {
			a := want("h", 1, fmt.Sprint("p", i))
			a.Request = fmt.Sprint("request ", i)
			w.assign(a)
		}
		w.clock.add(48 * time.Hour)
		s := faults.NewFaulty(w.store)
		if ops > 0 {
			s = limited(w.store, ops)
		}
		got, err := w.engine(s).Operator().Sweep(bg, alloc.SweepArgs{})
		if err != nil || got.Requests != n || s.Counts().Commits > most {
			t.Errorf("limit %d: %+v, %v, %d commits, want up to %d", ops, got, err, s.Counts().Commits, most)
		}
	}
}

// TestStickyHandlesAreForgotten: not while they hold an address, and only so long after.
func TestStickyHandlesAreForgotten(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26), poolOf("b", "2001:db8::/120", 122))
	for _, h := range []string{"holds", "left", "came back"} {
		a := want("h", 1, h)
		a.Num6, a.Sticky = 1, true
		w.assign(a)
		if h != "holds" {
			w.releaseHandle(h)
		}
	}
	w.check()
	w.clock.add(20 * 24 * time.Hour)
	a := want("h", 1, "came back")
	a.Sticky = true
	w.assign(a)
	w.releaseHandle("came back")
	w.check()
	w.clock.add(11 * 24 * time.Hour)
	for _, want := range []int{1, 0} { // one has left
		if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Sticky != want {
			t.Errorf("%+v, %v, want %d forgotten", s, err, want)
		}
		w.check()
	}
	if n, m := w.records(record.KindSticky), w.records(record.KindAged); n != 2 || m != 2 {
		t.Errorf("%d sticky records, %d by age", n, m)
	}
	w.releaseHandle("holds")
	w.clock.add(100 * 24 * time.Hour)
	if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{StickyAfter: -1}); err != nil || s.Sticky != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Sticky != 2 || w.records(record.KindSticky)+w.records(record.KindAged) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRequestNamedAsAHandle: an answer whose key is the name of a handle that holds an address is forgotten like any other.
func TestRequestNamedAsAHandle(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "vm")
	a.Request = "vm"
	w.assign(a)
	w.clock.add(48 * time.Hour)
	if s, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Requests != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestStickySweepCost: to see that a sticky handle holds addresses a sweep reads one of them.
func TestStickySweepCost(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 50, "vm")
	a.Sticky = true
	w.assign(a)
	w.clock.add(40 * 24 * time.Hour)
	s := faults.NewFaulty(w.store)
	if got, err := w.engine(s).Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || got.Sticky != 0 || touched(s) > 20 {
		t.Errorf("%+v, %v, %d records touched", got, err, touched(s))
	}
}

// TestSweepKeepsStickyHandlesInUse: a sweep that one failed call of the store ends returns that error, and no handle that holds an
// address is forgotten by it.
func TestSweepKeepsStickyHandlesInUse(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
		a := want("h", 1, "vm")
		a.Sticky = true
		w.assign(a)
		w.clock.add(40 * 24 * time.Hour)
		s := scripted(w.store, faults.At(k, faults.Fail(errDown)))
		got, err := w.engine(s).Operator().Sweep(bg, alloc.SweepArgs{})
		w.check()
		if n := w.records(record.KindSticky); got.Sticky != 0 || n != 1 {
			t.Errorf("call %d fails: %+v, %v; %d sticky handles are left", k, got, err, n)
		}
		if s.Counts().Calls() < k {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, errDown) {
			t.Errorf("call %d fails: %v", k, err)
		}
	}
}

// TestRememberedAnswersFit: an assignment whose answer is remembered takes its place in the commit before it changes anything: the store
// takes all of it, or the call fails and the engine goes on by what the store has.
func TestRememberedAnswersFit(t *testing.T) {
	fits, refused := 0, 0
	for limit := 4; limit < 24; limit++ {
		for variant := range 48 {
			// The addresses asked for, the size of a block, the addresses held before, and whether the handle is sticky.
			n, bits, before := 1+variant%3, []int{26, 30}[variant/3%2], []int{1, 2, 3, 4}[variant/6%4]
			w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", bits))
			w.assign(want("h", before, "first"))
			e := w.engine(limited(w.store, limit))
			a := want("h", n, "vm")
			a.Request, a.Sticky, a.Partial = "r", variant < 24, false
			if _, err := e.AutoAssign(bg, a); errors.Is(err, ipalloc.ErrLimit) {
				refused++
			} else if err != nil {
				t.Fatalf("limit %d, variant %d: %v", limit, variant, err)
			} else {
				fits++
			}
			w.check()
			next := want("h", 1, "next")
			theirs, err := w.engine(w.store).DryRun().AutoAssign(bg, next)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := e.AutoAssign(bg, next)
			if !errors.Is(err, ipalloc.ErrLimit) && (err != nil || ours.V4[0] != theirs.V4[0]) {
				t.Errorf("limit %d, variant %d: next is %v, %v; want %v", limit, variant, ours.V4, err, theirs.V4)
			}
		}
	}
	if fits == 0 || refused == 0 {
		t.Errorf("%d fit, %d refused", fits, refused)
	}
}

// TestStaleAgesAreRepaired: an entry that names nothing, and a record that no entry names.
func TestStaleAgesAreRepaired(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 26))
	a := want("h", 1, "p")
	a.Request = "r"
	w.assign(a)
	entry := record.AgedKey(wire.Stamp(w.clock.now()), record.KindRequest+"r")
	for _, op := range []store.Op{
		{Kind: store.Delete, Key: entry, Expect: store.AnyRevision},
		{Kind: store.Put, Key: record.AgedKey(5, record.KindSticky+"gone"), Expect: store.AnyRevision},
	} {
		if _, err := w.store.Commit(bg, []store.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := w.Operator().Check(bg, nil)
	if err != nil || len(rep.Problems) != 2 {
		t.Fatalf("%v, %v", rep.Problems, err)
	}
	if n, err := w.Operator().Repair(bg, rep.Repair); err != nil || n != 2 {
		t.Errorf("%d repaired, %v", n, err)
	}
}

var errDown = errors.New("the store is down")

// TestSweepIsResumed: a store that fails at every call in turn leaves what it says, and a second sweep does the rest.
func TestSweepIsResumed(t *testing.T) {
	p := poolOf("a", "10.0.0.0/26", 29)
	p.Cooldown = time.Minute
	for k := 0; ; k++ {
		w := newWorld(t, alloc.Config{}, p)
		for i := range 12 {
			a := want(fmt.Sprint("h", i%3), 2, fmt.Sprint("p", i))
			a.Request, a.Sticky = fmt.Sprint("r", i), true
			if i%2 == 0 {
				a.TTL = time.Minute
			}
			w.assign(a)
			if i%3 == 0 {
				w.releaseHandle(a.Handle)
			}
		}
		w.clock.add(1000 * time.Hour)
		args := alloc.SweepArgs{IdleAfter: time.Minute, Keep: 1}
		_, err := w.engine(scripted(w.store, faults.From(k+1, faults.Fail(errDown)))).Operator().Sweep(bg, args)
		w.check()
		if err == nil {
			return
		}
		if !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		if _, err := w.Operator().Sweep(bg, args); err != nil {
			t.Fatal(err)
		}
		w.check()
		if n := w.records(record.KindDue) + w.records(record.KindRequest); n != 0 {
			t.Fatalf("failure at call %d: %d records are left", k+1, n)
		}
	}
}

// TestRemembered: everything that outlives a holding is listed with its reason, age and addresses, and what is listed is all there is.
func TestRemembered(t *testing.T) {
	p := poolOf("a", "10.0.0.0/24", 28)
	p.Cooldown = time.Hour
	w := newWorld(t, alloc.Config{}, p)
	a := want("h", 2, "p")
	a.Request = "r"
	asked := w.assign(a)
	w.clock.add(time.Second)
	a = want("h", 1, "s")
	a.Sticky = true
	stuck := w.assign(a)
	if _, err := w.Assign(bg, a.Owner, "plain"); err != nil {
		t.Fatal(err)
	}
	list := func() (got []string) {
		for r, err := range w.Operator().Remembered(bg) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(r.Kind, " ", r.Name, r.Addresses, r.At.Sub(t0), !r.Until.IsZero()))
		}
		return got
	}
	request := fmt.Sprint("request", " ", "r", []any{asked.V4[0].Address, asked.V4[1].Address}, time.Duration(0), false)
	sticky := fmt.Sprint("sticky", " ", "s", []any{stuck.V4[0].Address}, time.Second, false)
	if got := list(); fmt.Sprint(got) != fmt.Sprint([]string{request, sticky}) {
		t.Errorf("%q, want %q and %q", got, request, sticky)
	}
	w.releaseHandle("s")
	cooling := fmt.Sprint("cooling", " ", "s", []any{stuck.V4[0].Address}, time.Second, true)
	if got := list(); fmt.Sprint(got) != fmt.Sprint([]string{request, sticky, cooling}) {
		t.Errorf("%q, want %q at the end", got, cooling)
	}
	w.releaseHandle("p")
	w.releaseHandle("plain")
	w.clock.add(31 * 24 * time.Hour)
	if _, err := w.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 0 || w.records(record.KindMemo)+w.records(record.KindAged) != 0 {
		t.Errorf("after all ages: %q", got)
	}
}

// TestSweepOfAFullFile: a file that has room for small commits only is swept in small commits.
func TestSweepOfAFullFile(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/22", 26))
	const n = 100
	for i := range n {
		a := want("h", 1, "p")
		a.Request = fmt.Sprint("request ", i)
		w.assign(a)
	}
	w.clock.add(25 * time.Hour)
	for _, most := range []int{7, 2, 1} {
		db := store.NewMemory()
		if _, err := store.Copy(bg, db, w.store); err != nil {
			t.Fatal(err)
		}
		full := onCommit(db, func(_ context.Context, ops []store.Op) faults.Outcome {
			deleted := 0
			for _, op := range ops {
				if op.Kind == store.Delete {
					deleted++
				}
			}
			if deleted > 2*most {
				return faults.Fail(fmt.Errorf("%w: no space left", ipalloc.ErrLimit))
			}
			return faults.Outcome{}
		})
		if s, err := w.engine(full).Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Requests != n {
			t.Errorf("%d keys a commit: %+v, %v", most, s, err)
		}
	}
}

// TestSweepAll: every space is swept, and the engine of one space sweeps that space alone.
func TestSweepAll(t *testing.T) {
	w := newWorld(t, alloc.Config{}, poolOf("a", "10.0.0.0/24", 28))
	for _, name := range []string{"", "blue", "red"} {
		in := w.Engine
		if name != "" {
			var err error
			if in, err = w.InSpace(name); err == nil {
				err = in.AddPool(bg, poolOf("a", "10.0.0.0/24", 28))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a := want("h", 1, "p")
		a.Request = "r"
		if _, err := in.AutoAssign(bg, a); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.add(25 * time.Hour)
	blue, err := w.InSpace("blue")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := blue.Operator().Sweep(bg, alloc.SweepArgs{}); err != nil || s.Requests != 1 {
		t.Error(s, err)
	}
	swept, err := SweepAll(bg, w.store, Options{Now: w.clock.now}, alloc.SweepArgs{})
	if err != nil || len(swept) != 3 || swept[""].Requests != 1 || swept["blue"].Requests != 0 || swept["red"].Requests != 1 {
		t.Error(swept, err)
	}
	if _, err := SweepAll(bg, w.store, Options{Now: w.clock.now}, alloc.SweepArgs{Keep: -1}); !errors.Is(err, ipalloc.ErrInvalid) {
		t.Error(err)
	}
}
