package space

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/internal/addr"
)

// memory is pages in a map.
type memory struct {
	words map[ID]uint64
	reads int
	fail  error // returned by the next call
}

func (m *memory) Word(id ID) (uint64, error) {
	m.reads++
	return m.words[id], m.fail
}

func (m *memory) SetWord(id ID, w uint64) error {
	m.words[id] = w
	return m.fail
}

func u(n uint64) addr.U128 { return addr.U128{Lo: n} }

// Every place of a small space is taken and freed in every order that a random walk meets, and every search is compared
// with a plain loop.
func TestAgainstALoop(t *testing.T) {
	const width, n = 13, 1 << 13
	m := &memory{words: make(map[ID]uint64)}
	var taken [n]bool
	rng := rand.New(rand.NewPCG(1, 2))
	count := 0
	for step := range 60000 {
		x := rng.Uint64N(n)
		if step < 12000 { // fill runs, so that upper levels become full
			x = uint64(step) % n
		}
		want := step < 12000 || rng.IntN(3) > 0
		if err := Mark(m, width, u(x), want); err != nil {
			t.Fatal(err)
		}
		if taken[x] != want {
			taken[x] = want
			count++
		}
		if step%7 > 0 {
			continue
		}
		lo := rng.Uint64N(n)
		hi := lo + rng.Uint64N(n-lo)
		m.reads = 0
		got, ok, err := Find(m.Word, u(lo), u(hi))
		if err != nil || m.reads > 2*3 {
			t.Fatalf("find %d-%d: %v, %d pages read", lo, hi, err, m.reads)
		}
		first := lo
		for first <= hi && taken[first] {
			first++
		}
		if ok != (first <= hi) || ok && got != u(first) {
			t.Fatalf("step %d: find %d-%d = %v, %v, want %d", step, lo, hi, got, ok, first)
		}
	}
	if count == 0 {
		t.Fatal("nothing changed")
	}
}

// A page is marked in the one above exactly when it is full, and a space of one page has none above.
func TestParents(t *testing.T) {
	for _, tt := range []struct {
		width  int
		levels int
	}{{0, 1}, {1, 1}, {6, 1}, {7, 2}, {12, 2}, {13, 3}, {32, 6}, {64, 11}, {128, 22}} {
		place := addr.Low(uint(tt.width))
		id, _ := Leaf(place)
		n := 1
		for {
			up, child, ok := id.Parent(tt.width)
			if !ok {
				break
			}
			if child != uint(id.Index.Lo&63) || up.Index != id.Index.Shr(Bits) {
				t.Fatalf("parent of %v is %v at %d", id, up, child)
			}
			id = up
			n++
		}
		if n != tt.levels || id.Index != (addr.U128{}) {
			t.Errorf("2^%d places have %d levels that end in %v, want %d", tt.width, n, id, tt.levels)
		}
	}
}

// The last place of the largest space can be taken and found, and the search ends there.
func TestLargestSpace(t *testing.T) {
	m := &memory{words: make(map[ID]uint64)}
	last := addr.Low(128)
	if got, ok, err := Find(m.Word, last, last); err != nil || !ok || got != last {
		t.Fatal(got, ok, err)
	}
	for i := range uint64(64) {
		if err := Mark(m, 128, addr.U128{Hi: last.Hi, Lo: last.Lo - i}, true); err != nil {
			t.Fatal(err)
		}
	}
	from := addr.U128{Hi: last.Hi, Lo: last.Lo - 63}
	if got, ok, err := Find(m.Word, from, last); err != nil || ok {
		t.Fatal(got, ok, err)
	}
	from.Lo--
	if got, ok, err := Find(m.Word, from, last); err != nil || !ok || got != from {
		t.Fatal(got, ok, err)
	}
}

// An error of the caller's pages is returned as it is.
func TestErrorsOfTheCaller(t *testing.T) {
	m := &memory{words: make(map[ID]uint64), fail: errors.New("no page")}
	if err := Mark(m, 12, u(3), true); err != m.fail {
		t.Errorf("Mark = %v", err)
	}
	if _, _, err := Find(m.Word, u(0), u(9)); err != m.fail {
		t.Errorf("Find = %v", err)
	}
	write := &failingWrite{memory{words: make(map[ID]uint64)}}
	if err := Mark(write, 12, u(3), true); err == nil {
		t.Error("Mark ignored the error of a write")
	}
}

type failingWrite struct{ memory }

func (*failingWrite) SetWord(ID, uint64) error { return errors.New("no write") }
