package block

import (
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
)

// An index lists attributes whose key and value can be parts of the key of a record. Which of an address's attributes it lists is kept
// with the address, because the keys that a pool indexes may change while the address is held.

// Marks returns which attributes have a key of keys and a value that an index can list: bit i stands for the i-th attribute,
// keys ascending. It leaves out values of more than 1,024 bytes or with a NUL byte, and all attributes after the first 64.
func Marks(a alloc.Attributes, keys []string) (marks uint64) {
	if len(keys) == 0 || a == (alloc.Attributes{}) {
		return 0
	}
	i := 0
	for k, v := range a.All() {
		if i < 64 && slices.Contains(keys, k) && canIndex(k, v) {
			marks |= 1 << i
		}
		i++
	}
	return marks
}

// Marked yields the attributes that [Marks] has marked.
func Marked(a alloc.Attributes, marks uint64) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if marks == 0 {
			return
		}
		for k, v := range a.All() {
			if marks&1 != 0 && !yield(k, v) {
				return
			}
			marks >>= 1
		}
	}
}

// canIndex reports whether a key and a value can be parts of the key of an index record.
func canIndex(k, v string) bool {
	return k != "" && len(k) <= cause.MaxName && len(v) <= cause.MaxName && strings.IndexByte(k, 0) < 0 && strings.IndexByte(v, 0) < 0
}

// mayIndex reports whether Marks can have returned marks.
func mayIndex(a alloc.Attributes, marks uint64) bool {
	n := 0
	for k, v := range Marked(a, marks) {
		if !canIndex(k, v) {
			return false
		}
		n++
	}
	return n == bits.OnesCount64(marks)
}
