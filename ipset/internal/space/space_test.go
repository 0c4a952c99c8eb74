package space

import (
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
