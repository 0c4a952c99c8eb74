package occ

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestCacheForgetsByUse: what is used often stays, whatever the order of the keys in memory, and nothing is allocated while all
// that is used fits.
func TestCacheForgetsByUse(t *testing.T) {
	c := NewCache[int, *text](8, nil, nil)
	for n := range 100 {
		c.Age()
		if n > 0 && c.Get(0) == nil {
			t.Fatalf("0 was forgotten before %d", n)
		}
		c.Put(n, &text{})
	}
	for n := range 100 {
		known := c.young[n] != nil || c.old[n] != nil
		if known && n > 0 && n < 84 || !known && (n == 0 || n > 92) {
			t.Errorf("%d is known: %v", n, known)
		}
	}
	c.Drop(0)
	if c.Get(0) != nil || len(c.young)+len(c.old) > 16 {
		t.Errorf("%d and %d kept, 0 known: %v", len(c.young), len(c.old), c.Get(0) != nil)
	}
	c = NewCache[int, *text](16, nil, nil)
	values := make([]text, 64)
	use := func() {
		for i := range values {
			c.Age()
			if k := i * 7 % 64; c.Get(k) == nil {
				c.Put(k, &values[k])
			}
		}
	}
	use()
	use()
	if n := testing.AllocsPerRun(100, use); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// list is a typed cell: words, and how often its content was decoded.
type list struct {
	Var[[]string]
	written int
}

func (l *list) Write(o *Ops) {
	l.written++
	if len(l.Get()) == 0 {
		o.Delete(&l.Cell)
		return
	}
	o.Put(&l.Cell)
	o.Buf = append(o.Buf, strings.Join(l.Get(), " ")...)
	o.Value()
}

// lists is a transaction on typed cells.
type lists struct {
	Txn
	all     Cache[string, *list]
	decoded int
}

func newLists(s store.Store) (*Runner[*lists], *lists) {
	x := &lists{}
	x.all = NewCache(4,
		func(key string) (string, bool) { return key[1:], len(key) > 1 },
		func(name string, r store.Record) (*list, error) {
			if name == "" || r.Value == "damaged" {
				return nil, fmt.Errorf("%w: list %q", ipalloc.ErrCorrupt, r.Key)
			}
			x.decoded++
			return &list{Var: NewVar(r, strings.Fields(r.Value))}, nil
		})
	x.Register("l", &x.all)
	return New(x, Config{Package: "test", Store: s, Fence: func(store.Op) (int, string) { return 0, "" }}), x
}

// list returns the list of a name, as a package with typed cells does.
func (t *lists) list(name string) (*list, error) {
	l := t.all.Get(name)
	if l == nil {
		if err := t.Load("l" + name); err != nil {
			return nil, err
		}
		l = t.all.Get(name)
	}
	t.Guard(&l.Cell)
	return l, nil
}

// push appends a word to a list, and fails afterwards if it is to.
func push(name, word string, fail error) Func[*lists] {
	return func(t *lists) error {
		l, err := t.list(name)
		if err != nil {
			return err
		}
		Set(&t.Txn, l, append(l.Get()[:len(l.Get()):len(l.Get())], word))
		t.Add(store.Op{Kind: store.Put, Key: "w" + word, Expect: store.AnyRevision})
		if err := t.Room(); err != nil {
			return err
		}
		return fail
	}
}

// TestTypedCells: content is decoded once, changed content is seen by the next plan, a plan that fails leaves what was there, and
// a list that becomes empty has no record.
func TestTypedCells(t *testing.T) {
	db := faults.NewFaulty(store.NewMemory())
	r, x := newLists(db)
	for _, word := range []string{"a", "b"} {
		if err := r.Do(bg, push("x", word, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if c := db.Counts(); c.Gets != 1 || c.Commits != 2 || x.decoded != 1 || c.Written != 4 {
		t.Errorf("%+v, %d decoded", c, x.decoded)
	}
	late := errors.New("late")
	if err := r.Do(bg, push("x", "c", late)); err != late {
		t.Error(err)
	}
	if l := x.all.Get("x"); strings.Join(l.Get(), " ") != "a b" || l.written != 2 {
		t.Error(l.Get(), l.written)
	}
	// Several plans of one transaction: one sees what those before it leave.
	both := func(t *lists) error {
		for i, p := range []Func[*lists]{push("x", "c", nil), push("x", "d", late), push("y", "e", nil)} {
			t.savepoint()
			err := p(t)
			if err != nil {
				t.Rollback()
			}
			if (err == late) != (i == 1) {
				return fmt.Errorf("%d: %v", i, err)
			}
		}
		return nil
	}
	if err := r.Do(bg, Func[*lists](both)); err != nil {
		t.Fatal(err)
	}
	recs, err := db.Get(bg, nil, "lx", "ly", "wc", "wd", "we")
	if err != nil || recs[0].Value != "a b c" || recs[1].Value != "e" || recs[2].Rev == 0 || recs[3].Rev != 0 || recs[4].Rev == 0 {
		t.Error(recs, err)
	}
	clear := Func[*lists](func(t *lists) error {
		l, err := t.list("y")
		if err == nil {
			Set(&t.Txn, l, nil)
		}
		return err
	})
	for range 2 {
		if err := r.Do(bg, clear); err != nil {
			t.Error(err)
		}
	}
	if l := x.all.Get("y"); l.Rev != 0 || len(l.Get()) != 0 {
		t.Error(l.Rev, l.Get())
	}
	if err := r.Do(bg, push("y", "f", nil)); err != nil {
		t.Error(err)
	}
}

// TestDamagedRecord: the error of decode is the answer.
func TestDamagedRecord(t *testing.T) {
	mem := store.NewMemory()
	if _, err := mem.Commit(bg, []store.Op{{Kind: store.Put, Key: "lx", Value: "damaged"}}); err != nil {
		t.Fatal(err)
	}
	r, _ := newLists(mem)
	for _, name := range []string{"x", ""} {
		if err := r.Do(bg, push(name, "a", nil)); !errors.Is(err, ipalloc.ErrCorrupt) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestConflictFoundByReading: a record that a plan rests upon and that is read again ends the attempt if it has changed.
func TestConflictFoundByReading(t *testing.T) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	r, x := newLists(db)
	if err := r.Do(bg, push("x", "a", nil)); err != nil {
		t.Fatal(err)
	}
	other, _ := newLists(mem)
	if err := other.Do(bg, push("x", "b", nil)); err != nil {
		t.Fatal(err)
	}
	db.Reset()
	runs := 0
	err := r.Do(bg, Func[*lists](func(t *lists) error {
		runs++
		if _, err := t.list("x"); err != nil {
			return err
		}
		return t.Read("lx", "ly")
	}))
	if c := db.Counts(); err != nil || runs != 2 || c.Commits != 1 {
		t.Errorf("%v after %d runs and %d commits", err, runs, c.Commits)
	}
	if words := x.all.Get("x").Get(); strings.Join(words, " ") != "a b" {
		t.Error(words)
	}
}

// TestListNeedsTheFirstPlace: a range shows what the store has, so a plan that reads one gets a transaction of its own after
// plans that change something.
func TestListNeedsTheFirstPlace(t *testing.T) {
	g := newGate()
	db := faults.NewFaulty(store.NewMemory())
	db.Script(g.script)
	r := newRunner(db)
	first := do(bg, r, incr("a"))
	<-g.arrived
	second := do(bg, r, incr("b"))
	waitFor(r, 1)
	n := 0
	third := do(bg, r, Func[*txn](func(t *txn) error {
		t.Put("c", "1") // what the plan itself has changed does not count
		recs, err := t.List(store.Range{From: "a"})
		n = len(recs)
		return err
	}))
	waitFor(r, 2)
	for range 10 {
		g.open <- struct{}{}
	}
	for _, c := range []chan error{first, second, third} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if n != 2 || db.Counts().Commits != 3 {
		t.Errorf("%d records listed, %d commits", n, db.Counts().Commits)
	}
}
