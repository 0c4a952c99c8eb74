package occ

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
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
