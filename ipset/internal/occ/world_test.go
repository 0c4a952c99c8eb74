package occ

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var bg = context.Background()

// txn is a transaction on counters: a record per key that has a number.
type txn struct{ Txn }

type runner = Runner[*txn]

func newRunner(s store.Store, change ...func(*Config)) *runner {
	c := Config{
		Package: "test", Store: s, Wait: func(ctx context.Context, _ int) error { return ctx.Err() },
		Fence: func(op store.Op) (int, string) {
			switch {
			case op.Expect != 0:
				return 2, ""
			case op.Kind == store.Put:
				return 1, "0"
			}
			return 0, ""
		},
	}
	for _, f := range change {
		f(&c)
	}
	return New(&txn{}, c)
}

func keep(n int) func(*Config) { return func(c *Config) { c.Keep = n } }

var (
	errEmpty = errors.New("nothing to move")
	errNone  = errors.New("no record")
)

// deed is one operation on counters, for a runner and for its model.
type deed struct {
	name     string
	from, to string
}

var deeds = []deed{{"incr", "", "a"}, {"incr", "", "b"}, {"move", "a", "b"}, {"move", "b", "a"}, {"delete", "a", ""}, {"delete", "b", ""}}

// number returns a counter.
func (t *txn) number(key string) (n int, ok bool, err error) {
	v, ok, err := t.Get(key)
	if ok && err == nil {
		n, err = strconv.Atoi(v)
	}
	return n, ok, err
}

// Plan implements [Plan]. A move changes the target first, so that a refused one has something to take back.
func (d deed) Plan(t *txn) error {
	if d.name == "delete" {
		_, ok, err := t.number(d.from)
		if !ok && err == nil {
			err = errNone
		}
		if err == nil {
			t.Delete(d.from)
		}
		return err
	}
	to, _, err := t.number(d.to)
	if err != nil {
		return err
	}
	t.Put(d.to, strconv.Itoa(to+1))
	if d.name == "incr" {
		return nil
	}
	from, _, err := t.number(d.from)
	if err == nil && from == 0 {
		err = errEmpty
	}
	if err == nil {
		t.Put(d.from, strconv.Itoa(from-1))
	}
	return err
}

// counters is the state that a sequence of deeds leaves.
type counters map[string]int

// do is Plan on the model.
func (c counters) do(d deed) (counters, error) {
	_, ok := c[d.from]
	next := maps.Clone(c)
	switch {
	case d.name == "delete" && !ok:
		return c, errNone
	case d.name == "delete":
		delete(next, d.from)
	case d.name == "move" && c[d.from] == 0:
		return c, errEmpty
	case d.name == "move":
		next[d.from]--
		next[d.to]++
	default:
		next[d.to]++
	}
	return next, nil
}

// stored returns the state of a store.
func stored(t *testing.T, s store.Store) counters {
	t.Helper()
	recs, _, err := s.List(bg, store.Range{})
	if err != nil {
		t.Fatal(err)
	}
	c := counters{}
	for _, r := range recs {
		if c[r.Key], err = strconv.Atoi(r.Value); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestWorlds carries out every sequence of three deeds by two runners on two keys, with one store call that goes wrong, for
// every call and every way. Answers and states are those of the model, where a deed of unknown outcome has been carried out or
// not, and stays what it was once the runner has answered.
func TestWorlds(t *testing.T) {
	const depth = 3
	n := len(deeds)
	for world := range n * n * n {
		if testing.Short() && world%5 > 0 {
			continue
		}
		for who := range 1 << depth {
			for call := 1; call <= 7; call++ {
				for way := range 5 {
					script := [depth]deed{deeds[world%n], deeds[world/n%n], deeds[world/n/n]}
					play(t, script[:], who, call, way)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}

// play is one run of TestWorlds.
func play(t *testing.T, script []deed, who, call, way int) {
	mem := store.NewMemory()
	db := faults.NewFaulty(mem)
	late := make(chan struct{})
	fault := [...]faults.Outcome{
		faults.Fail(faults.ErrInjected), faults.Conflict("a"), faults.Unknown(true), faults.Unknown(false), faults.Late(late),
	}[way]
	db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
		if c.N != call || way > 0 && c.Kind != faults.Commit {
			return faults.Outcome{}
		}
		return fault
	})
	runners := [2]*runner{newRunner(db), newRunner(db, keep(8))}
	want := counters{}
	lands := func() {}
	for i, d := range script {
		r := runners[who>>i&1]
		next, answer := want.do(d)
		err := r.Do(bg, d)
		switch {
		case errors.Is(err, ipalloc.ErrUnknownOutcome):
			if err := r.Current(bg); err != nil {
				t.Errorf("settle: %v", err)
			}
			if way == 2 {
				want = next
			}
			lands = func() { close(late); db.Settle() }
			if way == 4 {
				lands()
				lands = func() {}
			}
		case errors.Is(err, faults.ErrInjected):
		case err != answer:
			t.Errorf("%v by %b, call %d fails in way %d: %v answered %v, want %v", script, who, call, way, d, err, answer)
			return
		default:
			want = next
		}
		is := stored(t, mem)
		for k, v := range is { // a fence may have made an empty counter
			if _, ok := want[k]; !ok && v == 0 && way > 2 {
				want[k] = 0
			}
		}
		if !maps.Equal(is, want) {
			t.Errorf("%v by %b, call %d fails in way %d: %v after %v, want %v", script, who, call, way, is, d, want)
			return
		}
	}
	lands()
}

// TestRivals lets another runner go first between the plan and the commit of a deed, for all deeds on all states of two keys.
func TestRivals(t *testing.T) {
	for _, cached := range []int{0, 8} {
		for state := range 9 {
			for _, d := range deeds {
				for _, other := range deeds {
					for times := range 4 {
						name := fmt.Sprintf("keep %d, state %d, %v, %d times %v first", cached, state, d, times, other)
						mem := store.NewMemory()
						db := faults.NewFaulty(mem)
						r, rival := newRunner(db, keep(cached)), newRunner(mem, keep(cached))
						want := counters{}
						for i, k := range []string{"a", "b"} {
							for range state / (1 + 2*i) % 3 {
								if err := r.Do(bg, deed{"incr", "", k}); err != nil {
									t.Fatal(err)
								}
								want[k]++
							}
						}
						left := times
						db.Script(func(_ context.Context, c faults.Call) faults.Outcome {
							if c.Kind == faults.Commit && left > 0 {
								left--
								_, answer := want.do(other)
								if err := rival.Do(bg, other); err != answer {
									t.Errorf("%s: the rival got %v, want %v", name, err, answer)
								}
								want, _ = want.do(other)
							}
							return faults.Outcome{}
						})
						err := r.Do(bg, d)
						next, answer := want.do(d)
						if is := stored(t, mem); err != answer || !maps.Equal(is, next) {
							t.Fatalf("%s: %v, %v, want %v, %v", name, err, is, answer, next)
						}
					}
				}
			}
		}
	}
}
